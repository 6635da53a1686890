"""A broker of a test that keeps its data in a folder: what comes back, and that nothing stays open."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from penstock.errors import StartupError
from penstock.testing import Broker

PERSISTENT = pika.BasicProperties(delivery_mode=2)

pytestmark = pytest.mark.usefixtures("nothing_left")


def publish(broker: Broker, count: int, body: bytes = b"x") -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        for _ in range(count):
            channel.basic_publish("", "q", body, PERSISTENT)
        channel.tx_commit()


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_what_is_durable_comes_back_and_nothing_stays_open(end: object, tmp_path: Path) -> None:
    assert callable(end)
    broker = Broker(data_dir=tmp_path).start()
    port = broker.port
    publish(broker, 3)
    # Enough to page, and large ones in the shared store.
    publish(broker, 12_000)
    publish(broker, 2, b"L" * 20_000)
    end(broker)
    assert not broker.is_running
    broker.start()
    assert (broker.port, broker.queue_depth("q")) == (port, 12_005)
    end(broker)


def test_two_brokers_cannot_use_one_folder(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as first:
        second = Broker(data_dir=str(tmp_path))
        with pytest.raises(StartupError, match="in use"):
            second.start()
        assert not second.is_running
        publish(first, 1)
    with second:
        assert second.queue_depth("q") == 1


def test_a_folder_whose_definitions_are_not_understood_is_refused_and_let_go(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        publish(broker, 1)

        def spoil(server: object) -> None:
            node = broker._server.broker.node  # type: ignore[union-attr]
            assert node is not None
            node.definitions_source = lambda: [b'{"from": "the future"}']

        broker.call(spoil)
    for _ in range(2):
        with pytest.raises(StartupError, match="the definitions in the data folder cannot be read"):
            broker.start()


def test_a_killed_broker_says_nothing_to_its_clients(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path).start()
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    broker.kill()
    with pytest.raises(pika.exceptions.StreamLostError):
        connection.process_data_events(time_limit=10)


def test_a_broker_in_memory_can_be_killed_too() -> None:
    broker = Broker().start()
    broker.kill()
    with broker:
        assert broker.is_running
