"""A queue whose clock the test moves, whose consumers note what they are told, and whose owner notes who left."""

from __future__ import annotations

from penstock.backing.backing_queue import BackingQueue
from penstock.backing.volatile import VolatileBackingQueue
from penstock.clock import ManualClock
from penstock.message import ConfirmToken, Envelope, Incoming, Run, body_bytes
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.queue import Queue
from penstock.queues.queue_owner import QueueOwner


class Inbox(Consumer):
    """Counts how often it is told of work, and whether it was cancelled."""

    def __init__(
        self,
        tag: str = "c",
        priority: int = 0,
        acquires: bool = True,
        no_ack: bool = False,
        exclusive: bool = False,
    ) -> None:
        super().__init__(tag, priority, acquires, no_ack, exclusive)
        self.told = 0
        self.cancelled = 0

    def notify_work(self) -> None:
        self.told += 1

    def cancelled_by_queue(self) -> None:
        self.cancelled += 1


class Landlord(QueueOwner):
    """Notes the queues that have lost their last consumer."""

    def __init__(self) -> None:
        self.deserted: list[str] = []

    def open_backing(self, queue: Queue) -> BackingQueue:
        raise AssertionError("it has one")

    def last_consumer_gone(self, queue: Queue) -> None:
        self.deserted.append(queue.name)


class Token(ConfirmToken):
    """Notes that it was completed."""

    __slots__ = ("completed",)

    def __init__(self, waiting: int = 1) -> None:
        super().__init__(waiting)
        self.completed = 0

    def complete(self) -> None:
        self.completed += 1


class House:
    """One queue and what it lives in, with short ways to publish and to read."""

    def __init__(self, expiries: ExpirySchedule | None = None) -> None:
        self.clock = ManualClock()
        self.expiries = expiries or ExpirySchedule()
        self.landlord = Landlord()
        self.backing = VolatileBackingQueue()
        self.queue = Queue("q", "/", False, False, None, {}, self.backing, self.clock, self.expiries, self.landlord)

    def publish(self, *texts: str, expiration_ms: int = -1, confirm: ConfirmToken | None = None) -> None:
        """A run of messages."""
        envelope = Envelope("", "q", b"\x00\x00", expiration_ms=expiration_ms)
        self.queue.publish(Incoming(envelope, [text.encode() + b"\xce" for text in texts]), confirm)

    def consumer(self, inbox: Inbox | None = None, interested: bool = True) -> Inbox:
        inbox = inbox or Inbox()
        self.queue.add_consumer(inbox, interested)
        return inbox

    def pull(self, inbox: Inbox, count_max: int = 100) -> list[str]:
        run = self.queue.pull(inbox, count_max)
        return [] if run is None else texts_of(run)

    def pull_all(self, inbox: Inbox) -> list[str]:
        """Until there is nothing more for the consumer."""
        found: list[str] = []
        while pulled := self.pull(inbox):
            found += pulled
        return found

    def get(self) -> str | None:
        run = self.queue.get(True)
        return None if run is None else texts_of(run)[0]

    def pass_ms(self, milliseconds: int) -> None:
        """Time passes, and nobody looks."""
        self.clock.advance(milliseconds / 1000)

    def wake_up(self) -> None:
        """The server's timer fires."""
        self.expiries.run_due(self.clock.wall_ms())


def texts_of(run: Run) -> list[str]:
    return [body_bytes(body).decode() for _, body, _ in run.entries]


class Grasping(Inbox):
    """Takes what it can get, out of turn."""

    def __init__(self, house: House) -> None:
        super().__init__()
        self._house = house
        self.taken: list[str] = []

    def take_now(self) -> int:
        taken = self._house.pull(self)
        self.taken.extend(taken)
        return len(taken)
