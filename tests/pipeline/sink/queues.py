"""Queues of a broker as the tests of publishing see them: made and read with pika."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

DEDUP_ARGUMENTS = {"x-message-deduplication": True, "x-cache-size": 100_000}


@contextmanager
def channel_to(url: str) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def declare(url: str, queue: str, **arguments: Any) -> None:
    """A durable queue."""
    with channel_to(url) as channel:
        channel.queue_declare(queue, durable=True, arguments={**arguments})


def declare_dedup(url: str, queue: str) -> None:
    declare(url, queue, **DEDUP_ARGUMENTS)


def take_all(url: str, queue: str) -> list[tuple[Any, Any, bytes]]:
    """Everything that is ready, with method and properties; it is gone from the queue then."""
    found = []
    with channel_to(url) as channel:
        channel.basic_qos(prefetch_count=500)
        count = channel.queue_declare(queue, passive=True).method.message_count
        if count == 0:
            return []
        for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=60):
            assert method is not None, f"{queue} had {count} messages and gave {len(found)}"
            found.append((method, properties, body))
            if len(found) == count:
                break
        channel.cancel()
    return found


def bodies(url: str, queue: str) -> list[bytes]:
    return [body for _, _, body in take_all(url, queue)]
