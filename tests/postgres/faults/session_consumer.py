"""A consumer process: `python -m tests.postgres.faults.session_consumer URL LOG LEASE_S QUEUE…`; SIGTERM ends it.

Every message is written into the log before it is finalized: `got`, the queue and the payload, with tabs between them.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from types import FrameType

import penstock
from penstock.client.errors import ConnectionLost, NotReserved
from penstock.client.message import Message
from penstock.client.sync.consumer import Consumer

WAIT_S = 0.2
RETRY_S = 0.05


class SessionConsumer:
    """Takes from several queues in turn."""

    def __init__(self, url: str, log: str, lease_s: float, queues: list[str]) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._url = url
        self._lease_s = lease_s
        self._queues = queues
        self._is_stopping = False
        self._random = random.Random(os.getpid())
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True

    def run(self) -> None:
        while not self._is_stopping:
            try:
                self._work()
            except ConnectionLost:
                time.sleep(RETRY_S)
            except Exception as error:
                self._write(b"failed", "", f"{type(error).__name__}: {error}".encode())
                time.sleep(RETRY_S)

    def _work(self) -> None:
        with penstock.Session(self._url, name="fault") as session:
            consumers = [session.consumer_for(queue, lease=self._lease_s) for queue in self._queues]
            while not self._is_stopping:
                try:
                    are_busy = [self._take(consumer) for consumer in consumers]
                    if True not in are_busy:
                        session.wait_any(consumers, wait=WAIT_S)
                except ConnectionLost:
                    # The same session and consumers go on after this.
                    time.sleep(RETRY_S)

    def _take(self, consumer: Consumer) -> bool:
        message = consumer.reserve()
        is_busy = message is not None
        for _ in range(self._random.choice((0, 0, 10))):
            if message is None:
                break
            self._got(message)
            try:
                message = consumer.finalize_and_reserve(message)
            except NotReserved:
                return True
        if message is not None:
            self._got(message)
            try:
                consumer.finalize(message, "by a session")
            except NotReserved:
                return True
        return is_busy

    def _got(self, message: Message) -> None:
        self._write(b"got", message.queue, message.payload)

    def _write(self, kind: bytes, queue: str, payload: bytes) -> None:
        # One write: a line is there or is not, whenever we are killed.
        os.write(self._log, b"\t".join((kind, queue.encode(), payload.replace(b"\n", b" "))) + b"\n")


if __name__ == "__main__":
    SessionConsumer(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]).run()
