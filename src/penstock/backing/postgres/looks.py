"""Pages of ready messages in PostgreSQL, for consumers that browse.

The database answers after the caller has gone on, so the first question at a place gets nothing, and the browser is
told when the page is there. A page is let go of when a browser asks for what stands behind it, or after PAGE_S. A link
that answers at once is asked each time, and no page is kept.

Invariants
  1. A page has everything that was ready, when it was read, from the place it was asked for up to its last message.
  2. There are at most PAGES_MAX pages, and as many questions under way.
  3. Every question that was answered late is followed by `came`, also when there was nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.backing.postgres.envelopes import PgEnvelopes
from penstock.backing.postgres.link import PgQueueLink, TakenRow
from penstock.clock import Clock
from penstock.message import Entry

# A message as a browser sees it: its number, what is in it, and its mark.
Shown = tuple[int, Entry, bool]

# What is read at once, and how many browsers at different places have a page of their own.
PAGE_MESSAGES: Final = 500
PAGE_BYTES: Final = 1024 * 1024
PAGES_MAX: Final = 8
# So long a page is shown.
PAGE_S: Final = 1.0


@final
class PgPage:
    """What was ready from a place on."""

    def __init__(self, start: int, items: list[Shown], came_s: float) -> None:
        self.start = start
        self.items = items
        self.came_s = came_s

    def covers(self, seq_id: int) -> bool:
        """Whether everything from this number on is here, up to the page's end; an empty page has its place only."""
        if not self.items:
            return seq_id == self.start
        return self.start <= seq_id <= self.items[-1][0]


@final
class PgLooks:
    def __init__(self, envelopes: PgEnvelopes, clock: Clock, came: Callable[[bool], None]) -> None:
        """`came` is called when a page came late, with whether there is something in it."""
        self._envelopes = envelopes
        self._clock = clock
        self._came = came
        self._pages: list[PgPage] = []
        # Places that were asked for and not answered.
        self._asked: set[int] = set()

    def at(self, queue_link: PgQueueLink, seq_id: int) -> list[Shown] | None:
        """Ready messages in the database from this number on; None when they come later."""
        now_s = self._clock.monotonic_s()
        self._pages = [page for page in self._pages if now_s - page.came_s < PAGE_S]
        for page in self._pages:
            if page.covers(seq_id):
                return [item for item in page.items if item[0] >= seq_id]
        if seq_id in self._asked:
            return None
        if len(self._asked) >= PAGES_MAX:
            # The next answer makes room; all browsers are told then.
            return None
        at_once: list[list[Shown]] = []
        is_late = False

        def done(rows: list[TakenRow]) -> None:
            self._asked.discard(seq_id)
            items = self._shown(rows)
            if is_late:
                self._keep(PgPage(seq_id, items, self._clock.monotonic_s()))
            else:
                at_once.append(items)

        self._asked.add(seq_id)
        queue_link.look(seq_id, PAGE_MESSAGES, PAGE_BYTES, done)
        is_late = True
        return at_once[0] if at_once else None

    def is_late(self) -> bool:
        """Return whether something was asked for and has not come."""
        return bool(self._asked)

    def forget(self) -> None:
        """Forget all pages: what is ready may have changed."""
        self._pages.clear()

    def ram_bytes(self) -> int:
        size = 0
        for page in self._pages:
            for item in page.items:
                size += len(item[1][1])
        return size

    def _shown(self, rows: Sequence[TakenRow]) -> list[Shown]:
        return [(row[0], self._envelopes.entry(row), row[1] > 0) for row in rows]

    def _keep(self, page: PgPage) -> None:
        # The one that is read up to its end is the oldest of a browser's.
        self._pages = [each for each in self._pages if not each.covers(page.start)][-(PAGES_MAX - 1) :]
        self._pages.append(page)
        self._came(bool(page.items))
