"""Batches by place: read from the disk, whole or one entry at a time, and kept for a while.

There are two ways to read. `read_run` is for messages in the order in which they were written: the batch is decoded
whole, and the next messages are there already. Of a large batch a view reads the run alone. `read_one` is for messages
out of order: a view of the batch finds and checks that entry alone. Many single reads in order show that the batch is
wanted after all; then it is decoded, unless it is large.

Invariants
  1. The batches kept take at most `bytes_max` together, roughly, in RAM, the views at most `view_bytes_max`, or as much
     as the one of a large batch that was used last. A batch that would take more than `bytes_max`, or longer than a
     turn may, is never decoded whole for a run or an entry.
  2. At most `SEGMENTS_OPEN_MAX` files are open.
  3. A batch with damage is not kept, nor is a view that has met any: it is rare, and a second read may be better than
     the first.
  4. Both ways answer the same for an entry; what was decoded whole is used by both.
"""

from __future__ import annotations

from collections.abc import Sequence
from errno import ENOENT
from typing import Final, final

from penstock.disk.files import Files
from penstock.journal.reading.batch import Decoded, RottenBatch, decode_entries, view_at
from penstock.journal.reading.light_view import ENTRY_BYTES, LightView, decoded_bytes, light_view_at
from penstock.journal.reading.segment_reader import SegmentReader

# Two gigabytes in segments of the usual size: messages that are read out of order lie in all of them.
SEGMENTS_OPEN_MAX: Final = 32
# A larger batch is not decoded in one go: some thousand small messages take milliseconds.
WHOLE_BYTES_MAX: Final = 512 * 1024


@final
class BatchCache:
    __slots__ = (
        "_batches",
        "_bytes",
        "_bytes_max",
        "_files",
        "_folder",
        "_readers",
        "_view_bytes",
        "_view_bytes_max",
        "_views",
    )

    def __init__(self, files: Files, folder: str, bytes_max: int, view_bytes_max: int = 0) -> None:
        self._files = files
        self._folder = folder
        self._bytes_max = bytes_max
        self._bytes = 0
        # Least recently used first: (segment, pos) → entries, bytes in RAM.
        self._batches: dict[tuple[int, int], tuple[list[Decoded], int]] = {}
        self._readers: dict[int, SegmentReader] = {}
        self._view_bytes_max = view_bytes_max
        self._view_bytes = 0
        # Least recently used first, by (segment, pos).
        self._views: dict[tuple[int, int], LightView] = {}

    def read(self, segment: int, pos: int) -> Sequence[Decoded]:
        """Return the entries of a batch, None for damaged ones; RottenBatch when nothing of it can be read.

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
            if error.errno != ENOENT:
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

    def read_run(self, segment: int, pos: int, first: int, count: int) -> Sequence[Decoded]:
        """Return entries of a batch that follow each other, None for damaged ones; fewer behind the last.

        Errors are those of `read`.
        """
        key = (segment, pos)
        if key not in self._batches:
            try:
                reader = self._reader(segment)
                view = self._large_view(reader, key)
                found = None if view is None else view.read_run(reader, first, count)
            except OSError as error:
                if error.errno != ENOENT:
                    raise
                raise RottenBatch(segment, pos, str(error)) from error
            if view is not None and found is not None:
                if None not in found:
                    self._keep_view(key, view, 1)
                return found
        return self.read(segment, pos)[first : first + count]

    def _large_view(self, reader: SegmentReader, key: tuple[int, int]) -> LightView | None:
        """The view of a batch that is too large to be decoded whole, taken out of those that are kept; else None."""
        view = self._views.get(key)
        if view is not None:
            if not self._is_large(view.decoded_bytes):
                return None
            del self._views[key]
            self._view_bytes -= view.size_bytes
            return view
        if reader.head is None:
            return None
        header = reader.header_at(key[1])
        if header is not None and not self._is_large(decoded_bytes(header)):
            return None
        return _made_view(reader, key[1])

    def _is_large(self, size: int) -> bool:
        return size > WHOLE_BYTES_MAX or size > self._bytes_max

    def read_one(self, segment: int, pos: int, entry: int) -> Decoded:
        """One entry of a batch; None when it is damaged, or when there is none of that number.

        Errors are those of `read`.
        """
        key = (segment, pos)
        if key in self._batches:
            return _at(self.read(segment, pos), entry)
        try:
            reader = self._reader(segment)
            view = self._views.pop(key, None)
            if view is None:
                view = _made_view(reader, pos)
            else:
                self._view_bytes -= view.size_bytes
            is_worth_decoding = not self._is_large(view.decoded_bytes) and view.is_worth_decoding(entry)
            found = None if is_worth_decoding else view.read(reader, entry)
        except OSError as error:
            if error.errno != ENOENT:
                raise
            raise RottenBatch(segment, pos, str(error)) from error
        if found is not None or is_worth_decoding:
            self._keep_view(key, view)
        return _at(self.read(segment, pos), entry) if is_worth_decoding else found

    def _keep_view(self, key: tuple[int, int], view: LightView, count_min: int = 0) -> None:
        """Keep a view; others go when there is no room, and so does this one, unless so many may stay."""
        self._views[key] = view
        self._view_bytes += view.size_bytes
        while self._view_bytes > self._view_bytes_max and len(self._views) > count_min:
            oldest = next(iter(self._views))
            self._view_bytes -= self._views.pop(oldest).size_bytes

    def forget_segment(self, segment: int) -> None:
        """The segment is about to be removed."""
        reader = self._readers.pop(segment, None)
        if reader is not None:
            reader.close()
        for key in [key for key in self._batches if key[0] == segment]:
            self._bytes -= self._batches.pop(key)[1]
        for key in [key for key in self._views if key[0] == segment]:
            self._view_bytes -= self._views.pop(key).size_bytes

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._batches.clear()
        self._bytes = 0
        self._views.clear()
        self._view_bytes = 0

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
        assert segment >= 0, "a batch that was not written is in RAM"
        reader = self._readers.pop(segment, None)
        if reader is None:
            reader = SegmentReader(self._files, self._folder, segment)
            if len(self._readers) >= SEGMENTS_OPEN_MAX:
                oldest = next(iter(self._readers))
                self._readers.pop(oldest).close()
        self._readers[segment] = reader
        return reader


def _made_view(reader: SegmentReader, pos: int) -> LightView:
    view = light_view_at(reader, pos)
    if view is None:
        # As with whole batches: it may be newer than what the reader has seen.
        reader.refresh()
        view = light_view_at(reader, pos)
    if view is None:
        raise RottenBatch(reader.number, pos, "there is no readable batch")
    return view


def _at(entries: Sequence[Decoded], entry: int) -> Decoded:
    return entries[entry] if 0 <= entry < len(entries) else None
