"""Publishers of a round: over AMQP with confirms, through sessions, and with SQL in transactions of their own.

Each writes down what it is about to put, and then what it knows of it. Nothing is put twice: what was not answered
stays unknown.
"""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

import pika
import pika.exceptions
import psycopg
from pika.adapters.blocking_connection import BlockingChannel

import penstock
from penstock.client.errors import ConnectionLost
from tests.postgres.faults.ledger import Ledger

POSTGRES = {"x-backing": "postgres"}
# Between two messages of a publisher.
PAUSE_S = 0.01
# After a connection was refused.
RETRY_S = 0.1
SIZES = (0,) + (10,) * 40 + (500,) * 5 + (40_000,)
ROLLED_BACK_SHARE = 0.3
# Now and then more than a consumer takes at once.
BATCHES = (1,) * 20 + (5,) * 5 + (300,)


class Actor(threading.Thread, ABC):
    """A client that works until it is told to stop, and connects again whenever it has to."""

    # What an actor may meet while things break.
    EXPECTED: tuple[type[Exception], ...] = (
        OSError,
        pika.exceptions.AMQPError,
        psycopg.OperationalError,
        ConnectionLost,
    )

    def __init__(self, name: str, ledger: Ledger, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.ledger = ledger
        self.random = random.Random(f"{seed} {name}")
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.work()
            except self.EXPECTED:
                self.stopping.wait(RETRY_S)
            except Exception as error:
                self.ledger.complain(f"{self.name}: {type(error).__name__}: {error}")
                self.stopping.wait(RETRY_S)

    @abstractmethod
    def work(self) -> None:
        """Connect, and work until the stop or an error."""

    def new(self, queue: str) -> bytes:
        return self.ledger.new(self.name, queue, self.random.choice(SIZES))


def close(connection: pika.BlockingConnection) -> None:
    with suppress(pika.exceptions.AMQPError, OSError):
        connection.close()


def declare(channel: BlockingChannel, queues: Sequence[str]) -> None:
    for queue in queues:
        channel.queue_declare(queue, durable=True, arguments=POSTGRES)


class AmqpPublisher(Actor):
    def __init__(self, name: str, ledger: Ledger, seed: int, url: str, queues: Sequence[str]) -> None:
        super().__init__(name, ledger, seed)
        self._url = url
        self._queues = queues

    def work(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        try:
            channel = connection.channel()
            declare(channel, self._queues)
            channel.confirm_delivery()
            while not self.stopping.wait(PAUSE_S):
                self._publish(channel)
        finally:
            close(connection)

    def _publish(self, channel: BlockingChannel) -> None:
        queue = self.random.choice(self._queues)
        payload = self.new(queue)
        # A nack says that nobody knows.
        with suppress(pika.exceptions.NackError):
            channel.basic_publish("", queue, payload, pika.BasicProperties(delivery_mode=2), mandatory=True)
            self.ledger.settle([payload], "acknowledged")


class SessionPublisher(Actor):
    def __init__(self, name: str, ledger: Ledger, seed: int, url: str, queues: Sequence[str]) -> None:
        super().__init__(name, ledger, seed)
        self._url = url
        self._queues = queues

    def work(self) -> None:
        with penstock.Session(self._url) as session:
            producers = {queue: session.producer_for(queue) for queue in self._queues}
            while not self.stopping.wait(PAUSE_S):
                queue = self.random.choice(self._queues)
                payloads = [self.new(queue) for _ in range(self.random.choice(BATCHES))]
                # The same session and producers go on after this.
                with suppress(ConnectionLost):
                    producers[queue].put_many(payloads)
                    self.ledger.settle(payloads, "acknowledged")


class SqlPublisher(Actor):
    """An application that puts messages in transactions of its own, some of which it takes back."""

    def __init__(self, name: str, ledger: Ledger, seed: int, url: str, queues: Sequence[str]) -> None:
        super().__init__(name, ledger, seed)
        self._url = url
        self._queues = queues

    def work(self) -> None:
        with psycopg.connect(self._url, application_name=f"plain sql {self.name}") as connection:
            while not self.stopping.wait(PAUSE_S):
                self._transaction(connection)

    def _transaction(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        payloads: list[bytes] = []
        try:
            for _ in range(self.random.choice((1, 2, 4))):
                queue = self.random.choice(self._queues)
                payloads.append(self.new(queue))
                connection.execute("SELECT penstock.put(%s, %s::bytea)", (queue, payloads[-1]))
            # Others put and commit meanwhile.
            self.stopping.wait(PAUSE_S * self.random.choice((0, 0, 5)))
            is_taken_back = self.random.random() < ROLLED_BACK_SHARE
            if is_taken_back:
                connection.rollback()
        except psycopg.Error:
            # Nobody has said COMMIT.
            self.ledger.settle(payloads, "rolled back")
            raise
        if is_taken_back:
            self.ledger.settle(payloads, "rolled back")
        else:
            connection.commit()
            self.ledger.settle(payloads, "acknowledged")
