"""Where one queue's bodies go and come from: the journal, its own store, the shared stores, and the index.

It turns alphas into something that can be forgotten (`write_out`), reads bodies back (`read`), and releases what is
gone. `zones` and `paging` decide which messages, and when. A persistent body is in the journal or in the shared store
from its publish on; a transient one is written when it is paged out, small ones to the queue's store, large ones to the
transient shared store.

Invariants
  1. A body is written here at most once, and never when it is on disk already.
  2. A body that fails its checksum is never handed out: `read` has None in its place.
  3. Each message in a shared store holds one reference there, from `keep_large` or `write_out` to `release`.
  4. After an OSError the runs that were given are as they were; what was written in vain is garbage in a file.
  5. Once `open_shared` was called, `keep_large` and `release` do not raise OSError.

After a crash transient bodies are wiped at the next start; bodies in the queue's store count from the checkpoint on
that names them.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from typing import Final, final

from penstock.backing.variable.body_ahead import BodyAhead
from penstock.backing.zones.msg_status import MsgStatus, Settled
from penstock.disk.files import File, is_temporary
from penstock.journal.journal import do_nothing
from penstock.journal.place import BatchPlace
from penstock.journal.reading.replay import RottenBatch
from penstock.message import Entry, Envelope
from penstock.store.node.node_store import NodeStore
from penstock.store.node.queue_names import queue_folder
from penstock.store.queue import places
from penstock.store.queue.live_map import LiveMap
from penstock.store.queue.places import StoreError
from penstock.store.queue.queue_index import QueueIndex
from penstock.store.queue.queue_store import QueueStore
from penstock.store.queue.segment_files import Post
from penstock.store.shared.message_store import MessageStore
from penstock.store.shared.shared_stores import ReleaseSome

log: Final = logging.getLogger("penstock.store")


@final
class Homes:
    def __init__(self, node: NodeStore, vhost_id: str, queue_id: str, slots: int, post: Post) -> None:
        # The large body that is next. Its queue sets it.
        # Large bodies that are read beside the loop: the one at the head, and one that was handed out and is to leave.
        self.ahead = BodyAhead(do_nothing)
        self.leaving = BodyAhead(do_nothing)
        # And one that browsers are to be shown.
        self.shown = BodyAhead(do_nothing)
        self.journal = node.journal
        # Seq_ids per file.
        self.slots = slots
        self.embed_below = node.options.embed_below
        folder = queue_folder(vhost_id, queue_id)
        self.index = QueueIndex(node.files, f"{folder}/idx", node.handles, self.slots, post)
        self.store = QueueStore(node.files, f"{folder}/qs", node.handles, self.slots, post)
        self.node = node
        self._vhost_id = vhost_id
        # Names the queue in reports: an id, nothing that a client chose.
        self.folder = folder
        self._persistent: MessageStore | None = None
        self._transient: MessageStore | None = None
        # Files that may exist: of the index, with how many slots lead to a shared store; of the queue's own store.
        self.index_segments: dict[int, int] = {}
        self.store_segments: set[int] = set()
        self._doomed: list[int] = []
        # Segments below were looked at, and their files given up when nothing was left.
        self._swept_segment = 0
        # Transient messages of a durable queue that have slots: no checkpoint may take them for persistent ones. Those
        # that are meant are the ones that are gone in there.
        self.transients = LiveMap(slots)
        self.is_durable = False
        # Bodies that were written here, and bodies that were read; for `status`.
        self.writes = 0
        self.reads = 0

    def is_large(self, envelope: Envelope, body_bytes: int) -> bool:
        """Whether a message belongs into the shared store. The threshold counts what describes it too; 0 = never."""
        size = body_bytes + len(envelope.properties) + len(envelope.address)
        return size >= self.embed_below > 0

    def keep_large(self, entries: Sequence[Entry]) -> array[int]:
        """Put large persistent bodies into the shared store; their addresses."""
        store = self._large(True)
        self.writes += len(entries)
        return array("q", [store.put(entry[0], entry[1]) for entry in entries])

    def open_shared(self) -> None:
        """Before the first message comes: no publish shall find out in its middle that there is no shared store."""
        if self.embed_below > 0:
            self._large(True)

    def _large(self, persistent: bool) -> MessageStore:
        if persistent:
            if self._persistent is None:
                self._persistent = self.node.message_store(self._vhost_id, True)
            return self._persistent
        if self._transient is None:
            self._transient = self.node.message_store(self._vhost_id, False)
        return self._transient

    # --- out ----------------------------------------------------------------------------------------

    def write_out(self, status: MsgStatus) -> list[MsgStatus]:
        """Write bodies that are only in RAM; the same messages, in runs that each lie in one file.

        The bodies stay in RAM until `forget_bodies`.
        """
        assert status.msg_in_store == places.MEMORY
        if status.persist_to == places.MSG_STORE:
            store = self._large(False)
            status.addresses = array("q", [store.put(entry[0], entry[1]) for entry in status.entries()])
            status.msg_in_store = places.MSG_STORE
            parts = [status]
        else:
            crosses = status.seq_id // self.slots != status.last_seq_id() // self.slots
            # A copy is cut: the run itself is still right when the disk turns out to be full.
            whole = status.part_for(status.seq_id, status.count) if crosses else status
            parts = [self._append(part) for part in self._by_file(whole)]
        self.writes += status.count
        return parts

    def move_home(self, status: MsgStatus) -> list[MsgStatus]:
        """Copy bodies that are in the journal, and in RAM now, to the queue's store; the messages in their new place.

        Used when a journal segment is to go, and for what must leave RAM before its batch is written. The run itself
        stays as it is: it is still right when the disk turns out to be full.
        """
        assert status.msg_in_store == places.JOURNAL
        twin = status.part_for(status.seq_id, status.count)
        twin.msg_in_store = places.MEMORY
        twin.entry = 0
        self.writes += status.count
        return [self._append(part) for part in self._by_file(twin)]

    def _by_file(self, status: MsgStatus) -> list[MsgStatus]:
        """Cut where one file of the queue's store ends and the next begins."""
        parts: list[MsgStatus] = []
        while True:
            until = (status.seq_id // self.slots + 1) * self.slots
            if status.last_seq_id() < until:
                parts.append(status)
                return parts
            parts.append(status.split_front(until - status.seq_id))

    def _append(self, status: MsgStatus) -> MsgStatus:
        addresses = array("q")
        expiry_ms = status.expiry_ms()
        end = 0
        seq_id = status.seq_id
        for entry in status.entries():
            offset, size = self.store.append(seq_id, entry[0], entry[1], expiry_ms)
            addresses.append(offset)
            end = offset + size
            seq_id += 1
        addresses.append(end)
        status.addresses = addresses
        place = BatchPlace()
        place.segment = status.seq_id // self.slots
        place.pos = 0
        status.place = place
        status.msg_in_store = places.QUEUE_STORE
        if place.segment not in self.store_segments:
            self.store_segments.add(place.segment)
            self._files_changed()
        return status

    def write_slots(self, status: MsgStatus) -> None:
        """From beta to gamma: positions go to the index."""
        if status.index_on_disk:
            return
        self.index.write(status.seq_id, status.slots())
        self._wrote_slots(status)

    def write_all_slots(self, runs: Sequence[MsgStatus]) -> None:
        """The same for many runs, in the order of seq_ids: the slots of neighbours are written together."""
        index = 0
        while index < len(runs):
            first = runs[index]
            stop = index + 1
            if first.index_on_disk:
                index = stop
                continue
            slots = first.slots()
            while stop < len(runs) and runs[stop].seq_id == first.seq_id + len(slots) and not runs[stop].index_on_disk:
                slots += runs[stop].slots()
                stop += 1
            self.index.write(first.seq_id, slots)
            for status in runs[index:stop]:
                self._wrote_slots(status)
            index = stop

    def _wrote_slots(self, status: MsgStatus) -> None:
        status.index_on_disk = True
        if self.is_durable and not status.is_persistent:
            self.transients.remove(status.seq_id, status.count)
        shared = 1 if status.msg_in_store == places.MSG_STORE else 0
        for segment in range(status.seq_id // self.slots, status.last_seq_id() // self.slots + 1):
            if segment not in self.index_segments:
                self._files_changed()
            self.index_segments[segment] = self.index_segments.get(segment, 0) + shared

    def _files_changed(self) -> None:
        """A file is begun, or is needed no more: the next checkpoint has something to do."""
        if self.is_durable:
            self.node.queue_files_changed += 1

    # --- in -----------------------------------------------------------------------------------------

    def read(self, status: MsgStatus) -> list[Entry | None]:
        """Return the messages of a run whose bodies are on disk; None for what is damaged.

        An OSError that comes out, EIO included, says nothing about the bytes: the same call may succeed later.
        """
        self.reads += status.count
        props = status.msg_props
        found: list[Entry | None] = []
        if status.msg_in_store == places.JOURNAL:
            for item in self._read_journal(status):
                found.append(None if item is None else (item[0], item[1], props))
        elif status.msg_in_store == places.MSG_STORE:
            store = self._large(status.is_persistent)
            assert status.addresses is not None
            for address in status.addresses:
                try:
                    envelope, body = self._read_before(status.is_persistent, address) or store.read(address)
                    found.append((envelope, body, props))
                except StoreError:
                    found.append(None)
        else:
            found.extend(self._read_queue_store(status))
        return found

    def _read_before(self, is_persistent: bool, address: int) -> tuple[Envelope, bytes] | None:
        """Return a large body that was read beside the loop."""
        found = self.ahead.take(is_persistent, address) or self.leaving.take(is_persistent, address)
        return found or self.shown.take(is_persistent, address)

    def is_slow(self, status: MsgStatus, index: int) -> bool:
        """Return whether a body of a run without bodies takes long to read."""
        if status.msg_in_store != places.MSG_STORE:
            return False
        assert status.addresses is not None
        return self._large(status.is_persistent).is_large(status.addresses[index])

    def await_leaving(self, status: MsgStatus, index: int) -> bool:
        """Return whether a large body of a run is being read beside the loop; from now on if need be."""
        assert status.addresses is not None
        return self.leaving.begin(self._large(status.is_persistent), status.is_persistent, status.addresses[index])

    def await_shown(self, status: MsgStatus, index: int) -> bool:
        """The same for one that is only looked at."""
        assert status.addresses is not None
        return self.shown.begin_in_turn(
            self._large(status.is_persistent), status.is_persistent, status.addresses[index]
        )

    def ram_bytes(self) -> int:
        """Return what large bodies take that were read and are not taken yet."""
        return self.ahead.ram_bytes() + self.leaving.ram_bytes() + self.shown.ram_bytes()

    def look_at_bodies(self) -> None:
        """Called now and then: forget large bodies that nobody takes."""
        self.ahead.look()
        self.leaving.look()
        self.shown.look()

    def is_reading(self, status: MsgStatus) -> bool:
        """Return whether the first body of a run is large, and is being read beside the loop."""
        if status.msg_in_store != places.MSG_STORE:
            return False
        assert status.addresses is not None
        return self.ahead.begin(self._large(status.is_persistent), status.is_persistent, status.addresses[0])

    def read_one(self, status: MsgStatus, index: int) -> Entry | None:
        """Read one message of a run: as `read`, but its neighbours are not read."""
        self.reads += 1
        try:
            if status.msg_in_store == places.JOURNAL:
                place = status.place
                item = self.journal.batches.read_one(place.segment, place.pos, status.entry + index)
                return None if item is None else (item[0], item[1], status.msg_props)
            assert status.addresses is not None
            if status.msg_in_store == places.MSG_STORE:
                address = status.addresses[index]
                before = self._read_before(status.is_persistent, address)
                envelope, body = before or self._large(status.is_persistent).read(address)
                return envelope, body, status.msg_props
        except (RottenBatch, StoreError):
            return None
        return self._read_record(status.place.segment, status.addresses[index], status, index)

    def look(self, status: MsgStatus) -> list[Entry | None]:
        """As `read`, for looking only: None for what cannot be read now, too."""
        try:
            return self.read(status)
        except OSError as error:
            if is_temporary(error):
                raise
        return [self.look_at(status, index) for index in range(status.count)]

    def look_at(self, status: MsgStatus, index: int) -> Entry | None:
        """As `read_one`, for looking only."""
        try:
            return self.read_one(status, index)
        except OSError as error:
            if is_temporary(error):
                raise
            return None

    def _read_journal(self, status: MsgStatus) -> Sequence[tuple[Envelope, bytes] | None]:
        place = status.place
        try:
            return self.journal.batches.read_run(place.segment, place.pos, status.entry, status.count)
        except RottenBatch:
            return [None] * status.count

    def _read_queue_store(self, status: MsgStatus) -> list[Entry | None]:
        addresses = status.addresses
        assert addresses is not None
        segment = status.place.segment
        try:
            records = self.store.read(segment, addresses[0], status.count, status.seq_id)
            return [(record.envelope, record.body, status.msg_props) for record in records]
        except (StoreError, OSError) as error:
            if isinstance(error, OSError) and not places.is_damage(error):
                raise
            return [self._read_record(segment, addresses[index], status, index) for index in range(status.count)]

    def _read_record(self, segment: int, offset: int, status: MsgStatus, index: int) -> Entry | None:
        """One message in the queue's store; None when it is damaged."""
        try:
            record = self.store.read(segment, offset, 1, status.seq_id + index)[0]
        except (StoreError, OSError) as error:
            if isinstance(error, OSError) and not places.is_damage(error):
                raise
            return None
        return (record.envelope, record.body, status.msg_props)

    # --- gone ---------------------------------------------------------------------------------------

    def release(self, status: MsgStatus, index: int, count: int) -> None:
        """Give back the references of messages that are gone."""
        if status.msg_in_store == places.MSG_STORE:
            store = self._large(status.is_persistent)
            assert status.addresses is not None
            for address in status.addresses[index : index + count]:
                store.release(address)

    def has_shared(self) -> bool:
        """False when the queue can have nothing in the shared stores: they are empty."""
        for store in (self._persistent, self._transient):
            if store is not None and not store.is_empty():
                return True
        return False

    def release_later(self, release_some: ReleaseSome) -> None:
        """Have references given back in the turns to come."""
        self.node.shared_stores.release_later(self._vhost_id, release_some)

    def sweep(self, live: LiveMap) -> None:
        """Give up the files of stretches in which nothing is left. A checkpoint has to say so before they go."""
        segment = live.low // live.slots
        if segment > self._swept_segment:
            self._swept_segment = segment
            for number in {*self.index_segments, *self.store_segments}:
                if live.segment_is_gone(number):
                    self.doom_segment(number)
            if not self.is_durable:
                self.delete_segments(self.doomed())

    def sweep_between(self, live: LiveMap, settled: list[Settled]) -> None:
        """The same for stretches that are gone before those in front of them."""
        low = live.low
        slots = live.slots
        for first, count, _, _ in settled:
            if first + count <= low:
                continue
            for number in range(first // slots, (first + count - 1) // slots + 1):
                if live.segment_is_gone(number) and (number in self.index_segments or number in self.store_segments):
                    self.doom_segment(number)
                    if not self.is_durable:
                        self.delete_segments(self.doomed())

    def doom_segment(self, segment: int) -> None:
        """No message of this stretch is left: no snapshot names its files any more."""
        self.index_segments.pop(segment, None)
        self.store_segments.discard(segment)
        self._doomed.append(segment)
        self._files_changed()

    def doomed(self) -> list[int]:
        """Segments that can go as soon as what made them superfluous is durable."""
        doomed = self._doomed
        self._doomed = []
        return doomed

    def delete_segments(self, segments: list[int]) -> None:
        """Remove the files of doomed segments. One that cannot be removed now stays doomed."""
        for segment in segments:
            try:
                if segment not in self.index_segments:
                    self.index.delete_segment(segment)
                if segment not in self.store_segments:
                    self.store.delete_segment(segment)
            except OSError as error:
                self._doomed.append(segment)
                log.warning("a file of %s that nobody needs cannot be removed now: %s", self.folder, error)

    def delete_all(self) -> None:
        """Remove every file of the queue. What cannot be removed is left to the next start."""
        if self.is_durable and self.node.removals.is_active():
            self.node.removals.remove_later(self.delete_all)
            return
        self.index_segments.clear()
        self.store_segments.clear()
        try:
            try:
                self.index.delete_all()
            finally:
                self.store.delete_all()
            self.node.files.remove_dir(self.folder)
        except OSError as error:
            log.warning("%s is deleted, but its files cannot be removed now: %s", self.folder, error)

    # --- checkpoint ---------------------------------------------------------------------------------

    def flush(self) -> None:
        self.index.flush()
        self.store.flush()
        self.index.segments.begin_sync()
        self.store.segments.begin_sync()

    def files_to_sync(self, count_max: int) -> list[File]:
        files = self.index.segments.files_to_sync(count_max)
        if len(files) < count_max:
            files.extend(self.store.segments.files_to_sync(count_max - len(files)))
        return files

    def synced(self) -> None:
        self.index.segments.synced()
        self.store.segments.synced()

    def sync_given_up(self) -> None:
        self.index.segments.sync_given_up()
        self.store.segments.sync_given_up()

    def give_back(self) -> None:
        """The queue idles: write buffers, close files. After an OSError the buffers have what was not written."""
        try:
            self.index.close()
        finally:
            self.store.close()
