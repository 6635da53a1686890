"""A queue's own store: the records of messages that left RAM or the journal, one file per stretch of seq_ids.

The files are cut at the same seq_ids as the files of the queue's index. Records (`shared/records`) are appended, never
changed and never removed one by one; a file goes as a whole when all of its messages are gone. New records wait in a
buffer and are written with one call per file, when the buffer is full or at `flush`. Reading looks into the buffer too.
docs/formats/queue-store.md has the layout.

Invariants
  1. The record of a seq_id is in file `seq_id // segment_slots`, at the offset that `append` answered.
  2. An offset is given once. After a restart records are appended at the end of the file, behind whatever a crash left
     there: nothing refers to those bytes.
  3. Buffered bytes of a file are those from `start` to its end, without holes; the disk is not asked for them.
  4. After an OSError the buffer still has what was not written, at the same offsets.
  5. A record is checked each time it is read, and must belong to the file it is in, and be the one that was wanted.

A crash may leave any part of what was not synced. The store does not sync: its owner has the `segments` synced before
a reference to a record counts.
"""

from __future__ import annotations

from typing import Final, final

from penstock.disk.files import Files, write_all
from penstock.message import Envelope
from penstock.store.queue.segment_files import FILE_HEAD_BYTES, Post, SegmentFiles, run_at_once
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.records import RECORD_HEAD_BYTES, BadRecord, Record, decode_record, encode_record

MAGIC: Final = b"PnQS"
SEGMENT_SLOTS: Final = 4096

# Records that wait, of one queue. RabbitMQ's figure, as a power of two.
BUFFER_BYTES_MAX: Final = 512 * 1024

# How much is read ahead, since the length of records is known only from their heads.
READ_BYTES_MIN: Final = 4096
READ_BYTES_PER_RECORD: Final = 512
READ_BYTES_MAX: Final = 256 * 1024

# A slot has 32 bits for an offset.
_OFFSET_MAX: Final = 0xFFFFFFFF


@final
class _Buffer:
    """The end of a file that is not written yet."""

    __slots__ = ("pieces", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.pieces: list[bytes] = []

    def joined(self) -> bytes:
        if len(self.pieces) != 1:
            self.pieces = [b"".join(self.pieces)]
        return self.pieces[0]


class QueueStore:
    def __init__(
        self,
        files: Files,
        folder: str,
        handles: HandleCache,
        segment_slots: int = SEGMENT_SLOTS,
        post: Post = run_at_once,
    ) -> None:
        self.segment_slots = segment_slots
        self.segments = SegmentFiles(files, folder, handles, MAGIC, ".qs", segment_slots, post)
        self._buffers: dict[int, _Buffer] = {}
        self._buffered_bytes = 0
        # By file: where the next record goes.
        self._ends: dict[int, int] = {}

    # --- writing

    def append(self, seq_id: int, envelope: Envelope, body: bytes, expiry_ms: int) -> tuple[int, int]:
        """Keep a message; answers with the offset and the length of its record, in file `seq_id // segment_slots`."""
        record = encode_record(seq_id, envelope, body, expiry_ms)
        size = len(record)
        # Before anything is added, so that an error changes nothing.
        if self._buffered_bytes + size > BUFFER_BYTES_MAX:
            self.flush()
        number = seq_id // self.segment_slots
        offset = self._ends.get(number, 0)
        if offset == 0:
            file = self.segments.before_writing(number)
            offset = FILE_HEAD_BYTES if file is None else file.size()
        assert offset + size <= _OFFSET_MAX
        buffer = self._buffers.get(number)
        if buffer is None:
            buffer = self._buffers[number] = _Buffer(offset)
        buffer.pieces.append(record)
        self._buffered_bytes += size
        self._ends[number] = offset + size
        return offset, size

    def flush(self) -> None:
        for number in list(self._buffers):
            buffer = self._buffers[number]
            write_all(self.segments.writer(number), [buffer.joined()], buffer.start)
            self._drop_buffer(number)

    def _drop_buffer(self, number: int) -> None:
        buffer = self._buffers.pop(number, None)
        if buffer is not None:
            self._buffered_bytes -= len(buffer.joined())

    # --- reading

    def read(self, segment: int, offset: int, count: int, seq_id: int = -1) -> list[Record]:
        """Consecutive records. Raises BadRecord for the first that is bad; its `before` are those in front of it.

        With a seq_id, they must be the records of that message and those that follow it.
        """
        records: list[Record] = []
        ahead = min(READ_BYTES_MAX, READ_BYTES_MIN + count * READ_BYTES_PER_RECORD)
        data = self._bytes_at(segment, offset, ahead)
        # Where `data` begins in the file, and where the next record begins in `data`.
        base = offset
        at = 0
        like: Envelope | None = None
        while len(records) < count:
            try:
                record = decode_record(data, at, like)
                wanted = seq_id + len(records) if seq_id >= 0 else record.seq_id
                if record.seq_id != wanted or wanted // self.segment_slots != segment:
                    raise BadRecord("is not the one that should be there", at, record.seq_id, record.size_bytes)
            except BadRecord as bad:
                # Perhaps the record only goes on behind what was read.
                needed = max(bad.size_bytes, RECORD_HEAD_BYTES)
                more = b""
                if len(data) - at < needed:
                    more = self._bytes_at(segment, base + at, max(needed, ahead))
                if len(more) <= len(data) - at:
                    raise bad.found_in(self.segments.path(segment), base, records) from None
                data = more
                base += at
                at = 0
                continue
            records.append(record)
            like = record.envelope
            at += record.size_bytes
        return records

    def _bytes_at(self, segment: int, offset: int, size: int) -> bytes:
        """Return up to `size` bytes, from the disk and the buffer; fewer only at the end."""
        buffer = self._buffers.get(segment)
        if buffer is not None and offset >= buffer.start:
            first = offset - buffer.start
            return buffer.joined()[first : first + size]
        file = self.segments.reader(segment)
        if file is None:
            return b""
        if buffer is None:
            return file.pread(size, offset)
        written = file.pread(min(size, buffer.start - offset), offset)
        # A file that is too short has lost bytes: what follows them in the buffer does not take their place.
        if offset + len(written) < buffer.start:
            return written
        return written + buffer.joined()[: size - len(written)]

    # --- the life of the files

    def delete_segment(self, number: int) -> None:
        """All messages of a file are gone: what waits for it is never written. Fine when there is no such file."""
        self._drop_buffer(number)
        self._ends.pop(number, None)
        self.segments.remove(number)

    def delete_all(self) -> None:
        """The queue is deleted, or was not to last: remove the folder."""
        self._buffers.clear()
        self._buffered_bytes = 0
        self._ends.clear()
        self.segments.remove_all()

    def close(self) -> None:
        """Write what waits and give every handle back. The store may be used again."""
        try:
            self.flush()
        finally:
            self.segments.close()
