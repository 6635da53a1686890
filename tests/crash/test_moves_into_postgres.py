"""Nodes that are killed with -9 and a PostgreSQL that crashes, while confirmed messages move from the one to the other.

Messages expire, are delayed and are rejected; all of them end in a queue in PostgreSQL. A round kills the node or the
database at random moments; in the end everything that was confirmed is in the table.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pika
import psycopg
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from penstock.pg.embedded import EmbeddedPostgres
from tests.crash.broker_process import BrokerProcess
from tests.interop.deadline import wait_until
from tests.postgres_server import new_server
from tests.server.postgres_nodes import POSTGRES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # pika leaves sockets of connections that could not be made to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CYCLES = 6
LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "pg"}
# Name → arguments of a queue whose messages die into PostgreSQL.
MORTAL: dict[str, dict[str, Any]] = {
    "expiring": {**LETTERS, "x-message-ttl": 5},
    "expiring with priorities": {**LETTERS, "x-message-ttl": 5, "x-max-priority": 3},
    "short": {**LETTERS, "x-max-length": 2},
    "at least once": {**LETTERS, "x-message-ttl": 5, "x-dead-letter-strategy": "at-least-once"},
    "rejected": LETTERS,
}


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    server = new_server({"synchronous_commit": "on", "fsync": "on"})
    yield server
    server.remove()


class Publisher(threading.Thread):
    """Publishes with confirms to a broker that comes and goes, and knows what was confirmed."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.port = 0
        self.confirmed: set[bytes] = set()
        self.is_stopping = threading.Event()
        self._number = 0

    def run(self) -> None:
        while not self.is_stopping.is_set():
            # The broker may be away.
            with contextlib.suppress(AMQPError, OSError):
                self._session()

    def _session(self) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port, heartbeat=0))
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.is_stopping.is_set():
            self._number += 1
            body = b"%d" % self._number
            way = self._number % (len(MORTAL) + 1)
            if way == len(MORTAL):
                properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": self._number % 7})
                channel.basic_publish("late", "", body, properties)
            else:
                properties = pika.BasicProperties(delivery_mode=2, priority=self._number % 4)
                channel.basic_publish("", list(MORTAL)[way], body, properties)
            self.confirmed.add(body)
            if way == 4:
                reject_one(channel)
        connection.close()


def reject_one(channel: BlockingChannel) -> None:
    method, _, _ = channel.basic_get("rejected")
    if method is not None:
        channel.basic_reject(method.delivery_tag, requeue=False)


def declare_all(port: int) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.queue_declare("pg", durable=True, arguments=POSTGRES)
    for name, arguments in MORTAL.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
    channel.exchange_declare("late", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.queue_bind("pg", "late")
    connection.close()


def left_in(port: int, names: tuple[str, ...]) -> set[bytes]:
    """What is still in queues of the node, and would go on by itself, or when a consumer rejects it again."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    found: set[bytes] = set()
    for name in names:
        while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
            found.add(got[2])
    connection.close()
    return found


@pytest.mark.parametrize("seed", range(2))
def test_what_was_confirmed_is_in_the_table_whoever_is_killed(
    server: EmbeddedPostgres, tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    publisher = Publisher()

    def start(life: int) -> BrokerProcess:
        arguments = ("--postgres", server.url)
        broker = BrokerProcess(tmp_path / "data", tmp_path / f"{life}.log", arguments).wait_until_ready()
        publisher.port = broker.port
        return broker

    broker = start(0)
    try:
        declare_all(broker.port)
        publisher.start()
        for life in range(1, CYCLES + 1):
            before = len(publisher.confirmed)
            wait_until(lambda before=before: len(publisher.confirmed) > before + 60, "messages are confirmed")
            way = rng.choice(("node", "database", "node, then database", "database, then node"))
            if way != "node":
                server.stop("immediate")
                if way == "database, then node":
                    broker.runs_for(rng.random())
                    broker.kill()
                server.start()
            if way.startswith("node"):
                broker.kill()
            if way != "database":
                broker = start(life)
        publisher.is_stopping.set()
        publisher.join(60)
        assert not publisher.is_alive()
        kept = left_in(broker.port, ("short", "rejected"))

        def missing() -> set[bytes]:
            with psycopg.connect(server.url, autocommit=True) as sql:
                rows = sql.execute("SELECT payload FROM penstock.messages").fetchall()
            return publisher.confirmed - {row[0] for row in rows} - kept

        wait_until(lambda: not missing(), f"all confirmed messages are there, missing {sorted(missing())[:5]}")
        assert len(publisher.confirmed) > 60 * CYCLES
    finally:
        publisher.is_stopping.set()
        broker.kill()
