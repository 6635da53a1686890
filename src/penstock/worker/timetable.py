"""Cron entries and their next slots. Who puts a slot is decided by the session: of all workers, one.

Slots that passed while no worker ran are not made up for. When a worker was late for several slots of an entry, it
puts the last of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from penstock.clock import Clock
from penstock.worker.cron import Cron
from penstock.worker.jobs.allow_list import NotRunnable, Refused, Runnable, check_arguments
from penstock.worker.jobs.formats import Call, encode_call


@dataclass(frozen=True, slots=True)
class CronEntry:
    """A job without arguments, and when it is put onto which queue."""

    cron: Cron
    job: str
    queue: str

    def schedule(self, zone: tzinfo) -> str:
        """Return the name under which workers agree who puts a slot."""
        return f"{self.job} {self.cron.text} {zone}"

    def payload(self) -> bytes:
        return encode_call(self.job, (), {})


def entry_for(cron: Cron, runnable: Runnable, queue: str) -> CronEntry:
    """Return an entry for a job; `queue` if it has none of its own. Raises NotRunnable."""
    try:
        check_arguments(runnable, Call(runnable.name))
    except Refused as error:
        raise NotRunnable(f"cron calls jobs without arguments, but {error}") from error
    return CronEntry(cron, runnable.name, runnable.options.queue or queue)


def entries_of(runnables: Iterable[Runnable], queue: str) -> list[CronEntry]:
    """Return the entries that jobs bring themselves."""
    return [entry_for(entry.options.cron, entry, queue) for entry in runnables if entry.options.cron is not None]


def split_cron_line(line: str) -> tuple[Cron, str]:
    """`*/5 * * * * mod:func` or `@daily mod:func`: the expression and the name."""
    expression, _, name = line.strip().rpartition(" ")
    if not expression or ":" not in name:
        raise NotRunnable(f"--cron {line!r}: write five fields (or a word like @daily), a space, and MODULE:NAME")
    return Cron(expression), name


class Timetable:
    def __init__(self, entries: Iterable[CronEntry], clock: Clock, zone: tzinfo = UTC) -> None:
        self.zone = zone
        self._clock = clock
        # The same entry twice is one.
        unique = {(entry.schedule(zone), entry.queue): entry for entry in entries}
        now = self._now()
        self._next = {entry: entry.cron.next_after(now, zone) for entry in unique.values()}

    def __len__(self) -> int:
        return len(self._next)

    def due(self) -> list[tuple[CronEntry, datetime]]:
        """Return entries that are due, each with the last slot that has come."""
        now = self._now()
        return [
            (entry, max(slot, entry.cron.last_until(now, self.zone)))
            for entry, slot in self._next.items()
            if slot <= now
        ]

    def settled(self, entry: CronEntry, slot: datetime) -> None:
        """The slot was put, by whomever."""
        self._next[entry] = entry.cron.next_after(slot, self.zone)

    def seconds_to_next(self) -> float | None:
        """Until the next slot; None when there are no entries."""
        if not self._next:
            return None
        return max(0.0, (min(self._next.values()) - self._now()).total_seconds())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
