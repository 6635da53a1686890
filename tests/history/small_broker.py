"""A broker whose journal has tiny segments, so that a few messages cross every boundary; and its clients."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from penstock.config import Config
from penstock.history.log import Log
from penstock.history.opening import open_log
from penstock.journal.options import JournalOptions
from penstock.store.node.options import StoreOptions
from penstock.store.shared.message_store import MessageStoreOptions
from penstock.testing import Broker
from tests.interop.deadline import wait_until

# A body of this size has a file of the shared store to itself.
OWN_FILE_BYTES = 20_000
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def small_options(journal: JournalOptions, **given: Any) -> StoreOptions:
    """In the place of those that the server asks for."""
    journal.segment_bytes = 12 * 1024
    journal.batch_bytes_max = 1024
    shared = MessageStoreOptions(file_bytes=24 * 1024, own_file_bytes=OWN_FILE_BYTES, buffer_bytes=8 * 1024)
    return StoreOptions(journal, shared, **{**given, "checkpoint_s": 0.05, "checkpoint_bytes": 8 * 1024})


def http_broker(data_dir: Any, **settings: Any) -> Broker:
    return Broker(Config(**{"login_refused_delay_s": 0.0, "http_port": 0, **settings}), data_dir=data_dir)


def http_port(broker: Broker) -> int:
    port = broker.call(lambda server: server.http_port)
    assert port is not None
    return port


def log_of(kind: str, broker: Broker, folder: Any) -> Log:
    return open_log(str(folder) if kind == "folder" else f"http://127.0.0.1:{http_port(broker)}")


def next_lsn(broker: Broker) -> int:
    return broker.call(lambda server: server.broker.node.journal.next_lsn)  # type: ignore[union-attr]


def wait_for_all(broker: Broker, log: Log) -> None:
    """Until the log shows everything that the broker has written. The broker is left alone meanwhile."""
    wait_until(lambda: log.state().end_lsn == next_lsn(broker), "the log shows all that was written")


@contextmanager
def channel_of(broker: Broker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        connection.close()


def publish(channel: BlockingChannel, queue: str, bodies: Sequence[bytes]) -> None:
    """Each message is a batch of its own: its confirm is waited for."""
    for body in bodies:
        channel.basic_publish("", queue, body, PERSISTENT)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
