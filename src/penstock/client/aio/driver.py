"""The contract between a session and what it speaks to: PostgreSQL, an AMQP broker, or an engine in a folder.

A driver is chosen by the URL's scheme. Sessions, producers and consumers check arguments, turn names into drivers and
hand out `Message`s; drivers move them. `tests/client` has one suite that every driver passes.

Life of a message: put -> ready (or scheduled, then ready) -> reserve -> reserved -> finalize, or requeue, or bury
-> kick -> ready.

Promises
  1. `put` returns when the message is as safe as the other side makes it (COMMIT, confirm, sync). If it raises, the
     message may be there all the same: the commit or confirm may have been lost on the way.
  2. A reserved message is given to no other consumer until it is requeued, its consumer is gone, or its lease has run
     out.
  3. `finalize`, `requeue`, `bury`, `touch` answer with the ids that were this consumer's; others are left out.
  4. `reserve` waits until its deadline, not until its first disappointment. A deadline is a value of the driver's
     monotonic clock; `math.inf` = for ever. With a deadline in the past it looks once.
  5. A lost connection raises `ConnectionLost`; the next call tries to connect again. Another consumer may have what was
     reserved by then.
  6. Closing twice is harmless; using what was closed raises `Closed`.

This file and its siblings are the source of both faces: tools/unasync.py writes `client/sync` from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from penstock.client.message import Message, QueueStats


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a consumer wants its messages."""

    # Seconds after which a reservation ends by itself; None = when the consumer is gone.
    lease_s: float | None = 900.0
    # Messages that may be fetched ahead (AMQP). They are not counted as reserved until `reserve` returns them.
    prefetch: int = 1


class AsyncProducerDriver(ABC):
    """Puts messages onto one queue."""

    @abstractmethod
    async def put(self, payloads: Sequence[bytes], ready_at: datetime | None, ttl_s: float | None) -> list[str]:
        """Put messages, all of them or none; their ids, in order. `ready_at` is aware, None = now."""

    async def put_after(self, payloads: Sequence[bytes], delay_s: float, ttl_s: float | None) -> list[str]:
        """Put messages that are ready after a while. A driver whose other side has a clock of its own goes by that."""
        return await self.put(payloads, datetime.now(UTC) + timedelta(seconds=delay_s), ttl_s)

    async def put_one(
        self, queue: str, payload: bytes, ready_at: datetime | None, delay_s: float | None, ttl_s: float | None
    ) -> Message:
        """Put a message; what it is now. A driver whose other side shows it goes by that."""
        now = datetime.now(UTC)
        if delay_s:
            ids = await self.put_after([payload], delay_s, ttl_s)
            ready_at = now + timedelta(seconds=delay_s)
        else:
            ids = await self.put([payload], ready_at, ttl_s)
        is_later = ready_at is not None and ready_at > now
        return Message(ids[0], queue, payload, "scheduled" if is_later else "ready", 0, ready_at or now)

    @abstractmethod
    async def close(self) -> None:
        """Leave the queue."""


class AsyncConsumerDriver(ABC):
    """Takes messages from one queue."""

    @abstractmethod
    async def reserve(self, count: int, deadline_s: float) -> list[Message]:
        """Return up to `count` messages; at least one unless the deadline has come."""

    @abstractmethod
    async def finalize(self, ids: Sequence[str], note: str | None) -> list[str]:
        """Remove reserved messages for good, into the history where there is one."""

    async def finalize_one(self, message: Message, note: str | None) -> Message | None:
        """Finalize a message; what it is now, or None when it is not this consumer's."""
        if not await self.finalize([message.id], note):
            return None
        return replace(message, state="finalized", finalized_at=datetime.now(UTC), finalized_note=note)

    @abstractmethod
    async def finalize_and_reserve(self, ids: Sequence[str], note: str | None, count: int) -> list[Message]:
        """Finalize these, and reserve the next without waiting: in one round trip where that is possible.

        Raises `NotReserved`, and reserves nothing, when one of them is not this consumer's.
        """

    @abstractmethod
    async def requeue(self, ids: Sequence[str], delay_s: float | None, note: str | None) -> list[str]:
        """Give messages back, at once or after a while."""

    @abstractmethod
    async def bury(self, ids: Sequence[str], note: str | None) -> list[str]:
        """Put messages aside until they are kicked."""

    @abstractmethod
    async def kick(self, count: int) -> int:
        """Make up to `count` buried messages ready, oldest first; how many there were."""

    @abstractmethod
    async def touch(self, ids: Sequence[str], lease_s: float) -> list[str]:
        """Have reservations last so much longer from now on."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the queue; what is reserved goes back."""


class AsyncDriver(ABC):
    """What a session speaks through."""

    # Whether finalized messages, with their notes, can be read again.
    has_history: bool = False
    # Whether cron slots are told apart: of all who put the same slot, one does.
    has_slots: bool = False

    @abstractmethod
    async def open(self) -> None:
        """Connect. Raises `ConnectionLost` or `SetupMissing` with words that say what to do."""

    @abstractmethod
    async def close(self) -> None:
        """Close everything, producers and consumers too."""

    @abstractmethod
    async def use_queue(self, queue: str, ordering: str | None) -> None:
        """Make the queue if it is not there. `ordering`: "fuzzy" or "strict"; None = as it is."""

    @abstractmethod
    async def drop_queue(self, queue: str) -> bool:
        """Remove the queue and its messages; False when there was none."""

    @abstractmethod
    async def queues(self) -> list[str]:
        """Return names of queues; an AMQP broker does not tell, so there only those that this session has used."""

    @abstractmethod
    async def stats(self, queue: str) -> QueueStats:
        """Counts as they are now."""

    @abstractmethod
    async def history(self, queue: str, limit: int) -> list[Message]:
        """Return the last finalized messages, newest first; empty where there is no history."""

    @abstractmethod
    async def put_at_slot(self, schedule: str, slot: datetime, queue: str, payload: bytes) -> str | None:
        """Put a message unless one was put for this slot of the schedule, or a later one; return its id or None."""

    @abstractmethod
    async def producer(self, queue: str) -> AsyncProducerDriver:
        """Attach a producer; the queue is made if need be."""

    @abstractmethod
    async def consumer(self, queue: str, options: ConsumerOptions) -> AsyncConsumerDriver:
        """Attach a consumer; the queue is made if need be."""

    @abstractmethod
    async def wait_any(self, consumers: Sequence[AsyncConsumerDriver], deadline_s: float) -> None:
        """Wait until one of them may have something to reserve, or the deadline has come."""
