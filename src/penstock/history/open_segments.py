"""The segments of a journal folder: which there are, what their heads say, and a few of them open.

A sealed segment never changes, so its head and its size are read once. Open files are few: the one that was used
longest ago is closed when there are too many. A segment that was removed is closed as soon as that is noticed, since an
open file keeps its bytes on the disk.
"""

from __future__ import annotations

from typing import Final

from penstock.disk.files import Files
from penstock.history.log import SegmentGone
from penstock.journal.format.layout import SegmentHead, segment_path
from penstock.journal.reading.replay import NO_LIMIT
from penstock.journal.reading.segment_reader import SegmentReader, segment_numbers

FOLDER: Final = "journal"
OPEN_MAX: Final = 4


class OpenSegments:
    def __init__(self, files: Files, open_max: int = OPEN_MAX) -> None:
        self._files = files
        self._open_max = open_max
        # Of those that are there, oldest first.
        self.numbers: list[int] = []
        self._heads: dict[int, SegmentHead] = {}
        self._sizes: dict[int, int] = {}
        # The one that was used longest ago comes first.
        self._open: dict[int, SegmentReader] = {}

    def look(self) -> bool:
        """List the folder anew; whether there are other segments than before."""
        numbers = segment_numbers(self._files, FOLDER)
        if numbers == self.numbers:
            return False
        self.numbers = numbers
        present = set(numbers)
        for number in [number for number in self._open if number not in present]:
            self._open.pop(number).close()
        self._heads = {number: head for number, head in self._heads.items() if number in present}
        self._sizes = {number: size for number, size in self._sizes.items() if number in present}
        return True

    def reader(self, number: int) -> SegmentReader:
        """Return the segment, open. SegmentGone when it was removed."""
        reader = self._open.pop(number, None)
        if reader is not None and not self._files.exists(segment_path(FOLDER, number)):
            reader.close()
            reader = None
        if reader is None:
            try:
                reader = SegmentReader(self._files, FOLDER, number)
            except FileNotFoundError:
                raise gone(number) from None
            if reader.head is not None:
                self._heads[number] = reader.head
        self._open[number] = reader
        while len(self._open) > self._open_max:
            self._open.pop(next(iter(self._open))).close()
        return reader

    def head(self, number: int) -> SegmentHead | None:
        """What the beginning of a segment says; None when it is unreadable, or not there yet."""
        known = self._heads.get(number)
        if known is None:
            reader = self.reader(number)
            if reader.head is None:
                # The next look may find it: the broker is perhaps writing it now.
                self._open.pop(number).close()
            return reader.head
        return known

    def sealed_bytes(self, number: int) -> int:
        """Size of a segment that has a successor."""
        size = self._sizes.get(number)
        if size is None:
            reader = self.reader(number)
            size = self._sizes[number] = reader.file.size()
        return size

    def readable(self) -> list[int]:
        """Return the segments whose heads can be read; those that were removed meanwhile are left out."""
        found: list[int] = []
        for number in self.numbers:
            try:
                if self.head(number) is not None:
                    found.append(number)
            except SegmentGone:
                continue
        return found

    def limit(self, number: int) -> int:
        """Return the LSN that a later segment begins with; NO_LIMIT for the newest.

        A later one that cannot be read proves that this one is complete, but not where it ends.
        """
        later = [other for other in self.numbers if other > number]
        if not later:
            return NO_LIMIT
        heads = [head for head in map(self._head_or_none, later) if head is not None]
        return min((head.first_lsn for head in heads), default=NO_LIMIT - 1)

    def _head_or_none(self, number: int) -> SegmentHead | None:
        try:
            return self.head(number)
        except SegmentGone:
            return None

    def close(self) -> None:
        for reader in self._open.values():
            reader.close()
        self._open = {}
        self.numbers = []
        self._heads = {}
        self._sizes = {}


def gone(number: int) -> SegmentGone:
    return SegmentGone(
        f"segment {number} of the journal is not there any more: the broker keeps history for a limited time and size"
        " (--history-limit, --history-hours), and longer for readers with a cursor (--readers-limit)"
    )
