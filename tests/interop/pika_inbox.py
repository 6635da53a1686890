"""What a pika blocking consumer received, in order of arrival, and small ways to read a queue."""

from __future__ import annotations

from typing import Any

from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from tests.interop.deadline import wait_until


class Inbox:
    """A consumer callback that keeps every delivery."""

    def __init__(self) -> None:
        self.deliveries: list[tuple[Basic.Deliver, BasicProperties, bytes]] = []

    def __call__(
        self, channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        self.deliveries.append((method, properties, body))

    def __len__(self) -> int:
        return len(self.deliveries)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.deliveries]

    @property
    def tags(self) -> list[int]:
        return [method.delivery_tag for method, _, _ in self.deliveries]

    @property
    def redelivered(self) -> list[bool]:
        return [method.redelivered for method, _, _ in self.deliveries]

    def wait_for(self, channel: BlockingChannel, count: int) -> None:
        """Serve the channel's connection until at least `count` deliveries came."""
        wait_until(
            lambda: len(self) >= count,
            f"{count} deliveries (got {len(self)})",
            lambda: channel.connection.process_data_events(time_limit=0.05),
        )


def publish_all(channel: BlockingChannel, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body)


def ready_count(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def wait_for_ready(channel: BlockingChannel, queue: str, count: int) -> None:
    """Wait until the queue holds `count` ready messages: requeues and expiry are not synchronous."""
    wait_until(lambda: ready_count(channel, queue) == count, f"{count} ready messages in {queue}")


def get_one(channel: BlockingChannel, queue: str, **kwargs: Any) -> tuple[Any, BasicProperties, bytes]:
    """basic.get that waits until there is a message: an unconfirmed publish may still be under way."""
    found: list[Any] = []

    def look() -> bool:
        method, properties, body = channel.basic_get(queue, **kwargs)
        if method is not None:
            found.extend((method, properties, body))
        return bool(found)

    wait_until(look, f"a message in {queue}")
    return found[0], found[1], found[2]
