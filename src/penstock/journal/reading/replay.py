"""Reads the journal from a position to its end, and tells a torn tail from rot.

`replay` hands every good batch to a visitor, in order, and reports what it could not read. Recovery, fsck and the
pipeline use it. A view is good during the visit only.

The rule: one write is in flight at a time. So a batch that has a later batch or segment behind it was synced before
those were begun; if it is damaged, that is rot. Only the last batch of the newest segment may be torn.

Invariants
  1. Header, rows and lengths of each batch are checked; the heap only of the last one, which may be torn there.
  2. LSNs of visited batches only grow. A gap between two of them is reported as rotten, whatever the reason: a damaged
     batch, a shortened segment, a missing one.
  3. Behind damage only a header with the right salt, position and LSN is taken: bytes of a message never are.
  4. What stands in a segment with an LSN that a later segment has given out again was cut off before: it is torn, even
     if it can be read.

A crash leaves a torn tail, which `cut_torn_tail` removes; `replay` never changes files. Rot in the very last batch,
with no commit mark behind it, looks like a torn tail; it is reported with LSN and bytes, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from penstock.disk.files import Files
from penstock.journal.format.layout import FIRST_BATCH_AT, segment_path
from penstock.journal.reading.batch import BatchView, RottenBatch, view_at
from penstock.journal.reading.segment_reader import SegmentReader, segment_numbers

__all__ = [
    "BatchView",
    "ReplayEnd",
    "RottenBatch",
    "RottenRange",
    "TornTail",
    "cut_torn_tail",
    "replay",
    "segment_numbers",
]

NO_LIMIT: Final = 2**63


@final
class TornTail:
    """The end of a segment that was never durable."""

    __slots__ = ("bytes", "lsn", "pos", "segment")

    def __init__(self, segment: int, pos: int, bytes: int, lsn: int) -> None:
        self.segment = segment
        self.pos = pos
        # From `pos` to the end of the file.
        self.bytes = bytes
        # That its first event would have had.
        self.lsn = lsn


@final
class RottenRange:
    """Bytes that were durable once and cannot be read any more."""

    __slots__ = ("bytes", "first_lsn", "next_lsn", "pos", "segment")

    def __init__(self, segment: int, pos: int, bytes: int, first_lsn: int, next_lsn: int) -> None:
        self.segment = segment
        self.pos = pos
        # 0 when they are not even there.
        self.bytes = bytes
        # Events [first_lsn, next_lsn) are lost.
        self.first_lsn = first_lsn
        self.next_lsn = next_lsn


@final
class ReplayEnd:
    """What a replay has found out."""

    __slots__ = ("next_lsn", "next_segment", "rotten", "tail_segment", "torn")

    def __init__(self, tail_segment: int, next_segment: int) -> None:
        # The newest file; -1 when there is none.
        self.tail_segment = tail_segment
        self.next_segment = next_segment
        # LSN behind the last event; 0 when there is nothing.
        self.next_lsn = 0
        self.torn: list[TornTail] = []
        self.rotten: list[RottenRange] = []


def _always(view: BatchView) -> bool:
    return True


def replay(
    files: Files,
    folder: str,
    from_segment: int,
    from_pos: int,
    visit: Callable[[BatchView], None],
    is_complete: Callable[[BatchView], bool] = _always,
) -> ReplayEnd:
    """Visit every good batch from a position on. With `from_pos` 0 from the oldest segment that there is.

    Headers in front of the position are looked at, too: they tell which LSN to expect. `next_lsn` is that of the
    journal; whoever knows of a higher one, from a checkpoint, takes that. `is_complete` is asked about the batch that
    may be torn: whether that which it refers to elsewhere is there. If not, the batch is as torn as if it had missed
    bytes of its own.
    """
    existing = segment_numbers(files, folder)
    end = ReplayEnd(existing[-1] if existing else -1, max([from_segment, *existing]) + 1)
    numbers = [number for number in existing if number >= from_segment]
    walk = _Walk(end, from_segment, from_pos, visit, is_complete)
    if from_pos > 0 and from_segment not in numbers:
        walk.missed(from_segment, from_pos)
    limits = _limits(files, folder, numbers)
    for number, limit in zip(numbers, limits, strict=True):
        reader = SegmentReader(files, folder, number)
        try:
            walk.walk_segment(reader, limit)
        finally:
            reader.close()
    walk.finish()
    return end


def _limits(files: Files, folder: str, numbers: list[int]) -> list[int]:
    """For each segment the LSN that a later one begins with; NO_LIMIT for the newest."""
    limits: list[int] = []
    limit = NO_LIMIT
    for number in reversed(numbers):
        limits.append(limit)
        reader = SegmentReader(files, folder, number)
        reader.close()
        if reader.head is not None:
            limit = min(limit, reader.head.first_lsn)
        elif limit == NO_LIMIT:
            # That it is there is enough: what is older was durable.
            limit = NO_LIMIT - 1
    limits.reverse()
    return limits


def cut_torn_tail(files: Files, folder: str, end: ReplayEnd) -> None:
    """Take away what is torn, and sync what is good: after a kill it may be readable and not yet durable."""
    for torn in end.torn:
        file = files.open(segment_path(folder, torn.segment))
        try:
            file.truncate(torn.pos)
            file.fdatasync()
        finally:
            file.close()
    if end.tail_segment >= 0:
        file = files.open(segment_path(folder, end.tail_segment))
        try:
            file.fdatasync()
        finally:
            file.close()
        files.sync_dir(folder)


@final
class _Walk:
    """One replay under way."""

    __slots__ = (
        "_damage",
        "_end",
        "_from_pos",
        "_from_segment",
        "_is_complete",
        "_is_placed",
        "_last_end",
        "_last_segment",
        "_visit",
    )

    def __init__(
        self,
        end: ReplayEnd,
        from_segment: int,
        from_pos: int,
        visit: Callable[[BatchView], None],
        is_complete: Callable[[BatchView], bool],
    ) -> None:
        self._end = end
        self._from_segment = from_segment
        self._from_pos = from_pos
        self._visit = visit
        self._is_complete = is_complete
        # Whether the LSN to expect (`end.next_lsn`) is known.
        self._is_placed = False
        # (segment, pos, bytes) of damage that reaches to the end of its segment: the next LSN says what it was.
        self._damage: list[tuple[int, int, int]] = []
        self._last_segment = from_segment
        self._last_end = from_pos

    def missed(self, segment: int, pos: int) -> None:
        """The segment to begin with is not there."""
        self._damage.append((segment, pos, 0))

    def walk_segment(self, reader: SegmentReader, limit: int) -> None:
        """Visit the batches of a segment; LSNs from `limit` on are those of a later one."""
        is_newest = limit == NO_LIMIT
        if reader.head is None:
            self._walk_unreadable(reader, is_newest)
            return
        self._expect(reader.head.first_lsn, reader.number)
        self._last_segment = reader.number
        pos = FIRST_BATCH_AT
        prev_crc = -1
        last: BatchView | None = None
        while pos < reader.size:
            view = view_at(reader, pos)
            if view is None or view.first_lsn < self._end.next_lsn or not view.follows(prev_crc):
                found = reader.find_header(pos, self._end.next_lsn)
                if found is None or found.first_lsn + found.events > limit:
                    break
                self._rotten(reader.number, pos, found.pos - pos, found.first_lsn)
                pos = found.pos
                prev_crc = -1
                continue
            if view.next_lsn > limit:
                break
            if view.first_lsn > self._end.next_lsn:
                self._rotten(reader.number, pos, 0, view.first_lsn)
            if last is not None:
                self._accept(last)
            last = view
            self._end.next_lsn = view.next_lsn
            prev_crc = view.crc
            pos = view.end
        self._last_end = pos
        if last is not None:
            if is_newest and pos >= reader.size and not (last.heap_is_whole() and self._is_complete(last)):
                pos = last.pos
                self._end.next_lsn = last.first_lsn
            else:
                self._accept(last)
        if pos < reader.size:
            self._bad_end(reader, pos, is_newest)

    def finish(self) -> None:
        if self._damage:
            self._settle_damage(self._end.next_lsn, False)

    # --- damage -----------------------------------------------------------------------------------

    def _accept(self, view: BatchView) -> None:
        if view.segment > self._from_segment or view.pos >= self._from_pos:
            self._visit(view)

    def _expect(self, first_lsn: int, number: int) -> None:
        """A segment begins with this LSN."""
        if not self._is_placed:
            # 0 is as good a lower bound as any for what was lost before.
            self._is_placed = True
            if not self._damage:
                self._end.next_lsn = first_lsn
        if self._damage:
            self._settle_damage(first_lsn, first_lsn <= self._end.next_lsn)
        elif first_lsn > self._end.next_lsn:
            is_missing = number > self._last_segment + 1
            lost_segment, lost_pos = (number - 1, 0) if is_missing else (self._last_segment, self._last_end)
            self._lost_end(lost_segment, lost_pos, 0, first_lsn)

    def _bad_end(self, reader: SegmentReader, pos: int, is_newest: bool) -> None:
        size = reader.size - pos
        if is_newest:
            self._end.torn.append(TornTail(reader.number, pos, size, self._end.next_lsn))
        else:
            self._damage.append((reader.number, pos, size))

    def _walk_unreadable(self, reader: SegmentReader, is_newest: bool) -> None:
        """Neither head nor copy nor first batch: the salt is not known, so nothing in it can be used."""
        if not is_newest:
            self._damage.append((reader.number, 0, reader.size))
            return
        evidence = reader.last_header_of_any_salt(self._end.next_lsn)
        if evidence is not None:
            self._rotten(reader.number, 0, reader.size, evidence.first_lsn + evidence.events)
        elif reader.size > 0:
            self._end.torn.append(TornTail(reader.number, 0, reader.size, self._end.next_lsn))

    def _settle_damage(self, next_lsn: int, was_cut: bool) -> None:
        first_lsn = self._end.next_lsn
        for segment, pos, size in self._damage:
            if not was_cut:
                self._lost_end(segment, pos, size, next_lsn)
                self._end.next_lsn = first_lsn
            elif size > 0:
                self._end.torn.append(TornTail(segment, pos, size, first_lsn))
        self._damage = []
        self._end.next_lsn = max(first_lsn, next_lsn)

    def _rotten(self, segment: int, pos: int, size: int, next_lsn: int) -> None:
        """Events up to `next_lsn` are lost; those in front of where the replay begins are not its business."""
        is_behind = pos + size > self._from_pos or pos == self._from_pos
        if segment > self._from_segment or is_behind:
            self._end.rotten.append(RottenRange(segment, pos, size, self._end.next_lsn, next_lsn))
        self._end.next_lsn = next_lsn

    def _lost_end(self, segment: int, pos: int, size: int, next_lsn: int) -> None:
        """As `_rotten`, up to the end of a segment. Where that was is not known: the file may be shorter than it was.

        So the replay may have begun there, wherever the bytes end that are left.
        """
        self._end.rotten.append(RottenRange(segment, pos, size, self._end.next_lsn, next_lsn))
        self._end.next_lsn = next_lsn
