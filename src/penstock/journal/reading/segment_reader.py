"""One segment, for reading: its head, and the valid batches in it.

`bytes_at` keeps a window of the file, so that hopping over many small batches costs few calls, and hopping over large
ones does not read their heaps.

Invariants
  1. A header is accepted only with the segment's salt and at the position that it names, so bytes that look like a
     batch are not taken for one, wherever they come from.
  2. The salt is that of the head, of its copy, or of the batch at the first position, which is no search.

A crash may have left a file without a head, or without the last batch: then `head` is None, or no header is valid.
"""

from __future__ import annotations

from typing import Final, final

from penstock.disk.files import Files
from penstock.journal.format.layout import (
    ALIGN_BYTES,
    FIRST_BATCH_AT,
    HEAD_BYTES,
    HEAD_COPY_AT,
    HEADER_BYTES,
    HEADER_MAGIC,
    SALT_AT,
    BatchHeader,
    SegmentHead,
    decode_head,
    decode_header,
    segment_number,
    segment_path,
)

WINDOW_BYTES: Final = 64 * 1024


@final
class SegmentReader:
    __slots__ = ("_window", "_window_at", "file", "head", "number", "size")

    def __init__(self, files: Files, folder: str, number: int) -> None:
        self.number = number
        self.file = files.open(segment_path(folder, number))
        self._window = b""
        self._window_at = 0
        try:
            self.size = self.file.size()
            # None when nothing in the segment can be trusted.
            self.head = self._read_head()
        except OSError:
            self.file.close()
            raise

    def close(self) -> None:
        self.file.close()

    def refresh(self) -> None:
        """Look at the file anew: the newest segment grows, and what a failed write has left is overwritten."""
        self.size = self.file.size()
        self._window = b""

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return bytes of the file; fewer at its end."""
        if size > WINDOW_BYTES:
            return self.file.pread(size, offset)
        at = offset - self._window_at
        if at < 0 or at + size > len(self._window):
            self._window = self.file.pread(WINDOW_BYTES, offset)
            self._window_at = offset
            at = 0
        return self._window[at : at + size]

    def header_at(self, pos: int) -> BatchHeader | None:
        """Return the header at a position; None unless it is valid and its batch is inside the file."""
        assert self.head is not None
        header = decode_header(self.bytes_at(pos, HEADER_BYTES), 0, self.number, pos)
        if header is None or header.salt != self.head.salt or header.end > self.size:
            return None
        return header

    def find_header(self, after: int, lsn: int) -> BatchHeader | None:
        """Return the next valid header behind a position whose batch came after `lsn` was durable."""
        assert self.head is not None
        # The salt is searched for, and not the magic: clients do not know it, so they cannot make this slow.
        salt = self.head.salt.to_bytes(8, "little")
        at = self._find(salt, after + ALIGN_BYTES + SALT_AT)
        while at >= 0:
            header = self.header_at(at - SALT_AT)
            if header is not None and header.first_lsn >= lsn and header.durable_lsn >= lsn:
                return header
            at = self._find(salt, at + 1)
        return None

    def last_header_of_any_salt(self, lsn: int) -> BatchHeader | None:
        """Evidence for a segment whose salt is unknown: it has held batches. What it says must not be used."""
        found = None
        pos = self._find(HEADER_MAGIC, FIRST_BATCH_AT)
        while pos >= 0:
            header = decode_header(self.bytes_at(pos, HEADER_BYTES), 0, self.number, pos)
            if header is not None and header.first_lsn >= lsn and (found is None or header.first_lsn > found.first_lsn):
                found = header
            pos = self._find(HEADER_MAGIC, pos + 1)
        return found

    def _find(self, wanted: bytes, start: int) -> int:
        """Where the bytes stand next, from `start` on; -1 when nowhere."""
        while start + len(wanted) <= self.size:
            if not self._window_at <= start <= self._window_at + len(self._window) - len(wanted):
                self._window = self.file.pread(WINDOW_BYTES, start)
                self._window_at = start
                if len(self._window) < len(wanted):
                    return -1
            at = self._window.find(wanted, start - self._window_at)
            if at >= 0:
                return self._window_at + at
            # What is wanted may stand across two windows.
            start = self._window_at + len(self._window) - len(wanted) + 1
        return -1

    def _read_head(self) -> SegmentHead | None:
        for at in (0, HEAD_COPY_AT):
            head = decode_head(self.bytes_at(at, HEAD_BYTES), self.number)
            if head is not None:
                return head
        first = decode_header(self.bytes_at(FIRST_BATCH_AT, HEADER_BYTES), 0, self.number, FIRST_BATCH_AT)
        if first is None:
            return None
        return SegmentHead(first.salt, first.first_lsn, first.wall_us)


def segment_numbers(files: Files, folder: str) -> list[int]:
    """Return the segments in the folder, oldest first."""
    return sorted([number for number in map(segment_number, files.list_dir(folder)) if number >= 0])
