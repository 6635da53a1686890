"""A queue's index: for each seq_id that is no longer in RAM, one slot that says where the message is.

A file has `segment_slots` slots of 32 bytes, in two areas. A slot of the first area is written once, when its message
is paged out; one of the second area at most once, when the message moves home (decision 0006). An ack never touches a
slot: the queue knows which messages are gone, and removes a file when all of its messages are. Slots wait in a buffer
and are written with one call when the buffer is full, at `flush`, or before their file is read.
docs/formats/queue-index.md has the layout.

Invariants
  1. `read` answers with the slot of the second area if it is whole, else with that of the first, else with None.
  2. A slot is whole if its CRC, which begins with its seq_id, is right. Zeros are a slot that was never written.
     Anything else is damaged: it is never used, and its seq_id is in `damaged` if no slot is left for it, or in
     `damaged_moves` if only the second one is bad.
  3. What a broker wrote before a crash does not hide what a later one writes: a slot that is written into a file of an
     earlier time takes back what stands for it in the second area.
     Moves that the checkpoint did not know (`distrust_moves`) do not count, and are taken back before their file is
     written to: the records that they lead to may not have reached the disk, and the first slot is still right.
  4. After an OSError the buffer still has what was not written, and writing goes on with the next call.

A crash may leave any part of what was not synced. Until a checkpoint has synced the file, the journal still has those
messages. The index does not sync: its owner has the `segments` synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from penstock.disk.checksum import crc32
from penstock.disk.files import File, Files, write_all
from penstock.store.queue.places import MEMORY, Slot
from penstock.store.queue.segment_files import FILE_HEAD_BYTES, Post, SegmentFiles, run_at_once
from penstock.store.shared.handles import HandleCache

MAGIC: Final = b"PnQI"
SEGMENT_SLOTS: Final = 4096
SLOT_BYTES: Final = 32
# Kind, flags, 2 bytes of nothing, size, expiry, segment, pos, entry.
_FIELDS: Final = Struct("<BBxxIqIII")
_CRC: Final = Struct("<I")
# The same with its CRC, which is checked over all 32 bytes at once.
_SLOT: Final = Struct("<BBxxIqIII4x")
# What a CRC over bytes that end with their own CRC comes to.
_WHOLE: Final = 0x2144DF1C
_NOTHING: Final = bytes(SLOT_BYTES)

# Slots that wait, of one queue. More are written at once: memory is for messages.
BUFFER_BYTES_MAX: Final = 2048 * SLOT_BYTES
# Nor more than this that do not lie side by side: each takes a call, of some microseconds.
BUFFER_CHUNKS_MAX: Final = 512
# Slots that are read for nothing between two that are wanted: cheaper than a second call.
SLOTS_BETWEEN_MAX: Final = 64


class QueueIndex:
    def __init__(
        self,
        files: Files,
        folder: str,
        handles: HandleCache,
        segment_slots: int = SEGMENT_SLOTS,
        post: Post = run_at_once,
    ) -> None:
        self.segment_slots = segment_slots
        self.segments = SegmentFiles(files, folder, handles, MAGIC, ".qi", segment_slots, post)
        # By 2 * file + area: (position in the file, slots that lie side by side), in the order of writing.
        self._waiting: dict[int, list[tuple[int, bytearray]]] = {}
        self._waiting_bytes = 0
        self._waiting_chunks = 0
        self._looked_at: set[int] = set()
        # Files of an earlier time that have a second area.
        self._moved_before: set[int] = set()
        # All files that have one, or may have: nobody else writes them.
        self._moved: set[int] = set()
        self._damaged: set[int] = set()
        self._damaged_moves: set[int] = set()
        # Moves from here on, in files of an earlier time, do not count. A number that no queue reaches.
        self._distrusted_from = 1 << 62
        # Files that have such moves.
        self._distrusted: set[int] = set()

    def distrust_moves(self, from_seq_id: int) -> None:
        """Moves from here on are not known to the checkpoint, and may lead to records that a crash has cost."""
        self._distrusted_from = from_seq_id

    @property
    def damaged(self) -> list[int]:
        """seq_ids that were read and have no whole slot left, of files that are still there."""
        return sorted(self._damaged)

    @property
    def damaged_moves(self) -> list[int]:
        """seq_ids that were read and have a bad second slot, so that the first was answered."""
        return sorted(self._damaged_moves)

    # --- writing

    def write(self, seq_id: int, slots: Sequence[Slot]) -> None:
        """Say where consecutive messages are."""
        data = _encode(seq_id, slots)
        end = seq_id + len(slots)
        for number in range(seq_id // self.segment_slots, (end - 1) // self.segment_slots + 1):
            self._look_at(number)
            if number in self._moved_before:
                first = max(seq_id, number * self.segment_slots)
                count = min(end, (number + 1) * self.segment_slots) - first
                # First, so that an error in between has taken back only slots that are not read.
                self._put(first, bytes(count * SLOT_BYTES), 1)
        self._put(seq_id, data, 0)
        if self._damaged:
            self._damaged.difference_update(range(seq_id, end))

    def move(self, seq_id: int, slots: Sequence[Slot]) -> None:
        """Say where consecutive messages are now."""
        self._put(seq_id, _encode(seq_id, slots), 1)

    def flush(self) -> None:
        for key in list(self._waiting):
            self._write_waiting(key)

    def _put(self, seq_id: int, data: bytes, area: int) -> None:
        # Before anything is added, so that an error changes nothing.
        if self._waiting_bytes + len(data) > BUFFER_BYTES_MAX or self._waiting_chunks >= BUFFER_CHUNKS_MAX:
            self.flush()
        done = 0
        while done < len(data):
            number, slot = divmod(seq_id + done // SLOT_BYTES, self.segment_slots)
            part = data[done : done + (self.segment_slots - slot) * SLOT_BYTES]
            offset = self._offset(slot, area)
            chunks = self._waiting.setdefault(2 * number + area, [])
            if chunks and chunks[-1][0] + len(chunks[-1][1]) == offset:
                chunks[-1][1].extend(part)
            else:
                chunks.append((offset, bytearray(part)))
                self._waiting_chunks += 1
            done += len(part)
        self._waiting_bytes += len(data)

    def _offset(self, slot: int, area: int) -> int:
        return FILE_HEAD_BYTES + (area * self.segment_slots + slot) * SLOT_BYTES

    def _write_waiting(self, key: int) -> None:
        chunks = self._waiting.get(key)
        if chunks is None:
            return
        self._look_at(key // 2)
        self._take_back_moves(key // 2)
        if key % 2:
            self._moved.add(key // 2)
        file = self.segments.writer(key // 2)
        for offset, chunk in chunks:
            write_all(file, [bytes(chunk)], offset)
        self._forget_waiting(key)

    def _forget_waiting(self, key: int) -> None:
        chunks = self._waiting.pop(key, [])
        self._waiting_bytes -= sum([len(chunk) for _, chunk in chunks])
        self._waiting_chunks -= len(chunks)

    def _look_at(self, number: int) -> None:
        """Before a file is used for the first time: is it of an earlier time, and does it have a second area?"""
        if number not in self._looked_at:
            file = self.segments.before_writing(number)
            if file is not None and file.size() > self._offset(0, 1):
                self._moved_before.add(number)
                self._moved.add(number)
                if file.size() > self._trusted_bytes(number):
                    self._distrusted.add(number)
            self._looked_at.add(number)

    def _trusted_bytes(self, number: int) -> int:
        """Return where the moves in a file begin that do not count."""
        return self._offset(max(0, self._distrusted_from - number * self.segment_slots), 1)

    def _take_back_moves(self, number: int) -> None:
        """Before a file is written to: make zeros of the moves that do not count, so that later ones do."""
        if number in self._distrusted:
            file = self.segments.writer(number)
            start = self._trusted_bytes(number)
            write_all(file, [bytes(file.size() - start)], start)
            self._distrusted.discard(number)

    # --- reading

    def read(self, start: int, end: int) -> list[Slot | None]:
        """Return the slots of seq_ids from `start` up to `end`. None: never written, or damaged."""
        found: list[Slot | None] = []
        while start < end:
            number = start // self.segment_slots
            stop = min(end, (number + 1) * self.segment_slots)
            found += self._read_file(number, start, stop)
            start = stop
        return found

    def read_each(self, seq_ids: Sequence[int]) -> list[Slot | None]:
        """Return the slots of some seq_ids, sorted and of one file. None: never written, or damaged."""
        number = seq_ids[0] // self.segment_slots
        self._look_at(number)
        is_plain = 2 * number not in self._waiting and 2 * number + 1 not in self._waiting and number not in self._moved
        file = self.segments.reader(number) if is_plain else None
        found: list[Slot | None] = []
        index = 0
        while index < len(seq_ids):
            start = seq_ids[index]
            stop = index + 1
            while stop < len(seq_ids) and seq_ids[stop] - seq_ids[stop - 1] <= SLOTS_BETWEEN_MAX:
                stop += 1
            end = seq_ids[stop - 1] + 1
            data = b""
            if file is not None:
                data = file.pread((end - start) * SLOT_BYTES, self._offset(start - number * self.segment_slots, 0))
            if not _append_whole(seq_ids[index:stop], data, found):
                # Slots that wait, that were moved, or that are not there: with care.
                slots = self._read_file(number, start, end)
                found.extend([slots[seq_id - start] for seq_id in seq_ids[index:stop]])
            index = stop
        return found

    def _read_file(self, number: int, start: int, end: int) -> list[Slot | None]:
        self._look_at(number)
        waiting = 2 * number in self._waiting or 2 * number + 1 in self._waiting
        # What waits is read over the file, not written first: reading works on a full disk.
        file = self.segments.before_writing(number) if waiting else self.segments.reader(number)
        if file is None and not waiting:
            return [None] * (end - start)
        slot = start - number * self.segment_slots
        slots, damaged = _decode(start, end, self._slot_bytes(file, number, slot, end - start, 0))
        moved = self._slot_bytes(file, number, slot, end - start, 1)
        if moved.strip(b"\x00"):
            newer, damaged_moves = _decode(start, end, moved)
            slots = [old if new is None else new for new, old in zip(newer, slots, strict=True)]
            damaged = [seq_id for seq_id in damaged + damaged_moves if slots[seq_id - start] is None]
            self._damaged_moves.update([seq_id for seq_id in damaged_moves if slots[seq_id - start] is not None])
        self._damaged.update(damaged)
        return slots

    def _slot_bytes(self, file: File | None, number: int, slot: int, count: int, area: int) -> bytes:
        offset = self._offset(slot, area)
        data = b""
        # Most files have no second area: asking for the size is cheaper than reading nothing.
        if file is not None and (area == 0 or file.size() > offset):
            data = file.pread(count * SLOT_BYTES, offset)
            if area == 1 and number in self._distrusted:
                data = data[: max(0, self._trusted_bytes(number) - offset)]
        chunks = self._waiting.get(2 * number + area)
        if chunks is None:
            return data
        merged = bytearray(data.ljust(count * SLOT_BYTES, b"\x00"))
        for position, chunk in chunks:
            first = max(0, position - offset)
            last = min(len(merged), position - offset + len(chunk))
            if first < last:
                merged[first:last] = chunk[first + offset - position : last + offset - position]
        return bytes(merged)

    # --- the life of the files

    def delete_segment(self, number: int) -> None:
        """All messages of a file are gone: what waits for it is never written. Fine when there is no such file."""
        self._forget_waiting(2 * number)
        self._forget_waiting(2 * number + 1)
        first = number * self.segment_slots
        self._damaged.difference_update(range(first, first + self.segment_slots))
        self._damaged_moves.difference_update(range(first, first + self.segment_slots))
        self._looked_at.discard(number)
        self._moved_before.discard(number)
        self._moved.discard(number)
        self._distrusted.discard(number)
        self.segments.remove(number)

    def delete_all(self) -> None:
        """The queue is deleted, or was not to last: remove the folder."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._waiting_chunks = 0
        self._looked_at.clear()
        self._moved_before.clear()
        self._moved.clear()
        self._distrusted.clear()
        self._damaged.clear()
        self._damaged_moves.clear()
        self.segments.remove_all()

    def close(self) -> None:
        """Write what waits and give every handle back. The index may be used again."""
        try:
            self.flush()
        finally:
            self.segments.close()


def _encode(seq_id: int, slots: Sequence[Slot]) -> bytes:
    pieces: list[bytes] = []
    for kind, flags, size_bytes, expiry_ms, segment, pos, entry in slots:
        assert kind != MEMORY
        fields = _FIELDS.pack(kind, flags, size_bytes, expiry_ms, segment, pos, entry)
        pieces.append(fields)
        pieces.append(_CRC.pack(crc32(fields, seq_id & 0xFFFFFFFF)))
        seq_id += 1
    return b"".join(pieces)


def _append_whole(seq_ids: Sequence[int], data: bytes, found: list[Slot | None]) -> bool:
    """Append the slots of these seq_ids, if all of them are whole; the data begins with that of the first."""
    start = seq_ids[0]
    slots: list[Slot | None] = []
    for seq_id in seq_ids:
        at = (seq_id - start) * SLOT_BYTES
        piece = data[at : at + SLOT_BYTES]
        if len(piece) < SLOT_BYTES or crc32(piece, seq_id & 0xFFFFFFFF) != _WHOLE or piece == _NOTHING:
            return False
        slots.append(_SLOT.unpack(piece))
    found.extend(slots)
    return True


def _decode(start: int, end: int, data: bytes) -> tuple[list[Slot | None], list[int]]:
    """Slots, and the seq_ids of those that are neither whole nor zeros. Bytes that are missing count as zeros."""
    data = data.ljust((end - start) * SLOT_BYTES, b"\x00")
    pieces = [data[at : at + SLOT_BYTES] for at in range(0, len(data), SLOT_BYTES)]
    slots: list[Slot | None] = list(_SLOT.iter_unpack(data))
    # In C, for all slots at once. crc32 takes the lower 32 bits of the seq_id, which differ within a file.
    crcs = list(map(crc32, pieces, range(start, end)))
    # For one seq_id in 2 to the power of 32 zeros have the right CRC, so zeros are looked for as well.
    if crcs.count(_WHOLE) == end - start and _NOTHING not in data:
        return slots, []
    damaged: list[int] = []
    for position, piece in enumerate(pieces):
        if piece == _NOTHING:
            slots[position] = None
        elif crcs[position] != _WHOLE:
            slots[position] = None
            damaged.append(start + position)
    return slots, damaged
