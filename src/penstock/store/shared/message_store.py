"""The shared store of a vhost: large bodies, each on disk once, however many queues want it.

A message is put with one reference and gets an address (number of the file << 32 | offset), which is all that a queue
keeps. Each queue that it goes to adds a reference, each that is done with it releases one; with the last one the body
is dead, and `compaction` gives its room back. A vhost has two stores: the persistent one, whose addresses are in the
journal and the queue indexes, and the transient one, which is for paging only and is empty after a start.

A put is buffered, up to `buffer_bytes`, then written. A body with a file of its own may take longer than a turn has
time for: it is written in slices, when the owner asks for them (`write_slice`). The owner flushes before the journal
writes a batch that names an address, and has `current_file_to_sync` synced before that batch is called durable.

Invariants
  1. An address that a durable batch names leads to the same bytes for ever, or to none. It is never given again, not
     even after a restart.
  2. A body is never answered unless all its checksums are right and its record carries this very address.
  3. A record is in the write buffer, or written, or dead; `unwritten` of its file counts the first. One of which some
     slices are written is in the buffer.
  4. A body that is released before it was written is never written. It leaves a hole in its file.
  5. A record that is on disk is never written over: what a failed flush left is written again with the same bytes.
  6. Files are appended to in the life of the process that made them only.

A crash leaves records to which nothing refers (garbage, given back by compaction) and torn ones, which at most a batch
refers to that was never called durable. The store keeps no list of what is in it: recovery counts the references, and
start() looks at the head of each record that is wanted, not at the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.disk.checksum import crc32
from penstock.disk.files import File, Files, write_all
from penstock.journal.journal import do_nothing
from penstock.message import Envelope
from penstock.store.node.removal_hold import nothing_is_held
from penstock.store.shared.body_map import FILE_HEAD_BYTES, LOWER_HALF, ONE_REFERENCE, BodyMap, StoreFile
from penstock.store.shared.body_reader import BodyReader
from penstock.store.shared.compaction import Compaction, SyncFiles, WhenDurable
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.records import (
    RECORD_HEAD_BYTES,
    BadRecord,
    Record,
    body_crc_start,
    decode_parts,
    decode_record,
    encode_front,
    encode_head,
    encode_record,
    front_crc,
    record_front_bytes,
)
from penstock.store.shared.store_files import StoreFolder

FILE_BYTES: Final = 16 * 1024 * 1024
# RabbitMQ's number: so large a body has a file to itself, which goes as soon as the body does.
OWN_FILE_BYTES: Final = 4_000_000
BUFFER_BYTES: Final = 1024 * 1024
# A millisecond or so, on a disk that has room in its cache.
SLICE_BYTES: Final = 512 * 1024
DEAD_SHARE: Final = 0.5

# Receives a message, or None when it could not be read so.
MessageRead = Callable[[tuple[Envelope, bytes] | None], None]


class BadBody(BadRecord):
    """A body of the shared store cannot be read. The text names its address and its file."""

    def __init__(self, address: int, place: int, path: str, why: str, size_bytes: int = -1) -> None:
        super().__init__(f"in {path} (address {address:#x}) {why}", place & LOWER_HALF, -1, size_bytes)
        self.address = address


@final
class MessageStoreOptions:
    """Sizes of a shared store."""

    __slots__ = ("buffer_bytes", "dead_share", "file_bytes", "own_file_bytes", "slice_bytes")

    def __init__(
        self,
        file_bytes: int = FILE_BYTES,
        dead_share: float = DEAD_SHARE,
        own_file_bytes: int = OWN_FILE_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        slice_bytes: int = SLICE_BYTES,
    ) -> None:
        assert FILE_HEAD_BYTES < file_bytes < LOWER_HALF and 0.0 < dead_share < 1.0
        # A file is not filled beyond this, except by a single record.
        self.file_bytes = file_bytes
        # A file of which more than this share is dead is compacted.
        self.dead_share = dead_share
        # A payload of this size or more gets a file of its own.
        self.own_file_bytes = own_file_bytes
        # What is put is written when so much has come together, at the latest.
        self.buffer_bytes = buffer_bytes
        # A body with a file of its own is written so much at a time.
        self.slice_bytes = slice_bytes


@final
class Closing:
    """Handles that are given back when the journal is durable, and with it everything that was to be synced first."""

    __slots__ = ("_folder", "_folders", "_numbers")

    def __init__(self, folder: StoreFolder, numbers: list[int], folders: list[File]) -> None:
        self._folder = folder
        self._numbers = numbers
        self._folders = folders

    def run(self, is_durable: bool) -> None:
        # The journal tries again after a full disk, and then still syncs these handles. The next call asks again.
        if is_durable:
            self._folder.close_writers(self._numbers)
            self._folder.close_folders(self._folders)


@final
class Reading:
    """A large body that is being read."""

    __slots__ = ("_address", "_done", "_front")

    def __init__(self, address: int, front: bytes, done: MessageRead) -> None:
        self._address = address
        self._front = front
        self._done = done

    def came(self, body: bytes | None, crc: int) -> None:
        found: tuple[Envelope, bytes] | None = None
        if body is not None:
            try:
                record = decode_parts(self._front, body, crc)
                if record.address == self._address:
                    found = (record.envelope, record.body)
            except BadRecord:
                # `read` finds the damage too, and reports it.
                found = None
        self._done(found)


class MessageStore:
    def __init__(
        self,
        files: Files,
        folder: str,
        handles: HandleCache,
        options: MessageStoreOptions,
        persistent: bool,
        sync: SyncFiles,
        when_durable: WhenDurable,
        woken: Callable[[], None] = do_nothing,
        reader: BodyReader | None = None,
        is_held: Callable[[], bool] = nothing_is_held,
    ) -> None:
        self._options = options
        self._folder = StoreFolder(files, folder, handles, persistent)
        self._bodies = BodyMap()
        self._compaction = Compaction(
            self._bodies, self._folder, options.file_bytes, options.dead_share, sync, when_durable, is_held
        )
        self._when_durable = when_durable
        self._reader = reader
        # Called at the first body of a turn: the turn's end has something to do.
        self._woken = woken
        self._current: StoreFile | None = None
        # What was put and not written, by address.
        self._buffer: dict[int, tuple[Envelope, bytes]] = {}
        self._buffer_bytes = 0
        # How much is written of the bodies that have a file of their own, by address, and the CRC up to there; how many
        # bytes of the buffer are theirs.
        self._slicing: dict[int, tuple[int, int]] = {}
        self._slicing_bytes = 0
        # What was put since the files were last handed out to be synced; 0 for a transient store.
        self.gathered_bytes = 0
        # A write failed; nothing is written of our own accord until a flush has succeeded.
        self._is_stuck = False
        # What was put in this turn, by the id of the body; holding the body keeps the id from being used again.
        self._fanout: dict[int, tuple[Envelope, bytes, int]] = {}
        self._written_count = 0
        self._written_bytes = 0
        self._elided_count = 0

    # --- start ------------------------------------------------------------------------------------

    def start(self, refs: dict[int, int]) -> list[int]:
        """Find the bodies that recovery counted references to; return the addresses that cannot be read.

        Files without any of them are removed, so what `refs` says must be durable already: the journal is synced up to
        where it was replayed. A transient store is emptied.
        """
        if not self._folder.persistent:
            assert not refs
            self._folder.wipe()
            return []
        found = self._folder.found()
        sizes: dict[int, int] = {}
        copies: dict[int, list[int]] = {}
        for file in found:
            self._bodies.newest_on_disk = file.number
            sizes[file.number] = self._folder.size(file)
            if not self._folder.is_ours(file):
                # It stays, so that an operator can look at it.
                file.damaged = True
                continue
            self._bodies.files[file.number] = file
            if file.compacted:
                for address, offset in self._folder.table(file, sizes[file.number]):
                    if address in refs:
                        copies.setdefault(address, []).append(file.number << 32 | offset)
        unreadable: list[int] = []
        for address in sorted(refs):
            # The newest copy first: then the files that a compaction was about to remove can go.
            places = [*copies.get(address, [])[::-1], address]
            if not self._enter_first_good(address, places, refs[address], sizes):
                unreadable.append(address)
        newest = max([*sizes, *[address >> 32 for address in refs]], default=0)
        self._bodies.next_number = newest + 1
        self._tidy(found, sizes)
        return unreadable

    def _enter_first_good(self, address: int, places: Sequence[int], references: int, sizes: dict[int, int]) -> bool:
        for place in places:
            file = self._bodies.files.get(place >> 32)
            if file is None or (file.compacted and place == address):
                continue
            offset = place & LOWER_HALF
            try:
                known_as, size = self._folder.record_at(file, offset)
                if known_as == address and offset + size <= sizes[file.number]:
                    self._bodies.enter(file, address, offset, size, references)
                    return True
            except BadRecord:
                file.damaged = True
                continue
            file.damaged = True
        return False

    def _tidy(self, found: Sequence[StoreFile], sizes: dict[int, int]) -> None:
        """Remove the files in which nothing is wanted; make sure that the others last."""
        if found:
            # A file may have its name since the last moment of a process that was killed.
            self._folder.sync_names()
        for file in found:
            file.data_bytes = max(sizes[file.number] - FILE_HEAD_BYTES, file.live_bytes)
            self._bodies.suspects.add(file.number)
            if file.live_count > 0 and not file.compacted:
                # Written, referred to, and then killed before the sync: replay has found it all the same.
                self._folder.sync(file)
        self._compaction.remove_files([file for file in found if file.can_be_cleared()])

    # --- references -------------------------------------------------------------------------------

    def put(self, envelope: Envelope, body: bytes) -> int:
        """Keep a message, with one reference. The same objects again in this turn: one more reference, one copy."""
        known = self._fanout.get(id(body))
        if known is not None and known[0] is envelope and known[2] in self._bodies.live:
            self.add_reference(known[2])
            return known[2]
        size = _size(envelope, body)
        file = self._file_for(size, len(body) - 1)
        address = self._bodies.append(file, size)
        file.unwritten += 1
        if not self._fanout:
            self._woken()
        if self._folder.persistent:
            self.gathered_bytes += size
        self._buffer[address] = (envelope, body)
        self._buffer_bytes += size
        self._fanout[id(body)] = (envelope, body, address)
        if size > self._options.slice_bytes and file.sealed:
            self._slicing[address] = (0, front_crc(_head(envelope, body, address), envelope))
            self._slicing_bytes += size
        elif self._buffer_bytes - self._slicing_bytes >= self._options.buffer_bytes and not self._is_stuck:
            try:
                self._flush_small()
            except OSError:
                # Everything is still in the buffer, and the next flush raises the error.
                self._is_stuck = True
        return address

    def end_fanout(self) -> None:
        """The turn is over: an object that is put from now on is another message."""
        self._fanout.clear()

    def add_reference(self, address: int) -> None:
        """One more queue wants a body that is wanted already."""
        self._bodies.live[address] += ONE_REFERENCE

    def release(self, address: int) -> None:
        """One queue is done with a body."""
        record = self._buffer.get(address)
        file = self._bodies.file_of(address)
        if self._bodies.release(address) and record is not None:
            self._leave_buffer(address)
            file.unwritten -= 1
            self._elided_count += 1

    def _leave_buffer(self, address: int) -> int:
        """Take a record out of the buffer; how many bytes it has."""
        size = _size(*self._buffer.pop(address))
        self._buffer_bytes -= size
        if self._slicing.pop(address, None) is not None:
            self._slicing_bytes -= size
        return size

    def _file_for(self, record_size: int, payload_size: int) -> StoreFile:
        if payload_size >= self._options.own_file_bytes:
            file = self._bodies.new_file(False)
            file.sealed = True
            return file
        current = self._current
        if current is not None and current.end() + record_size > self._options.file_bytes and current.data_bytes > 0:
            self._seal(current)
            current = None
        if current is None:
            current = self._bodies.new_file(False)
            self._current = current
        return current

    def _seal(self, file: StoreFile) -> None:
        file.sealed = True
        self._bodies.suspects.add(file.number)
        self._current = None

    # --- reading ----------------------------------------------------------------------------------

    def read(self, address: int) -> tuple[Envelope, bytes]:
        """Return the message, checked. Raises BadBody, a BadRecord; other errors of the machine come as OSError."""
        entry = self._bodies.live.get(address)
        if entry is None:
            raise BadBody(address, address, self._folder.folder, "is not wanted by anybody, or was never there")
        size = entry & LOWER_HALF
        place = self._bodies.place(address)
        file = self._bodies.files[place >> 32]
        buffered = self._buffer.get(address)
        if buffered is not None:
            return buffered
        try:
            record = self._read(file, size, place & LOWER_HALF)
        except BadRecord as bad:
            file.damaged = True
            raise BadBody(address, place, self._folder.path(file), bad.why, size) from bad
        if record.address != address or record.size_bytes != size:
            file.damaged = True
            raise BadBody(address, place, self._folder.path(file), "is another one", size)
        return record.envelope, record.body

    def _read(self, file: StoreFile, size: int, offset: int) -> Record:
        if size <= self._options.slice_bytes:
            return decode_record(self._folder.read(file, size, offset), 0)
        # The body by itself: cutting it out of the record would be one more copy.
        front = self._read_front(file, offset)
        body = self._folder.read(file, size - len(front), offset + len(front))
        return decode_parts(front, body, crc32(body, body_crc_start(front)))

    def _read_front(self, file: StoreFile, offset: int) -> bytes:
        front_bytes = record_front_bytes(self._folder.read(file, RECORD_HEAD_BYTES, offset), 0)
        return self._folder.read(file, front_bytes, offset)

    def read_later(self, address: int, done: MessageRead) -> bool:
        """Have a large body read beside the loop; False when `read` is to be called: it is fast, or knows more."""
        entry = self._bodies.live.get(address)
        if self._reader is None or entry is None or address in self._buffer:
            return False
        size = entry & LOWER_HALF
        if size < self._options.own_file_bytes:
            return False
        place = self._bodies.place(address)
        file = self._bodies.files[place >> 32]
        offset = place & LOWER_HALF
        try:
            front = self._read_front(file, offset)
            crc = body_crc_start(front)
            # With a descriptor of its own: the cache may close the other meanwhile.
            own = self._folder.files.open(self._folder.path(file))
        except (BadRecord, OSError):
            return False
        self._reader.submit(own, size - len(front), offset + len(front), crc, Reading(address, front, done).came)
        return True

    def is_large(self, address: int) -> bool:
        """Return whether a body takes long to read, and is on disk."""
        entry = self._bodies.live.get(address, 0)
        return entry & LOWER_HALF >= self._options.own_file_bytes and address not in self._buffer

    def is_empty(self) -> bool:
        """Return whether nothing in it is wanted."""
        return not self._bodies.live

    def is_written(self, address: int) -> bool:
        """Return whether a wanted body has left the buffer."""
        return address in self._bodies.live and address not in self._buffer

    # --- writing ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what was put. After an OSError the rest is still in the buffer, to be tried again."""
        for address in list(self._slicing):
            while address in self._slicing:
                self._write_slice(address)
        self._flush_small()

    def _flush_small(self) -> None:
        addresses = sorted([address for address in self._buffer if address not in self._slicing])
        start = 0
        while start < len(addresses):
            number = addresses[start] >> 32
            end = start + 1
            while end < len(addresses) and addresses[end] >> 32 == number:
                end += 1
            self._write(self._bodies.files[number], addresses[start:end])
            start = end
        self._is_stuck = False

    def _write(self, file: StoreFile, addresses: list[int]) -> None:
        handle = self._folder.writer(file)
        self._bodies.newest_on_disk = max(self._bodies.newest_on_disk, file.number)
        offset = addresses[0] & LOWER_HALF
        end = offset
        pieces: list[bytes] = []
        for address in addresses:
            envelope, body = self._buffer[address]
            if address & LOWER_HALF != end:
                # A hole: what was to be there was released.
                write_all(handle, pieces, offset)
                pieces = []
                offset = end = address & LOWER_HALF
            record = encode_record(-1, envelope, body, -1, address)
            pieces.append(record)
            end += len(record)
        write_all(handle, pieces, offset)
        for address in addresses:
            self._written_bytes += self._leave_buffer(address)
        self._written_count += len(addresses)
        file.unwritten -= len(addresses)
        self._folder.written(file)

    def is_behind(self) -> bool:
        """Return whether a body waits for its next slice. Not after a write that failed: then a flush tells why."""
        return bool(self._slicing) and not self._is_stuck

    def write_slice(self) -> None:
        """Write some of a body that waits for that; some does."""
        for address in self._slicing:
            try:
                self._write_slice(address)
            except OSError:
                # As in `put`.
                self._is_stuck = True
            return

    def _write_slice(self, address: int) -> None:
        """Write the next piece of the body; with the last one what stands before it, which has the CRC of all."""
        file = self._bodies.file_of(address)
        handle = self._folder.writer(file)
        self._bodies.newest_on_disk = max(self._bodies.newest_on_disk, file.number)
        envelope, body = self._buffer[address]
        done, crc = self._slicing[address]
        piece = body[done : done + self._options.slice_bytes]
        start = address & LOWER_HALF
        write_all(handle, [piece], start + _size(envelope, body) - len(body) + done)
        crc = crc32(piece, crc)
        self._folder.written(file)
        done += len(piece)
        if done == len(body):
            write_all(handle, [encode_front(_head(envelope, body, address), envelope, crc)], start)
            self._written_bytes += self._leave_buffer(address)
            self._written_count += 1
            file.unwritten -= 1
            self._folder.written(file)
        else:
            self._slicing[address] = (done, crc)

    def current_file_to_sync(self) -> list[File]:
        """Return files with bytes that were not synced, each given out once; empty for a transient store.

        The caller has them synced before the journal's next batch is durable. Until then they stay open.
        """
        self.gathered_bytes = 0
        given_out = self._folder.given_out()
        lent = self._folder.lent_folders()
        if given_out or lent:
            self._when_durable(Closing(self._folder, given_out, lent).run)
        return self._folder.take_unsynced()

    def compact_some(self, bytes_max: int) -> bool:
        """One slice of compaction; True if there is more to do at once.

        False while a copy is being synced: it goes on by itself when the sync calls back.
        """
        current = self._current
        if current is not None and current.unwritten == 0:
            dead_bytes = current.data_bytes - current.live_bytes
            # A file that is not filled up any more gives its room back, too.
            if dead_bytes > self._options.dead_share * self._options.file_bytes:
                self._seal(current)
        return self._compaction.step(bytes_max)

    # --- looking in -------------------------------------------------------------------------------

    def status(self) -> dict[str, int]:
        """Return counters for operators."""
        data_bytes = sum([file.data_bytes for file in self._bodies.files.values()])
        return {
            "bodies": len(self._bodies.live),
            "live_bytes": self._bodies.live_bytes,
            "dead_bytes": data_bytes - self._bodies.live_bytes,
            "files": len([file for file in self._bodies.files.values() if file.on_disk]),
            "buffered_bytes": self._buffer_bytes,
            "moved": len(self._bodies.moved),
            "writes": self._written_count,
            "written_bytes": self._written_bytes,
            "elided": self._elided_count,
            "compactions": self._compaction.done_count,
            "failed_compactions": self._compaction.failed_count,
            "copied_bytes": self._compaction.copied_bytes,
            "damaged_files": len([file for file in self._bodies.files.values() if file.damaged]),
        }

    def check_invariants(self) -> None:
        self._bodies.check_invariants()
        for file in self._bodies.files.values():
            unwritten = [address for address in self._buffer if address >> 32 == file.number]
            assert file.unwritten == len(unwritten), "3: unwritten records"
        sizes = {address: _size(*record) for address, record in self._buffer.items()}
        assert self._buffer_bytes == sum(sizes.values()), "bytes of the buffer"
        assert self._slicing_bytes == sum([sizes[address] for address in self._slicing]), "bytes in slices"
        assert self._slicing.keys() <= self._buffer.keys(), "3: written, and to be written"
        assert self._buffer.keys() <= self._bodies.live.keys(), "4: a dead record is still to be written"

    def close(self) -> None:
        """Give every handle back. What was not flushed is dropped: the owner has flushed and synced what matters."""
        self._compaction.abandon()
        self._folder.close()


def _size(envelope: Envelope, body: bytes) -> int:
    return RECORD_HEAD_BYTES + len(envelope.address) + len(envelope.properties) + len(body)


def _head(envelope: Envelope, body: bytes, address: int) -> bytes:
    return encode_head(-1, envelope, len(body), -1, address)
