"""What a broker leaves behind in the test process: nothing."""

from __future__ import annotations

import asyncio
import gc
import select
import socket
import threading
import weakref

import pika
import pytest

from penstock.server.connection.connection import Connection
from penstock.server.server import Server
from penstock.testing import Broker
from tests.testing.test_broker import publish_and_get

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_brokers_that_were_used_leave_nothing() -> None:
    for _ in range(5):
        with Broker() as broker:
            assert publish_and_get(broker.url) == b"hello"
    assert not broker.is_running


def test_a_broker_whose_clients_are_still_there_leaves_nothing() -> None:
    with Broker() as broker:
        connections = [pika.BlockingConnection(pika.URLParameters(broker.url)) for _ in range(5)]
        strangers = [socket.create_connection((broker.host, broker.port)) for _ in range(5)]
    for stranger in strangers:
        assert stranger.recv(1) == b""
        stranger.close()
    for connection in connections:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            connection.process_data_events(time_limit=10)


def test_a_client_that_connects_while_the_broker_stops_is_not_left_hanging() -> None:
    for _ in range(50):
        broker = Broker().start()
        clients = [socket.create_connection((broker.host, broker.port)) for _ in range(3)]
        broker.stop()
        for client in clients:
            readable, _, _ = select.select([client], [], [], 10.0)
            client.close()
            assert readable, "the socket was left open"


def test_a_broker_that_failed_in_the_block_leaves_nothing() -> None:
    clients: list[pika.BlockingConnection] = []

    def fail(url: str) -> None:
        clients.append(pika.BlockingConnection(pika.URLParameters(url)))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Broker() as broker:
        fail(broker.url)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        clients[0].process_data_events(time_limit=10)


def test_a_broker_that_could_not_start_leaves_nothing() -> None:
    with Broker() as broker:
        for _ in range(3):
            with pytest.raises(Exception, match="cannot listen"):
                Broker(port=broker.port).start()
    assert threading.active_count() >= 1


def server_objects() -> set[int]:
    return {id(each) for each in gc.get_objects() if isinstance(each, (Server, Connection))}


def test_the_broker_lets_go_of_its_messages_when_it_stops_and_not_later() -> None:
    # A broker that other tests share may be running in this process.
    before = server_objects()
    broker = Broker().start()
    publish_and_get(broker.url)
    server = weakref.ref(broker.call(lambda server: server))
    loop = weakref.ref(broker.call(lambda server: server.loop))
    broker.stop()
    gc.collect()
    assert server() is None
    assert loop() is None
    assert server_objects() <= before


def test_the_event_loop_has_one_task_while_it_runs_and_is_closed_afterwards() -> None:
    with Broker() as broker:
        publish_and_get(broker.url)
        loop = broker.call(lambda server: server.loop)
        assert broker.call(lambda server: len(asyncio.all_tasks(server.loop))) == 1
    assert loop.is_closed()


def test_the_loop_of_the_test_itself_is_left_alone() -> None:
    async def main() -> bytes | None:
        before = asyncio.get_running_loop()
        with Broker() as broker:
            body = await asyncio.to_thread(publish_and_get, broker.url)
            assert asyncio.get_running_loop() is before
        return body

    assert asyncio.run(main()) == b"hello"
