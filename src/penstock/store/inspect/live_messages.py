"""Reads every waiting message of a queue, wherever it is, without opening the queue; for fsck.

Invariants
  1. A message counts only if its checksums are right and its size is the one that the state or the slot says.
  2. Nothing is written, removed or cut: that is why the shared store is read here and not through `MessageStore`, whose
     start tidies up.
  3. Messages whose body was never proven durable are left out: a start drops them in silence.
"""

from __future__ import annotations

from typing import Final, final

from penstock.disk.files import Files
from penstock.journal.reading.batch_cache import BatchCache
from penstock.journal.reading.replay import RottenBatch
from penstock.store.node.queue_names import queue_folder
from penstock.store.queue.indexed import IndexedMessages, shared_addresses
from penstock.store.queue.places import JOURNAL, MSG_STORE, StoreError, address_of
from penstock.store.queue.queue_state import QueueState, RunPlace
from penstock.store.queue.queue_store import QueueStore
from penstock.store.recovery.recovery import JOURNAL_FOLDER
from penstock.store.recovery.replaying import Reference
from penstock.store.shared.body_map import FILE_HEAD_BYTES, LOWER_HALF, StoreFile
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.records import BadRecord, Record, decode_record
from penstock.store.shared.store_files import StoreFolder

_CACHE_BYTES: Final = 8 * 1024 * 1024


@final
class Checked:
    """What was found of one queue."""

    __slots__ = ("bad_files", "count", "size_bytes", "unreadable")

    def __init__(self) -> None:
        # Messages that could be read, or that are known to be there; and their payload bytes.
        self.count = 0
        self.size_bytes = 0
        # (first seq_id, last seq_id, why)
        self.unreadable: list[tuple[int, int, str]] = []
        self.bad_files: list[str] = []

    def note(self, seq_id: int, size_bytes: int, why: str) -> None:
        """A message that the state has; `why` is empty when it is well."""
        self.count += 1
        self.size_bytes += size_bytes
        if not why:
            return
        if self.unreadable and self.unreadable[-1][1] == seq_id - 1 and self.unreadable[-1][2] == why:
            first, _, _ = self.unreadable.pop()
            self.unreadable.append((first, seq_id, why))
        else:
            self.unreadable.append((seq_id, seq_id, why))


@final
class SharedReader:
    __slots__ = ("_copies", "_files", "_folder")

    def __init__(self, files: Files, handles: HandleCache, vhost_id: str) -> None:
        self._folder = StoreFolder(files, f"vhosts/{vhost_id}/shared/persistent", handles, True)
        self._files: dict[int, StoreFile] = {}
        # address → (file, offset) of records that compaction moved.
        self._copies: dict[int, tuple[StoreFile, int]] = {}
        for name in files.list_dir(self._folder.folder):
            stem, _, ending = name.partition(".")
            number = stem.removesuffix("-c")
            if ending == "pms" and number.isdecimal():
                file = StoreFile(int(number), number != stem)
                self._files[file.number] = file
                if file.compacted:
                    for address, offset in self._folder.table(file, self._folder.size(file)):
                        self._copies[address] = (file, offset)

    def read(self, address: int) -> Record:
        """Raises BadRecord."""
        copy = self._copies.get(address)
        if copy is not None:
            try:
                return self._read_at(copy[0], copy[1], address)
            except BadRecord:
                # The original may still be there.
                return self._read_original(address)
        return self._read_original(address)

    def _read_original(self, address: int) -> Record:
        file = self._files.get(address >> 32)
        if file is None or file.compacted:
            raise BadRecord("is not there: its file is gone", address & LOWER_HALF)
        return self._read_at(file, address & LOWER_HALF, address)

    def _read_at(self, file: StoreFile, offset: int, address: int) -> Record:
        _, size = self._folder.record_at(file, offset)
        record = decode_record(self._folder.read(file, size, offset), 0)
        if record.address != address:
            raise BadRecord("is another one", offset)
        return record

    def damaged_records(self) -> list[tuple[str, str]]:
        """(path, text) of the records whose checksum is wrong, wanted or not, as far as they can be found."""
        found: list[tuple[str, str]] = []
        for file in self._files.values():
            offset = FILE_HEAD_BYTES
            while True:
                try:
                    address, size = self._folder.record_at(file, offset)
                except BadRecord:
                    # The end, a hole, or the table of a compacted file.
                    break
                try:
                    self._read_at(file, offset, address)
                except (BadRecord, OSError) as bad:
                    found.append((self._folder.path(file), str(bad)))
                offset += size
        return found

    def close(self) -> None:
        self._folder.close()


@final
class LiveMessages:
    def __init__(self, files: Files, handles: HandleCache) -> None:
        self._files = files
        self._handles = handles
        self._journal = BatchCache(files, JOURNAL_FOLDER, _CACHE_BYTES)
        self._shared: dict[str, SharedReader] = {}

    def check(self, state: QueueState, unproven: set[Reference]) -> Checked:
        checked = Checked()
        folder = f"{queue_folder(state.vhost_id, state.queue_id)}/qs"
        store = QueueStore(self._files, folder, self._handles, state.live.slots)
        for run in state.runs:
            if run.kind == JOURNAL:
                self._check_journal(run, checked)
            elif run.kind == MSG_STORE:
                for position, address in enumerate(shared_addresses(run)):
                    why = self._why_not_shared(state.vhost_id, address, _size(run, position))
                    # It was never reported safe, and the next start drops it.
                    is_forgiven = why and (state.vhost_id, address) in unproven
                    checked.note(run.seq_id + position, _size(run, position), "" if is_forgiven else why)
            else:
                assert run.addresses is not None
                for position in range(run.count):
                    size = _size(run, position)
                    why = _why_not_stored(store, run.segment, run.addresses[position], run.seq_id + position, size)
                    checked.note(run.seq_id + position, size, why)
        self._check_index(state, store, checked)
        store.close()
        return checked

    def _check_journal(self, run: RunPlace, checked: Checked) -> None:
        for position in range(run.count):
            size = _size(run, position)
            why = self._why_not_in_journal(run.segment, run.pos, run.entry + position, size)
            checked.note(run.seq_id + position, size, why)

    def _check_index(self, state: QueueState, store: QueueStore, checked: Checked) -> None:
        indexed = IndexedMessages(self._files, self._handles, state)
        for segment in sorted(state.index_segments):
            for seq_id, slot in indexed.of_segment(segment):
                kind, _, size, _, place_segment, pos, entry = slot
                if kind == JOURNAL:
                    why = self._why_not_in_journal(place_segment, pos, entry, size)
                elif kind == MSG_STORE:
                    why = self._why_not_shared(state.vhost_id, address_of(slot), size)
                else:
                    why = _why_not_stored(store, place_segment, pos, seq_id, size)
                checked.note(seq_id, size, why)
        checked.bad_files += indexed.bad_files
        damaged = [seq_id for seq_id in indexed.index.damaged if state.live.is_live(seq_id)]
        if damaged:
            checked.bad_files.append(f"the index has damaged slots of messages {', '.join(map(str, damaged))}")
        indexed.close()

    def _why_not_in_journal(self, segment: int, pos: int, entry: int, size: int) -> str:
        try:
            entries = self._journal.read(segment, pos)
        except (RottenBatch, OSError) as error:
            return str(error)
        decoded = entries[entry] if entry < len(entries) else None
        if decoded is None or len(decoded[1]) != size + 1:
            return f"its entry in journal segment {segment}, batch at {pos}, is damaged"
        return ""

    def _why_not_shared(self, vhost_id: str, address: int, size: int) -> str:
        try:
            record = self._reader(vhost_id).read(address)
        except (StoreError, OSError) as error:
            return str(error)
        return "" if len(record.body) == size + 1 else "its record has another size"

    def _reader(self, vhost_id: str) -> SharedReader:
        reader = self._shared.get(vhost_id)
        if reader is None:
            reader = self._shared[vhost_id] = SharedReader(self._files, self._handles, vhost_id)
        return reader

    def damaged_records(self, vhost_id: str) -> list[tuple[str, str]]:
        """(path, text) of damaged records in a shared store, wanted or not."""
        return self._reader(vhost_id).damaged_records()

    def close(self) -> None:
        self._journal.close()
        for reader in self._shared.values():
            reader.close()


def _size(run: RunPlace, position: int) -> int:
    return run.size_each if run.sizes is None else run.sizes[position]


def _why_not_stored(store: QueueStore, segment: int, offset: int, seq_id: int, size: int) -> str:
    try:
        record = store.read(segment, offset, 1)[0]
    except (StoreError, OSError) as error:
        return str(error)
    if record.seq_id != seq_id or len(record.body) != size + 1:
        return "its record is that of another message"
    return ""
