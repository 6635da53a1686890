"""A publisher and a reader for the disk tests: what was confirmed, what was refused, what is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pamqp import commands

from tests.crash.broker_process import BrokerProcess
from tests.crash.link import ANSWER_S, Confirm, Delivery
from tests.crash.messages import PERSISTENT, ack_frame, body_of, publish_frames

QUEUE = "ledger"


class Ledger:
    """One publisher with confirms, on the durable queue QUEUE. One thread may send while another takes the answers."""

    def __init__(self, broker: BrokerProcess, name: str = "p") -> None:
        self._name = name
        self._tag = 0
        self._open: dict[int, str] = {}
        self._open_lock = threading.Lock()
        self.confirmed: list[str] = []
        self.refused: list[str] = []
        self.link = broker.connect()
        self.link.call(commands.Queue.Declare(0, QUEUE, durable=True), commands.Queue.DeclareOk)
        self.link.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    @property
    def open_count(self) -> int:
        """Publishes without an answer."""
        return len(self._open)

    def send(self, count: int, size: int = 500) -> None:
        frames: list[bytes] = []
        with self._open_lock:
            for _ in range(count):
                self._tag += 1
                message_id = f"{self._name}-{self._tag}"
                self._open[self._tag] = message_id
                frames.append(publish_frames("", QUEUE, message_id, 0, PERSISTENT, body_of(message_id, size)))
        self.link.send(b"".join(frames))

    def take_answers(self, timeout_s: float = 0.05) -> None:
        for event in self.link.take(timeout_s):
            assert isinstance(event, Confirm), event
            with self._open_lock:
                tags = [tag for tag in self._open if tag <= event.tag] if event.multiple else [event.tag]
                assert tags, f"{event} answers nothing that is open"
                (self.confirmed if event.is_ack else self.refused).extend([self._open.pop(tag) for tag in tags])

    def publish(self, count: int, size: int = 500) -> None:
        """Return when all are answered."""
        self.send(count, size)
        self.wait_until(lambda: not self._open, "all publishes are answered")

    def publish_until(self, condition: Callable[[], bool], what: str, size: int = 500) -> None:
        """Publish in groups, each after the answers to the one before; stop as soon as it is so."""
        deadline = time.monotonic() + ANSWER_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {ANSWER_S} s: {what}"
            if not self._open:
                self.send(10, size)
            self.take_answers()

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = ANSWER_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
            self.take_answers()


class Reader:
    """A consumer of QUEUE, which acknowledges everything unless it is told not to."""

    def __init__(self, broker: BrokerProcess, acknowledges: bool = True) -> None:
        self._acknowledges = acknowledges
        self.link = broker.connect()
        self.ids: list[str] = []
        self.redelivered: list[str] = []
        self.link.call(commands.Basic.Qos(0, 200), commands.Basic.QosOk)
        self.link.call(commands.Basic.Consume(0, QUEUE, QUEUE), commands.Basic.ConsumeOk)

    def take(self, timeout_s: float = 0.05) -> int:
        """How many came."""
        events = self.link.take(timeout_s)
        for event in events:
            assert isinstance(event, Delivery), event
            assert event.message_id.startswith("p"), event
            self.ids.append(event.message_id)
            if event.redelivered:
                self.redelivered.append(event.message_id)
        if events and self._acknowledges:
            self.link.send(ack_frame(events[-1].tag, True))
        return len(events)

    def take_at_least(self, count: int) -> None:
        deadline = time.monotonic() + ANSWER_S
        while len(self.ids) < count:
            assert time.monotonic() < deadline, f"{len(self.ids)} of {count} came within {ANSWER_S} s"
            self.take()

    def take_all(self) -> list[str]:
        """Everything that is in the queue; nobody else consumes from it."""
        while True:
            while self.take():
                pass
            if self._count() == 0 and not self.link.has_events:
                return self.ids

    def _count(self) -> int:
        method = commands.Queue.Declare(0, QUEUE, durable=True, passive=True)
        return int(self.link.call(method, commands.Queue.DeclareOk).message_count)


def everything_in(broker: BrokerProcess) -> list[str]:
    """Take all messages of the queue and acknowledge them, to the end."""
    reader = Reader(broker)
    ids = reader.take_all()
    reader.link.close()
    return ids
