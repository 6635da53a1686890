"""Messages that were published to a real broker, for the tests of what brings them back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pika

from penstock.history.folder_log import FolderLog
from penstock.testing import Broker
from tests.pipeline.sink.queues import channel_to
from tests.postgres_server import wait_until


def send(broker: Broker, queue: str, bodies: Iterable[bytes], exchange: str = "", **properties: Any) -> None:
    """Publish persistent messages and wait for their confirms."""
    with channel_to(broker.url) as channel:
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish(exchange, queue, body, pika.BasicProperties(delivery_mode=2, **properties))


def wait_for_events(data_dir: str, count: int) -> None:
    """Until so many events are known to be durable: those are what a reader sees."""
    log = FolderLog(data_dir)
    try:
        wait_until(lambda: log.state().end_lsn >= count, 60)
    finally:
        log.close()
