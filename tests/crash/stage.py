"""What the clients of the crash tests share: where the broker is, what is wanted of them, and how far they are."""

from __future__ import annotations

import threading
import time
import traceback
from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.crash.history import History
from tests.crash.link import Link, LinkLost

# Deliveries that may be owed before publishers wait: a round must end, and must fit on the disk.
BACKLOG_MAX = 40_000

FANOUT = "fan"
FAN_QUEUES = ("fan.0", "fan.1", "fan.2")
SINGLE_QUEUES = ("single.0", "single.1")
TX_QUEUES = ("tx.0", "tx.1")
PRIORITY_QUEUE = "priority"
PRIORITY_MAX = 4
SOURCE_QUEUE = "source"
TARGET_QUEUE = "target"
QUEUES = (*FAN_QUEUES, *SINGLE_QUEUES, *TX_QUEUES, PRIORITY_QUEUE, SOURCE_QUEUE, TARGET_QUEUE)


class Place(NamedTuple):
    """A broker that runs."""

    incarnation: int
    port: int


class Stage:
    """Clients ask it what to do; the driver tells it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._place: Place | None = None
        self.publishers_finish = False
        self.consumers_finish = False
        # Consumers take nothing for a while, so that queues grow.
        self.consumers_rest = False
        # Publishers send little and wait for each answer: then they know of a confirm as soon as they can.
        self.publishers_wait = False
        # Clients may leave without a word.
        self.clients_vanish = True
        self.failures: list[str] = []
        # By client; their difference is about what is in the queues.
        self.published: dict[str, int] = {}
        self.settled: dict[str, int] = {}

    def broker_is_up(self, place: Place) -> None:
        with self._changed:
            self._place = place
            self._changed.notify_all()

    def broker_is_down(self) -> None:
        with self._changed:
            self._place = None

    def finish(self, publishers: bool = False, consumers: bool = False) -> None:
        with self._changed:
            self.publishers_finish |= publishers
            self.consumers_finish |= consumers
            self._changed.notify_all()

    def is_on(self, place: Place) -> bool:
        return self._place == place

    def wait(self, timeout_s: float) -> None:
        """For a change, or for the time to pass."""
        with self._changed:
            self._changed.wait(timeout_s)

    def wait_for_broker(self) -> Place | None:
        """None when there is none now; ask again."""
        with self._changed:
            if self._place is None:
                self._changed.wait(0.05)
            return self._place

    @property
    def is_full(self) -> bool:
        return sum(self.published.values()) - sum(self.settled.values()) > BACKLOG_MAX


class CrashClient(threading.Thread, ABC):
    """Has sessions with the broker, one after the other, until it is told to finish."""

    def __init__(self, name: str, stage: Stage, folder: Path, rng: Random) -> None:
        super().__init__(name=name, daemon=True)
        self.stage = stage
        self.rng = rng
        self.history = History(folder, name)
        self.session = 0
        self.place = Place(-1, 0)

    def run(self) -> None:
        try:
            while not self.is_finished():
                place = self.stage.wait_for_broker()
                if place is not None:
                    self._one_session(place)
        except BaseException:
            self.stage.failures.append(f"{self.name}:\n{traceback.format_exc()}")
        finally:
            self.history.close()

    def _one_session(self, place: Place) -> None:
        self.place = place
        self.session += 1
        link: Link | None = None
        try:
            link = Link(place.port)
            self.talk(link)
        except LinkLost as lost:
            if link is not None:
                self.take_last(link)
                link.drop()
                if not self.stage.clients_vanish and not link.was_told:
                    # The broker stops, and a client that takes seconds to read what it was sent is cut.
                    self.add("info dropped")
            self.add("info lost", str(lost))
            # The broker is on its way down: not a connection attempt in each millisecond.
            self.stage.wait(0.01)

    def add(self, kind: str, *details: object) -> None:
        self.history.add(kind, self.place.incarnation, self.session, *details)

    def check_place(self) -> None:
        """For clients that do not look at their socket for a while."""
        if not self.stage.is_on(self.place):
            raise LinkLost("the broker went away while nothing was read")

    def finish_session(self, link: Link) -> None:
        for event in link.close():
            self.take_event(event)
        self.add("ok closed")

    def take_last(self, link: Link) -> None:
        for event in link.leftovers():
            self.take_event(event)

    @abstractmethod
    def is_finished(self) -> bool: ...

    @abstractmethod
    def talk(self, link: Link) -> None:
        """One session."""

    @abstractmethod
    def take_event(self, event: object) -> None:
        """Note what the broker sent."""


def wait_for_threads(stage: Stage, threads: list[CrashClient], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            stage.failures.append(f"{thread.name} did not finish within {timeout_s} s")
