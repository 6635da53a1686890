"""Which segments the readers of history have not read, and which readers came too late.

A segment is *unread* when it has events at or behind the cursor of a reader. A reader has *lapsed* when events were
removed that it had not read. `look` reads the cursors again after each checkpoint; `is_unread` answers for one segment
after the other; `removed` compares the cursors with the oldest event that is left. A reader that moves its cursor
beyond that event is off the list of those that lapsed.

Invariants
  1. Everything here comes from the disk: after a restart the same readers have lapsed.
  2. A segment with an event that some reader has not read is unread. Only `Retention` may decide against a reader.
  3. The slowest reader decides: the others need nothing that it does not need.
"""

from __future__ import annotations

from shlex import quote
from typing import Final, final

from penstock.disk.files import Files
from penstock.store.retention.reader_cursors import ReaderCursor, read_cursors

# No reader needs anything.
_NOBODY: Final = -1
_MIB: Final = 1 << 20


@final
class UnreadHistory:
    def __init__(self, files: Files, bytes_max: int) -> None:
        # (name, events lost), by name. Another list each time it changes.
        self.lapsed: list[tuple[str, int]] = []
        # What people should know, by the reader or the file that it is about.
        self.warnings: dict[str, str] = {}
        self._files = files
        self._bytes_max = bytes_max
        self._cursors: list[ReaderCursor] = []
        self._strange: list[str] = []
        self._slowest_lsn = _NOBODY

    def look(self, must_go_on: bool) -> None:
        """Read the cursors. With `must_go_on` those that cannot be read count for nothing; else OSError is raised."""
        try:
            self._cursors, self._strange = read_cursors(self._files)
        except OSError:
            if not must_go_on:
                raise
            self._cursors = []
        self._slowest_lsn = min([cursor.lsn for cursor in self._cursors], default=_NOBODY)

    def is_unread(self, next_lsn: int) -> bool:
        """Return whether a reader needs a segment whose last event is right before `next_lsn`."""
        return self._slowest_lsn != _NOBODY and self._slowest_lsn < next_lsn

    def removed(self, first_lsn: int) -> None:
        """The oldest event that is left has this LSN."""
        self.lapsed = [(cursor.name, first_lsn - cursor.lsn) for cursor in self._cursors if cursor.lsn < first_lsn]
        self.warnings = {}
        for name, lost in self.lapsed:
            self.warnings[name] = self._lapsed_text(name, lost)
        for path in self._strange:
            self.warnings[path] = (
                f"{path} is not the cursor of a reader, or is damaged, and holds no history. Remove it; a reader that"
                " still runs writes its cursor again"
            )

    def _lapsed_text(self, name: str, lost: int) -> str:
        return (
            f"the reader {quote(name)} has lost {lost:,} events: they were removed before it had read them, because"
            f" readers hold {self._bytes_max // _MIB} MiB of history at most, and nothing while the disk is nearly"
            f" full. Raise --readers-limit, or let {quote(name)} read faster, or give it up with"
            f" `penstock history forget {quote(name)}`"
        )
