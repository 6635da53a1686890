"""The publisher against a real broker: windows, refusals, lost connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from penstock.client.amqp.address import Address, parse_address
from penstock.pipeline.sink.options import SinkError
from penstock.pipeline.sink.publisher import OutgoingMessage, Publisher
from penstock.testing import Broker
from penstock.wire.properties import Properties, encode_properties
from tests.pipeline.sink.queues import bodies, declare, declare_dedup
from tests.postgres_server import wait_until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def address_of(broker: Broker, timeout_s: float = 30) -> Address:
    return parse_address(f"{broker.url}?timeout={timeout_s}")


def message(number: int, queue: str, exchange: str = "") -> OutgoingMessage:
    key = f"q/0/0/{number}"
    properties = Properties(message_id=key, delivery_mode=2, headers={"x-deduplication-header": ("S", key.encode())})
    return OutgoingMessage(exchange, queue, encode_properties(properties), key, str(number).encode())


def numbers(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_more_messages_than_the_window_arrive_in_their_order(broker: Broker) -> None:
    declare(broker.url, "orders")
    with Publisher(address_of(broker), window_messages=7) as publisher:
        for number in range(100):
            publisher.publish(message(number, "orders"))
        publisher.flush()
        assert publisher.confirmed == 100
    assert bodies(broker.url, "orders") == numbers(100)


def test_a_window_in_bytes_takes_a_message_that_is_larger_than_it(broker: Broker) -> None:
    declare(broker.url, "orders")
    with Publisher(address_of(broker), window_bytes=10) as publisher:
        for number in range(5):
            publisher.publish(message(number, "orders"))
        publisher.flush()
    assert bodies(broker.url, "orders") == numbers(5)


def test_a_message_that_no_queue_takes_is_an_error_with_exchange_and_key(broker: Broker) -> None:
    declare(broker.url, "orders")
    with Publisher(address_of(broker)) as publisher:
        publisher.publish(message(0, "orders"))
        publisher.publish(message(1, "ordres", "amq.direct"))
        publisher.publish(message(2, "orders"))
        with pytest.raises(SinkError, match=r"no queue .* exchange 'amq\.direct', routing key 'ordres'"):
            publisher.flush()


def test_an_exchange_that_is_not_there_is_an_error_with_its_name(broker: Broker) -> None:
    with Publisher(address_of(broker)) as publisher:
        publisher.publish(message(0, "orders", "nowhere"))
        with pytest.raises(SinkError, match="exchange 'nowhere'"):
            publisher.flush()


def test_what_is_in_the_window_is_sent_again_on_a_new_connection(broker: Broker) -> None:
    declare_dedup(broker.url, "orders")
    with Publisher(address_of(broker), window_messages=50) as publisher:
        for number in range(120):
            if number in (40, 90):
                assert broker.faults.cut_connections() == 1
            publisher.publish(message(number, "orders"))
        publisher.flush()
        assert publisher.reconnects >= 1
    assert bodies(broker.url, "orders") == numbers(120)


def test_a_broker_that_starts_again_in_time_gets_the_rest(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        declare_dedup(broker.url, "orders")
        with Publisher(address_of(broker)) as publisher:
            publisher.publish(message(0, "orders"))
            publisher.flush()
            broker.kill()
            publisher.publish(message(1, "orders"))
            waiting = Thread(target=publisher.flush)
            waiting.start()
            broker.start()
            waiting.join(60)
            assert publisher.confirmed == 2
        assert bodies(broker.url, "orders") == numbers(2)


def test_a_broker_that_stays_away_is_an_error_that_counts_what_is_open(broker: Broker) -> None:
    declare(broker.url, "orders")
    with Publisher(address_of(broker), reconnect_s=0.3) as publisher:
        publisher.publish(message(0, "orders"))
        publisher.flush()
        broker.stop()
        publisher.publish(message(1, "orders"))
        publisher.publish(message(2, "orders"))
        with pytest.raises(SinkError, match="2 messages are not confirmed"):
            publisher.flush()


def test_refused_messages_are_sent_again_until_the_broker_takes_them(broker: Broker) -> None:
    declare(broker.url, "orders")
    with Publisher(address_of(broker)) as publisher:
        with broker.faults.refused_confirms():
            publisher.publish(message(0, "orders"))
            publisher.publish(message(1, "orders"))
            waiting = Thread(target=publisher.flush)
            waiting.start()
            wait_until(lambda: publisher.refused >= 2)
        waiting.join(60)
        assert publisher.confirmed == 2
    assert sorted(bodies(broker.url, "orders")) == numbers(2)


def test_a_message_that_is_refused_each_time_is_an_error(broker: Broker) -> None:
    declare(broker.url, "orders")
    with broker.faults.refused_confirms(), Publisher(address_of(broker)) as publisher:
        publisher.publish(message(0, "orders"))
        with pytest.raises(SinkError, match="refused a message 6 times"):
            publisher.flush()


def test_a_wrong_password_is_said_at_once(broker: Broker) -> None:
    address = parse_address(broker.url.replace("guest:guest", "guest:wrong"))
    with Publisher(address) as publisher, pytest.raises(SinkError, match="does not let in user 'guest'"):
        publisher.publish(message(0, "orders"))


def test_a_queue_with_other_arguments_is_not_declared(broker: Broker) -> None:
    declare(broker.url, "orders")
    with Publisher(address_of(broker)) as publisher:
        with pytest.raises(SinkError, match="queue 'orders' cannot be declared"):
            publisher.declare("orders", {"x-max-priority": ("I", 3)})
        # The channel for messages is another one.
        publisher.publish(message(0, "orders"))
        publisher.flush()
        assert publisher.confirmed == 1
