"""Batches by place: read from the disk, decoded, and kept for a while.

Owns: `BatchCache`, decoded batches in the order of their last use, and a few open segments. Messages are read back in
the order in which they were written, so the batch that was just read is the one that is wanted next.

Life of the data: a batch is decoded whole when one of its messages is wanted, and leaves when others need the room, or
when its segment is removed.

Invariants
  1. The batches kept take at most `bytes_max` together, roughly, in RAM; a larger one is decoded and not kept.
  2. At most `SEGMENTS_OPEN_MAX` files are open.
  3. A batch with damage is not kept: it is rare, and a second read may be better than the first.

A crash leaves nothing here. It does not write, and it does not look behind a batch that cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from errno import EIO, ENOENT
from typing import Final, final

from penstock.files import Files
from penstock.journal.batch import Decoded, RottenBatch, decode_entries, view_at
from penstock.journal.segment_reader import SegmentReader

SEGMENTS_OPEN_MAX: Final = 8
# What an entry takes beyond its bytes: a tuple, a bytes object, a place in the list.
ENTRY_BYTES: Final = 100


@final
class BatchCache:
    """Reads batches."""

    __slots__ = ("_batches", "_bytes", "_bytes_max", "_files", "_folder", "_readers")

    def __init__(self, files: Files, folder: str, bytes_max: int) -> None:
        self._files = files
        self._folder = folder
        self._bytes_max = bytes_max
        self._bytes = 0
        # Least recently used first: (segment, pos) → entries, bytes in RAM.
        self._batches: dict[tuple[int, int], tuple[list[Decoded], int]] = {}
        self._readers: dict[int, SegmentReader] = {}

    def read(self, segment: int, pos: int) -> Sequence[Decoded]:
        """The entries of a batch, None for damaged ones; RottenBatch when nothing of it can be read.

        An OSError that comes out is not about the bytes: the same call may succeed later.
        """
        key = (segment, pos)
        kept = self._batches.pop(key, None)
        if kept is not None:
            self._batches[key] = kept
            return kept[0]
        try:
            entries, size = self._decode(segment, pos)
        except OSError as error:
            if error.errno not in (EIO, ENOENT):
                # Too many open files, for one: that says nothing about the batch.
                raise
            raise RottenBatch(segment, pos, str(error)) from error
        if size <= self._bytes_max and None not in entries:
            self._batches[key] = (entries, size)
            self._bytes += size
            while self._bytes > self._bytes_max:
                oldest = next(iter(self._batches))
                self._bytes -= self._batches.pop(oldest)[1]
        return entries

    def forget_segment(self, segment: int) -> None:
        """The segment is about to be removed."""
        reader = self._readers.pop(segment, None)
        if reader is not None:
            reader.close()
        for key in [key for key in self._batches if key[0] == segment]:
            self._bytes -= self._batches.pop(key)[1]

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._batches.clear()
        self._bytes = 0

    def _decode(self, segment: int, pos: int) -> tuple[list[Decoded], int]:
        reader = self._reader(segment)
        view = view_at(reader, pos)
        if view is None:
            # It may have been written after the reader has last looked.
            reader.refresh()
            view = view_at(reader, pos)
        if view is None:
            raise RottenBatch(segment, pos, "there is no readable batch")
        entries = decode_entries(view)
        return entries, view.end - pos + len(entries) * ENTRY_BYTES

    def _reader(self, segment: int) -> SegmentReader:
        reader = self._readers.pop(segment, None)
        if reader is None:
            reader = SegmentReader(self._files, self._folder, segment)
            if len(self._readers) >= SEGMENTS_OPEN_MAX:
                oldest = next(iter(self._readers))
                self._readers.pop(oldest).close()
        self._readers[segment] = reader
        return reader
