"""The segments that the journal writes: the newest, which grows, and those before it, which go one day.

Owns: `SegmentWriter`, the open file of the newest segment with the position of its next batch, and `Segments`, the
folder: which segment is next, how old and large they are, and how one is removed.

Life of the data: a segment is made when there is a batch for it: file, head, name. The folder is synced together with
the first batch, so that no batch is called durable in a file that may lose its name. Batches are appended. When it is
left its file stays as it is until retention removes it.

Invariants
  1. Bytes before `pos` are batches, whole. Bytes behind it are of a write that failed; `cut` takes them away, and the
     next write goes to the same position.
  2. A segment is never appended to after a restart: a new one is begun, with a new salt.
  3. The head is synced with the first batch, by the same sync of the file.
  4. A new segment is begun only when everything before it is durable.
  5. A segment is removed only when the name of a later one is durable: the disk may remember the removal and forget
     the new name, and a checkpoint points to the new one.

A crash leaves a head or nothing, whole batches, and any part of the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from penstock.clock import Clock
from penstock.disk.files import File, Files, write_all
from penstock.journal.format.layout import FIRST_BATCH_AT, encode_head, salt_seed, segment_path
from penstock.journal.reading.segment_reader import SegmentReader, segment_numbers

SALT_MASK: Final = 2**64 - 1


@final
class SegmentWriter:
    """Appends to one file."""

    __slots__ = ("file", "number", "pos", "prev_crc", "salt", "seed")

    def __init__(self, file: File, number: int, salt: int, prev_crc: int) -> None:
        self.file = file
        self.number = number
        self.salt = salt
        self.seed = salt_seed(salt)
        self.pos = FIRST_BATCH_AT
        # Checksum of the last header, which the next one repeats.
        self.prev_crc = prev_crc

    def append(self, pieces: list[bytes], crc: int) -> int:
        """Write a batch; return its position. After an error the position is what it was."""
        pos = self.pos
        self.pos = write_all(self.file, pieces, pos)
        self.prev_crc = crc
        return pos

    def cut(self) -> None:
        """Take away what a failed write has left."""
        if self.file.size() > self.pos:
            self.file.truncate(self.pos)


@final
class Segments:
    """The folder of the journal, for its writer."""

    __slots__ = ("_clock", "_files", "_folder", "_names", "_salt", "is_left", "named", "newest")

    def __init__(self, files: Files, folder: str, clock: Clock, salt: Callable[[], int]) -> None:
        self._files = files
        self._folder = folder
        self._clock = clock
        self._salt = salt
        self.newest: SegmentWriter | None = None
        # Whether the next batch begins a segment.
        self.is_left = False
        # The newest one whose name is known to be durable; and the folder, open to be synced.
        self.named = 0
        self._names: File | None = None

    def start(self, number: int, first_lsn: int) -> None:
        """Make the first segment of this life, durable under its name when this returns."""
        self._files.make_dir(self._folder)
        # The folder's own name must last as well as those in it.
        self._files.sync_dir(self._folder.rpartition("/")[0])
        self._names = self._files.open_folder(self._folder)
        self.newest = self._create(number, first_lsn, 0)
        self._names.fdatasync()
        self.named = number

    def names(self) -> File:
        """Return the folder, open to be synced."""
        assert self._names is not None, "the journal was not started"
        return self._names

    def leave(self) -> bool:
        """Let the next batch begin a new segment; False when the newest one is empty and will do."""
        newest = self.writer()
        self.is_left = newest.pos > FIRST_BATCH_AT
        return self.is_left

    def writer(self) -> SegmentWriter:
        """Return the newest segment."""
        newest = self.newest
        assert newest is not None, "the journal was not started"
        return newest

    def writer_for_batch(self, first_lsn: int) -> SegmentWriter:
        """Return the segment for a batch that begins with this LSN; made now if the last one was left."""
        if self.is_left:
            full = self.writer()
            self.newest = self._create(full.number + 1, first_lsn, full.prev_crc)
            self.is_left = False
            full.file.close()
        return self.writer()

    def position(self) -> tuple[int, int]:
        """Segment and position of the next batch."""
        newest = self.writer()
        if self.is_left:
            return newest.number + 1, FIRST_BATCH_AT
        return newest.number, newest.pos

    def numbers(self) -> list[int]:
        """Return numbers of the segments on disk, oldest first."""
        return segment_numbers(self._files, self._folder)

    def size_bytes(self, number: int) -> int:
        """Size of a segment's file."""
        file = self._files.open(segment_path(self._folder, number))
        try:
            return file.size()
        finally:
            file.close()

    def begun_ms(self, number: int) -> int:
        """Wall-clock time at which a segment was begun; -1 when its head is unreadable."""
        reader = SegmentReader(self._files, self._folder, number)
        reader.close()
        return -1 if reader.head is None else reader.head.wall_us // 1000

    def first_lsn(self, number: int) -> int:
        """LSN of a segment's first event, there or still to come; -1 when its head is unreadable."""
        reader = SegmentReader(self._files, self._folder, number)
        reader.close()
        return -1 if reader.head is None else reader.head.first_lsn

    def remove(self, number: int) -> None:
        assert number < self.named, "it goes when a later one would survive a loss of power"
        self._files.unlink(segment_path(self._folder, number))

    def close(self) -> None:
        if self.newest is not None:
            self.newest.file.close()
        if self._names is not None:
            self._names.close()

    def _create(self, number: int, first_lsn: int, prev_crc: int) -> SegmentWriter:
        """Make a segment. Its name is not durable before the folder is synced. After an error nothing of it is left."""
        salt = self._salt() & SALT_MASK
        path = segment_path(self._folder, number)
        file = self._files.create(path)
        try:
            write_all(file, [encode_head(salt, number, first_lsn, self._clock.wall_ms() * 1000)], 0)
        except OSError:
            file.close()
            self._files.unlink(path)
            raise
        return SegmentWriter(file, number, salt, prev_crc)
