"""What a comparison has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

BROKER: Final = "broker"
POSTGRES: Final = "postgres"


@dataclass(frozen=True, slots=True)
class Difference:
    """A counter that does not say what was counted."""

    # BROKER or POSTGRES: who reports it.
    where: str
    vhost: str | None
    queue: str
    counter: str
    reported: int | None
    counted: int | None

    def __str__(self) -> str:
        name = self.queue if self.vhost is None else f"{self.queue} (vhost {self.vhost})"
        reported = "nothing" if self.reported is None else str(self.reported)
        counted = "nothing" if self.counted is None else str(self.counted)
        return f"{self.where}: {name}: {self.counter} is reported as {reported}, and counted {counted}"


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """All counters that were compared."""

    # The broker's counters hold at this LSN; None when no broker was asked.
    lsn: int | None = None
    queues: int = 0
    counters: int = 0
    differences: tuple[Difference, ...] = field(default_factory=tuple)
    # Whether the counters of PostgreSQL were set right afterwards.
    repaired: bool = False

    def and_also(self, other: Reconciliation) -> Reconciliation:
        return Reconciliation(
            self.lsn if other.lsn is None else other.lsn,
            self.queues + other.queues,
            self.counters + other.counters,
            (*self.differences, *other.differences),
            self.repaired or other.repaired,
        )

    @property
    def standing(self) -> int:
        """How many of the differences are still there."""
        return sum(1 for one in self.differences if not (self.repaired and one.where == POSTGRES))


def compare(where: str, vhost: str | None, queue: str, pairs: dict[str, tuple[Any, Any]]) -> list[Difference]:
    """Differences among (reported, counted), by the counter's name."""
    return [
        Difference(where, vhost, queue, counter, reported, counted)
        for counter, (reported, counted) in pairs.items()
        if reported != counted
    ]
