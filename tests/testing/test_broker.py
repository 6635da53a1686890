"""The embedded broker: starting, stopping, its URL, its settings."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import replace

import aio_pika
import amqp
import kombu
import pika
import pika.exceptions
import pytest

from penstock.config import Config, UserConfig
from penstock.errors import StartupError
from penstock.testing import Broker
from tests.interop.deadline import wait_until


def publish_and_get(url: str, queue: str = "q") -> bytes | None:
    """What a user's first test does."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.queue_declare(queue)
        channel.basic_publish("", queue, b"hello")
        return channel.basic_get(queue, auto_ack=True)[2]
    finally:
        connection.close()


def test_it_serves_as_soon_as_it_has_started(record_property: pytest.RecordProperty) -> None:
    began = time.perf_counter()
    with Broker() as broker:
        ready_s = time.perf_counter() - began
        assert publish_and_get(broker.url) == b"hello"
    record_property("ready_ms", round(ready_s * 1000, 1))


def test_it_listens_on_the_loopback_interface_and_a_port_of_its_own() -> None:
    with Broker() as first, Broker() as second:
        assert first.host == second.host == "127.0.0.1"
        assert 0 < first.port != second.port > 0
        assert first.url == f"amqp://guest:guest@127.0.0.1:{first.port}/%2F"


def test_twenty_brokers_in_one_process_do_not_know_each_other() -> None:
    brokers = [Broker().start() for _ in range(20)]
    try:
        assert len({broker.port for broker in brokers}) == 20
        for number, broker in enumerate(brokers):
            connection = pika.BlockingConnection(pika.URLParameters(broker.url))
            channel = connection.channel()
            channel.queue_declare(f"q{number}")
            for _ in range(number):
                channel.basic_publish("", f"q{number}", b"x")
            connection.close()
        for number, broker in enumerate(brokers):
            assert broker.queue_depth(f"q{number}") == number
            with pytest.raises(KeyError):
                broker.queue_depth(f"q{number + 1}")
    finally:
        for broker in brokers:
            broker.stop()


def test_it_starts_again_empty_on_the_same_port() -> None:
    broker = Broker()
    broker.start()
    url = broker.url
    assert publish_and_get(url) == b"hello"
    broker.stop()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        publish_and_get(url)
    with broker:
        assert broker.url == url
        with pytest.raises(KeyError):
            broker.queue_depth("q")
        assert publish_and_get(url) == b"hello"


def test_starting_twice_is_refused_and_does_no_harm() -> None:
    with Broker() as broker:
        with pytest.raises(RuntimeError, match="running already"):
            broker.start()
        assert publish_and_get(broker.url) == b"hello"


def test_stopping_twice_or_before_the_start_is_fine() -> None:
    broker = Broker()
    broker.stop()
    broker.start()
    broker.stop()
    broker.stop()
    assert not broker.is_running


def test_a_broker_that_is_not_running_says_so() -> None:
    broker = Broker()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not running"):
            broker.queue_depth("q")
        with pytest.raises(RuntimeError, match="not running"):
            broker.faults.cut_connections()
        with broker:
            pass


def test_a_port_in_use_is_reported_by_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = Broker(port=port)
        with pytest.raises(StartupError, match=f"cannot listen on 127.0.0.1:{port}"):
            broker.start()
        assert not broker.is_running
    # Once the port is free the same object can be started.
    with broker:
        assert broker.port == port


def test_the_port_of_a_configuration_does_not_count() -> None:
    config = Config()
    assert config.port == 5672
    with Broker(config) as first, Broker(config) as second:
        assert len({first.port, second.port, 5672}) == 3
    assert config.port == 5672


def test_an_exception_in_the_block_stops_the_broker_and_passes_through() -> None:
    broker = Broker()
    with pytest.raises(ZeroDivisionError), broker:
        assert 1 / (publish_and_get(broker.url) != b"hello")
    assert not broker.is_running
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(broker.url))


STRANGE = Config(users=[UserConfig("j@ne:d/oe", "p ä%:/?#[]@ß")], vhosts=["/a b/ü%2F"], login_refused_delay_s=0.0)


def test_pika_can_use_the_url_whatever_is_in_it() -> None:
    with Broker(STRANGE) as broker:
        assert publish_and_get(broker.url) == b"hello"
        assert broker.queue_depth("q", "/a b/ü%2F") == 0


def test_kombu_and_py_amqp_can_use_the_url_whatever_is_in_it() -> None:
    with Broker(STRANGE) as broker, kombu.Connection(broker.url) as connection:
        assert connection.default_channel.connection.connected
        assert isinstance(connection.connection, amqp.Connection)
        queue = connection.SimpleQueue("q")
        queue.put("hello")
        message = queue.get(timeout=60)
        assert message.payload == "hello"
        message.ack()
        queue.close()


async def use_with_aio_pika(url: str) -> bytes:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), "q")
        message = await queue.get(timeout=60)
        await message.ack()
        return message.body


def test_aio_pika_can_use_the_url_whatever_is_in_it() -> None:
    # It takes slashes from both ends of a vhost and decodes twice, so those are left out.
    with Broker(replace(STRANGE, vhosts=["a b/ü"])) as broker:
        assert asyncio.run(use_with_aio_pika(broker.url)) == b"hello"


def test_a_wrong_password_is_refused_without_delay() -> None:
    with Broker() as broker:
        assert broker.call(lambda server: server.config.login_refused_delay_s) == 0.0
        url = broker.url.replace("guest:guest", "guest:wrong")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(pika.URLParameters(url))


def test_an_ipv6_address_stands_in_brackets() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    with Broker(Config(host="::1")) as broker:
        assert broker.url == f"amqp://guest:guest@[::1]:{broker.port}/%2F"
        assert publish_and_get(broker.url) == b"hello"


def test_it_can_be_used_from_many_threads_at_once() -> None:
    with Broker() as broker:
        got: list[bytes | None] = []

        def work(number: int) -> None:
            for _ in range(5):
                got.append(publish_and_get(broker.url, f"q{number}"))
                assert broker.queue_depth(f"q{number}") == 0

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == [b"hello"] * 40
        wait_until(lambda: broker.call(lambda server: len(server.connections)) == 0, "all are gone")


def test_call_hands_back_results_and_exceptions_and_may_be_nested() -> None:
    with Broker() as broker:
        assert broker.call(lambda server: server.port) == broker.port
        with pytest.raises(ZeroDivisionError):
            broker.call(lambda server: 1 // 0)
        assert broker.call(lambda server: broker.call(lambda inner: inner is server))
        assert broker.call(lambda server: threading.current_thread().name) == "penstock-broker"


def test_stopping_tells_connected_clients_why() -> None:
    broker = Broker().start()
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    broker.stop()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=10)
    assert closed.value.reply_code == 320
    assert closed.value.reply_text.startswith("CONNECTION_FORCED")


def test_stopping_does_not_need_the_answer_of_a_client_that_sits_idle() -> None:
    broker = Broker().start()
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    broker.stop()
    assert not broker.is_running
    assert connection.is_open
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(time_limit=10)
