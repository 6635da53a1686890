"""Databases and brokers for tests of queues in PostgreSQL, and what the tests look at in both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pika
import pika.exceptions
import psycopg
from pika.adapters.blocking_connection import BlockingChannel

from penstock.config import Config
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.brokers import check_health

POSTGRES = {"x-backing": "postgres"}
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Nodes:
    """Brokers on one database, with pika clients and a SQL connection."""

    def __init__(self, url: str, running: ExitStack) -> None:
        self.url = url
        self._running = running
        self.sql: psycopg.Connection[Any] = running.enter_context(psycopg.connect(url, autocommit=True))

    def start(self, checked: bool = True, **settings: Any) -> Broker:
        broker = Broker(Config(**{"login_refused_delay_s": 0.0, "postgres_url": self.url, **settings}))
        self._running.enter_context(broker)
        if checked:
            self._running.callback(lambda: check_health(broker) if broker.is_running else None)
        return broker

    def channel(self, broker: Broker) -> BlockingChannel:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        self._running.callback(_close, connection)
        return connection.channel()

    def value(self, query: str, *parameters: object) -> Any:
        row = self.sql.execute(query, parameters).fetchone()  # type: ignore[call-overload]
        return None if row is None else row[0]

    def publisher(self, broker: Broker) -> BlockingChannel:
        """A channel with confirms."""
        channel = self.channel(broker)
        channel.confirm_delivery()
        return channel

    def ready(self, queue: str) -> int:
        return int(self.value("SELECT penstock.count_ready(%s)", queue))

    def payloads(self, queue: str) -> list[bytes]:
        found = self.sql.execute("SELECT payload FROM penstock.browse(%s, 0, 10000, 100000000)", (queue,))
        return [row[0] for row in found]

    def wait_for_ready(self, queue: str, count: int) -> None:
        wait_until(lambda: self.ready(queue) == count, f"{count} messages are ready in {queue}")

    def wait_until_settled(self, queue: str) -> None:
        wait_until(
            lambda: (
                self.value(
                    "SELECT count(*) FROM penstock.messages m JOIN penstock.queues q ON q.id = m.queue_id"
                    " WHERE q.name = %s AND m.state = 1",
                    queue,
                )
                == 0
            ),
            f"nothing of {queue} is reserved",
        )


def _close(connection: pika.BlockingConnection) -> None:
    with suppress(pika.exceptions.AMQPError):
        connection.close()


@contextmanager
def nodes_on(url: str) -> Iterator[Nodes]:
    with ExitStack() as running:
        yield Nodes(url, running)
