"""A broker, its clients, and small ways to look at queues; for the tests of features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, NackError, UnroutableError

from penstock.config import Config
from penstock.queues.queue import Queue
from penstock.server.server import Server
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.brokers import check_health

# Far enough away that no test lives to see it.
FAR_MS = 3_600_000


class Stage:
    """One broker and its clients."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._connections: list[pika.BlockingConnection] = []

    def channel(self, confirms: bool = True, heartbeat: int | None = None) -> BlockingChannel:
        """On a connection of its own."""
        parameters = pika.URLParameters(self.broker.url)
        if heartbeat is not None:
            parameters.heartbeat = heartbeat
        connection = pika.BlockingConnection(parameters)
        self._connections.append(connection)
        channel = connection.channel()
        if confirms:
            channel.confirm_delivery()
        return channel

    def close_clients(self) -> None:
        connections, self._connections = self._connections, []
        for connection in connections:
            with suppress(AMQPError):
                connection.close()

    def stop_and_start(self) -> None:
        self.close_clients()
        self.broker.stop()
        self.broker.start()

    def kill_and_start(self) -> None:
        self.broker.kill()
        self.close_clients()
        self.broker.start()

    def look(self, work: Callable[[Server], Any]) -> Any:
        return self.broker.call(work)

    def queue(self, name: str, read: Callable[[Queue], Any]) -> Any:
        """Read something of a queue, on the broker's thread; companions are found too."""

        def work(server: Server) -> Any:
            vhost = server.broker.vhosts["/"]
            # An empty queue is false.
            return read(vhost.queues[name] if name in vhost.queues else vhost.companions.queues[name])

        return self.broker.call(work)

    def companion_names(self) -> list[str]:
        return sorted(self.broker.call(lambda server: list(server.broker.vhosts["/"].companions.queues)))

    def held_count(self, kind: str, owner: str) -> int:
        """Messages in a companion; 0 when there is none."""

        def work(server: Server) -> int:
            found = server.broker.vhosts["/"].companions.find(kind, owner)
            return 0 if found is None else found.backing.depth()

        return self.broker.call(work)


@contextmanager
def on_stage(data_dir: Path | None = None, **settings: Any) -> Iterator[Stage]:
    config = Config(**{"login_refused_delay_s": 0.0, **settings})
    with Broker(config, data_dir=data_dir) as broker:
        stage = Stage(broker)
        try:
            yield stage
            check_health(broker)
            stage.look(_check_companions)
        finally:
            stage.close_clients()


def _check_companions(server: Server) -> None:
    for vhost in server.broker.vhosts.values():
        for queue in vhost.all_queues():
            queue.backing.check_invariants()
            if queue.selection is not None:
                queue.selection.check_invariants()


def persistent(**properties: Any) -> pika.BasicProperties:
    return pika.BasicProperties(delivery_mode=2, **properties)


def headed(persist: bool = True, **headers: Any) -> pika.BasicProperties:
    """Underscores for dashes: x_delay is x-delay."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return pika.BasicProperties(delivery_mode=2 if persist else 1, headers=named)


def publish(channel: BlockingChannel, queue: str, *bodies: bytes, **properties: Any) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, persistent(**properties))


def is_taken(channel: BlockingChannel, exchange: str, key: str, body: bytes, properties: Any = None) -> bool:
    """Publish with a confirm; False for a nack."""
    try:
        channel.basic_publish(exchange, key, body, properties or persistent())
    except NackError:
        return False
    return True


def is_returned(channel: BlockingChannel, exchange: str, key: str, properties: Any = None) -> bool:
    try:
        channel.basic_publish(exchange, key, b"mandatory", properties or persistent(), mandatory=True)
    except UnroutableError:
        return True
    return False


def declare(channel: BlockingChannel, name: str, durable: bool = True, **arguments: Any) -> None:
    """Arguments with underscores for dashes: x_message_ttl is x-message-ttl."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    channel.queue_declare(name, durable=durable, arguments=named)


def ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def wait_for_ready(channel: BlockingChannel, queue: str, count: int) -> None:
    wait_until(lambda: ready(channel, queue) == count, f"{count} messages ready in {queue}")


def take(channel: BlockingChannel, queue: str, ack: bool = True) -> tuple[Any, pika.BasicProperties, bytes]:
    """The next message, waited for."""
    found: list[Any] = []

    def look() -> bool:
        found[:] = channel.basic_get(queue, auto_ack=ack)
        return found[0] is not None

    wait_until(look, f"a message in {queue}")
    return found[0], found[1], found[2]


def drain(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Everything that is ready now."""
    bodies: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)


def drain_until(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """Everything, waited for until there were so many."""
    bodies: list[bytes] = []

    def look() -> bool:
        bodies.extend(drain(channel, queue))
        return len(bodies) >= count

    wait_until(look, f"{count} messages from {queue}, got {len(bodies)}")
    return bodies


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def deaths(properties: pika.BasicProperties) -> list[tuple[str, str, int]]:
    """(queue, reason, count) of each entry of x-death."""
    entries: Sequence[Any] = (properties.headers or {}).get("x-death", [])
    return [(entry["queue"], entry["reason"], entry["count"]) for entry in entries]
