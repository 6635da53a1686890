"""Consumers of a round: over AMQP, with SQL, and through sessions in processes of their own, which can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pika
import psycopg
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from tests.crash.broker_process import ROOT
from tests.postgres.faults.ledger import Ledger
from tests.postgres.faults.publishers import Actor, close, declare

EVENTS_S = 0.05
IDLE_S = 0.05
EXIT_S = 60.0


class AmqpConsumer(Actor):
    def __init__(self, name: str, ledger: Ledger, seed: int, url: str, queue: str, prefetch: int) -> None:
        super().__init__(name, ledger, seed)
        self._url = url
        self._queue = queue
        self._prefetch = prefetch
        self._last_tag = 0
        self._unsettled_count = 0

    def work(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        try:
            channel = connection.channel()
            declare(channel, [self._queue])
            self._unsettled_count = 0
            channel.basic_qos(prefetch_count=self._prefetch)
            channel.basic_consume(self._queue, self._take)
            while not self.stopping.is_set():
                seen_count = self._unsettled_count
                connection.process_data_events(EVENTS_S)
                if channel.is_open and (self._unsettled_count == seen_count or seen_count >= self._prefetch // 2):
                    self._settle(channel)
                if channel.is_closed:
                    # The broker has closed it; so it does while PostgreSQL cannot be asked.
                    return
        finally:
            close(connection)

    def _take(self, channel: BlockingChannel, method: Basic.Deliver, _: BasicProperties, body: bytes) -> None:
        if not self.stopping.is_set():
            self.ledger.got(self.name, self._queue, body)
            self._last_tag = method.delivery_tag
            self._unsettled_count += 1

    def _settle(self, channel: BlockingChannel) -> None:
        """Late, and all at once: a broker that is killed has some out."""
        if self._unsettled_count:
            channel.basic_ack(self._last_tag, multiple=True)
            self._unsettled_count = 0


class SqlConsumer(Actor):
    """Reserves with a lease and finalizes; or does both in one transaction, which it sometimes takes back."""

    def __init__(self, name: str, ledger: Ledger, seed: int, url: str, queue: str, lease_s: float) -> None:
        super().__init__(name, ledger, seed)
        self._url = url
        self._queue = queue
        self._lease_s = lease_s

    def work(self) -> None:
        with psycopg.connect(self._url, autocommit=True, application_name=f"plain sql {self.name}") as connection:
            connection.execute("SELECT penstock.use_queue(%s)", (self._queue,))
            while not self.stopping.is_set():
                step = self.random.choice((self._in_two_steps, self._in_a_transaction))
                if not step(connection):
                    self.stopping.wait(IDLE_S)

    def _reserve(self, connection: psycopg.Connection[tuple[object, ...]]) -> list[tuple[int, bytes]]:
        found = connection.execute(
            "SELECT id, payload FROM penstock.reserve(%s, %s, lease => make_interval(secs => %s))",
            (self._queue, self.random.choice((1, 3)), self._lease_s),
        )
        return [(int(str(id)), payload) for id, payload in found.fetchall() if isinstance(payload, bytes)]

    def _in_two_steps(self, connection: psycopg.Connection[tuple[object, ...]]) -> bool:
        rows = self._reserve(connection)
        for id, payload in rows:
            self.ledger.got(self.name, self._queue, payload)
            # It may have taken us longer than the lease.
            with suppress(psycopg.errors.NoDataFound):
                connection.execute("SELECT penstock.finalize(%s, %s, 'by sql')", (self._queue, id))
        return bool(rows)

    def _in_a_transaction(self, connection: psycopg.Connection[tuple[object, ...]]) -> bool:
        connection.autocommit = False
        rows = self._reserve(connection)
        for id, _ in rows:
            connection.execute("SELECT penstock.finalize(%s, %s, 'in a transaction')", (self._queue, id))
        if self.random.random() < 0.2:
            connection.rollback()
            rows = []
        try:
            connection.commit()
        except psycopg.OperationalError:
            for _, payload in rows:
                self.ledger.got(self.name, self._queue, payload, is_sure=False)
            raise
        connection.autocommit = True
        for _, payload in rows:
            self.ledger.got(self.name, self._queue, payload)
        return bool(rows)


class SessionProcess:
    """A process that consumes queues through a session, and writes what it gets into a file."""

    def __init__(self, name: str, url: str, log: Path, lease_s: float, queues: Sequence[str]) -> None:
        self.name = name
        self.log = log
        self._command = [sys.executable, "-m", "tests.postgres.faults.session_consumer", url, str(log), str(lease_s)]
        self._command += queues
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def restart_after_kill(self) -> None:
        self.kill()
        self._process = self._started()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(EXIT_S)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """A clean stop; the exit code."""
        self._process.terminate()
        return self._process.wait(EXIT_S)
