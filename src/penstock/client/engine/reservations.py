"""The engine's consumers, their reservations, and the leases that end them.

All of it is in RAM. Under the engine a reserved message is one that was fetched and not acked, so after a crash
everything that was reserved is ready again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from penstock.client.engine.records import Handed
from penstock.message import Envelope
from penstock.queues.queue import Queue

CROWDED_MIN: Final = 256


@dataclass(slots=True, eq=False)
class Reservation:
    id: str
    queue: Queue
    seq_id: int
    envelope: Envelope
    # With its FRAME-END, as it is stored.
    body: bytes
    # Wall-clock milliseconds; -1 = it does not expire.
    expires_ms: int
    handed: Handed
    holder: Holder
    # Monotonic seconds; None = until the holder is gone.
    until_s: float | None
    is_over: bool = False


@dataclass(slots=True, eq=False)
class Holder:
    """A consumer as the engine knows it."""

    number: int
    # As the API calls the queue.
    queue_name: str
    lease_s: float | None
    reserved: dict[str, Reservation] = field(default_factory=dict)


@dataclass(slots=True)
class Seen:
    """What is remembered of a message that came back to its own place: there nothing can be written to it."""

    deliveries: int
    note: str | None


class Leases:
    """Reservations by the time at which they end."""

    def __init__(self) -> None:
        # (until, number, reservation); an entry whose time is not its reservation's any more is stale.
        self._heap: list[tuple[float, int, Reservation]] = []
        self._number = 0
        # With so many entries the stale ones are looked for: they lie minutes ahead, and hold on to payloads.
        self._crowded = CROWDED_MIN

    def add(self, reservation: Reservation) -> None:
        """It ends at its `until_s`, which is new."""
        if reservation.until_s is None:
            return
        self._number += 1
        heappush(self._heap, (reservation.until_s, self._number, reservation))
        if len(self._heap) >= self._crowded:
            self._heap = [entry for entry in self._heap if not _is_stale(entry)]
            heapify(self._heap)
            self._crowded = max(CROWDED_MIN, 2 * len(self._heap))

    def __len__(self) -> int:
        """Entries that are kept, stale ones included."""
        return len(self._heap)

    def next_s(self) -> float | None:
        """When the next one ends."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def ended(self, now_s: float) -> list[Reservation]:
        """Return those whose time has come; they are forgotten here."""
        found: list[Reservation] = []
        while True:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now_s:
                return found
            found.append(heappop(self._heap)[2])

    def _drop_stale(self) -> None:
        while self._heap and _is_stale(self._heap[0]):
            heappop(self._heap)


def _is_stale(entry: tuple[float, int, Reservation]) -> bool:
    return entry[2].is_over or entry[2].until_s != entry[0]
