"""What a queue knows about messages that it holds: RabbitMQ's msg_status, for a run of them.

A `MsgStatus` stands for consecutive messages that share everything but their bodies: they came together, or lie side by
side on the disk. q1 … q4 are made of these. A single message is a run of one. The fields of RabbitMQ's record are there
under their names; the rest says the same for more than one message.

  alpha   body and position in RAM            msg is a list
  beta    position in RAM, body on disk       msg is None, msg_in_store says where
  gamma   a beta whose position is on disk    index_on_disk as well
  delta   only on disk                        no MsgStatus: a range of seq_ids in `zones`

Invariants
  1. `msg` is a list, or `msg_in_store` is not MEMORY.
  2. A persistent run is never in MEMORY only.
  3. All messages of a run have the same expiry, were all delivered before or none, and lie in one place.
  4. A run in the queue's store lies within one file; a run in the journal within one batch.
"""

from __future__ import annotations

from array import array
from typing import Final, final

from penstock.journal.place import BatchPlace
from penstock.message import Entry, MessageProps, large_properties_bytes
from penstock.store.queue import places
from penstock.store.queue.queue_state import RunPlace, addresses_count

NOWHERE: Final = BatchPlace()

# (first seq_id, count, payload bytes, persistent): neighbours that were settled together.
Settled = tuple[int, int, int, bool]


@final
class MsgStatus:
    __slots__ = (
        "addresses",
        "count",
        "entry",
        "index_on_disk",
        "is_delivered",
        "is_heavy",
        "is_persistent",
        "is_read_back",
        "msg",
        "msg_id",
        "msg_in_store",
        "msg_props",
        "persist_to",
        "place",
        "seq_id",
        "size_bytes",
        "size_each",
        "sizes",
        "start",
    )

    def __init__(
        self,
        seq_id: int,
        count: int,
        msg: list[Entry] | None,
        msg_props: MessageProps | None,
        size_each: int,
        size_bytes: int,
        persist_to: int,
    ) -> None:
        self.seq_id = seq_id
        self.count = count
        # The journal's number of the first message (its LSN); -1 for what is not in the journal.
        self.msg_id = -1
        # The messages in RAM, from `start` on; what stands before has been taken.
        self.msg = msg
        self.start = 0
        self.is_persistent = False
        self.is_delivered = False
        # Where the bodies are on disk (places.*).
        self.msg_in_store: int = places.MEMORY
        # A slot of the queue index leads to each message.
        self.index_on_disk = False
        # Where the bodies belong by their size: QUEUE_STORE or MSG_STORE.
        self.persist_to = persist_to
        # The expiry; None when they do not expire.
        self.msg_props = msg_props
        # JOURNAL: the batch and the first entry. QUEUE_STORE: `place.segment` is the file.
        self.place = NOWHERE
        self.entry = 0
        self.addresses: array[int] | None = None
        # Payload bytes: of all; of each when they are equal, else -1; `sizes` when `msg` does not tell.
        self.size_bytes = size_bytes
        self.size_each = size_each
        self.sizes: array[int] | None = None
        # Some of the messages in RAM have large properties.
        self.is_heavy = False
        # The messages in RAM were read from the disk, and can be had from there again.
        self.is_read_back = False

    def ram_bytes(self) -> int:
        """What the messages take in RAM besides their usual overhead: bodies, and properties that are large."""
        if not self.is_heavy:
            return self.size_bytes
        return self.size_bytes + large_properties_bytes(self.entries())

    def load(self, entries: list[Entry]) -> None:
        """From beta to alpha: the messages are in RAM again."""
        self.msg = entries
        self.start = 0
        self.is_heavy = large_properties_bytes(entries) > 0
        self.is_read_back = True

    def entries(self) -> list[Entry]:
        """Return the messages; only while they are in RAM. The list is not to be changed."""
        assert self.msg is not None
        if self.start == 0 and len(self.msg) == self.count:
            return self.msg
        return self.msg[self.start : self.start + self.count]

    def expiry_ms(self) -> int:
        return -1 if self.msg_props is None else self.msg_props.expiry_ms

    def last_seq_id(self) -> int:
        return self.seq_id + self.count - 1

    def is_written(self) -> bool:
        """False while the journal still gathers the batch: the bodies can only be had from RAM."""
        return self.msg_in_store != places.JOURNAL or self.place.segment >= 0

    def can_forget_bodies(self) -> bool:
        """The bodies are on disk, and can be read from there."""
        return self.msg_in_store != places.MEMORY and self.is_written()

    def size_of(self, index: int) -> int:
        """Return payload bytes of one message of the run."""
        if self.size_each >= 0:
            return self.size_each
        if self.sizes is not None:
            return self.sizes[index]
        assert self.msg is not None
        return len(self.msg[self.start + index][1]) - 1

    def size_of_first(self, count: int) -> int:
        """Return payload bytes of the first messages."""
        if self.size_each >= 0:
            return self.size_each * count
        if count == self.count:
            return self.size_bytes
        if self.sizes is not None:
            return sum(self.sizes[:count])
        assert self.msg is not None
        return sum([len(entry[1]) for entry in self.msg[self.start : self.start + count]]) - count

    def count_within(self, count_max: int, bytes_max: int) -> int:
        """Return how many from the front: the first, and those after it as long as their bodies fit."""
        count = min(count_max, self.count)
        if self.size_bytes <= bytes_max:
            return count
        if self.size_each >= 0:
            return max(1, min(count, bytes_max // self.size_each))
        size = 0
        for index in range(count):
            size += self.size_of(index)
            if size > bytes_max:
                return max(1, index)
        return count

    def forget_bodies(self) -> None:
        """From alpha to beta: the bodies stay on disk only."""
        assert self.can_forget_bodies()
        if self.msg is not None:
            if self.size_each < 0 and self.sizes is None:
                self.sizes = array("i", [len(entry[1]) - 1 for entry in self.entries()])
            self.msg = None
            self.start = 0
            self.is_heavy = self.is_read_back = False

    def split_front(self, count: int) -> MsgStatus:
        """Take the first messages out of this run, as a run of their own."""
        front = self._part(0, count)
        self.drop_front(count, front.size_bytes)
        return front

    def drop_front(self, count: int, size: int) -> None:
        """Leave out the first messages, which have so many payload bytes."""
        assert 0 < count < self.count
        self.seq_id += count
        self.count -= count
        self.size_bytes -= size
        if self.msg is not None:
            self.start += count
        if self.sizes is not None:
            self.sizes = self.sizes[count:]
        if self.addresses is not None:
            self.addresses = self.addresses[count:]
        if self.msg_in_store == places.JOURNAL:
            self.entry += count
        if self.msg_id >= 0:
            self.msg_id += count

    def split_rear(self, count: int) -> MsgStatus:
        """Take the last messages out of this run, as a run of their own."""
        assert 0 < count < self.count
        keep = self.count - count
        rear = self._part(keep, count)
        self.size_bytes -= rear.size_bytes
        self.count = keep
        if self.msg is not None:
            # A list that is longer than the run would look as if more could be appended to it.
            self.msg = self.msg[self.start : self.start + keep]
            self.start = 0
        if self.sizes is not None:
            self.sizes = self.sizes[:keep]
        if self.addresses is not None:
            self.addresses = self.addresses[: addresses_count(self.msg_in_store, keep)]
        return rear

    def _part(self, offset: int, count: int) -> MsgStatus:
        msg: list[Entry] | None = None
        if self.msg is not None:
            msg = self.msg[self.start + offset : self.start + offset + count]
        sizes = None if self.sizes is None else self.sizes[offset : offset + count]
        if self.size_each >= 0:
            size = self.size_each * count
        elif sizes is not None:
            size = sum(sizes)
        else:
            assert msg is not None
            size = sum([len(entry[1]) for entry in msg]) - count
        part = MsgStatus(self.seq_id + offset, count, msg, self.msg_props, self.size_each, size, self.persist_to)
        part.msg_id = self.msg_id + offset if self.msg_id >= 0 else -1
        part.is_persistent = self.is_persistent
        part.is_delivered = self.is_delivered
        part.is_heavy = self.is_heavy
        part.is_read_back = self.is_read_back
        part.msg_in_store = self.msg_in_store
        part.index_on_disk = self.index_on_disk
        part.place = self.place
        part.entry = self.entry + offset if self.msg_in_store == places.JOURNAL else 0
        part.sizes = sizes
        if self.addresses is not None:
            part.addresses = self.addresses[offset : offset + addresses_count(self.msg_in_store, count)]
        return part

    def part_for(self, seq_id: int, count: int) -> MsgStatus:
        """Return a copy for some of the messages; this run stays as it is."""
        return self._part(seq_id - self.seq_id, count)

    def run_place(self) -> RunPlace:
        """Where the messages are, for a checkpoint."""
        assert self.can_forget_bodies()
        sizes = self.sizes
        if self.size_each < 0 and sizes is None:
            sizes = array("i", [len(entry[1]) - 1 for entry in self.entries()])
        return RunPlace(
            self.seq_id,
            self.count,
            self.msg_in_store,
            self.place.segment,
            self.place.pos,
            self.entry,
            self.expiry_ms(),
            self.size_each,
            sizes,
            self.addresses,
        )

    def slots(self) -> list[places.Slot]:
        """What the queue index has to say about each message."""
        assert self.can_forget_bodies()
        flags = (places.PERSISTENT if self.is_persistent else 0) | (places.DELIVERED if self.is_delivered else 0)
        expiry_ms = self.expiry_ms()
        if self.msg_in_store == places.JOURNAL:
            segment, pos, entry = self.place.segment, self.place.pos, self.entry
            return [
                (places.JOURNAL, flags, self.size_of(index), expiry_ms, segment, pos, entry + index)
                for index in range(self.count)
            ]
        addresses = self.addresses
        assert addresses is not None
        if self.msg_in_store == places.MSG_STORE:
            return [
                places.shared_slot(flags, self.size_of(index), expiry_ms, addresses[index])
                for index in range(self.count)
            ]
        return [
            (
                places.QUEUE_STORE,
                flags,
                self.size_of(index),
                expiry_ms,
                self.place.segment,
                addresses[index],
                addresses[index + 1] - addresses[index],
            )
            for index in range(self.count)
        ]


def shared_runs(runs: list[MsgStatus]) -> list[MsgStatus]:
    """Return those whose bodies are in a shared store."""
    return [run for run in runs if run.msg_in_store == places.MSG_STORE]


def readable_parts(status: MsgStatus, found: list[Entry | None]) -> list[tuple[MsgStatus, list[Entry] | None]]:
    """A run cut into stretches that could be read, with their messages, and stretches that could not, with None."""
    if len(found) == status.count and None not in found:
        return [(status, [entry for entry in found if entry is not None])]
    parts: list[tuple[MsgStatus, list[Entry] | None]] = []
    found = found[: status.count] + [None] * (status.count - len(found))
    index = 0
    while index < status.count:
        good = found[index] is not None
        stop = index + 1
        while stop < status.count and (found[stop] is not None) == good:
            stop += 1
        entries = [entry for entry in found[index:stop] if entry is not None]
        parts.append((status.part_for(status.seq_id + index, stop - index), entries if good else None))
        index = stop
    return parts


def status_at(run: RunPlace, persistent: bool, delivered: bool) -> MsgStatus:
    """Return the beta for messages that a checkpoint or the journal names."""
    props = None if run.expiry_ms < 0 else MessageProps(run.expiry_ms)
    persist_to = places.MSG_STORE if run.kind == places.MSG_STORE else places.QUEUE_STORE
    status = MsgStatus(run.seq_id, run.count, None, props, run.size_each, run.size_bytes(), persist_to)
    status.is_persistent = persistent
    status.is_delivered = delivered
    status.msg_in_store = run.kind
    place = BatchPlace()
    place.segment = run.segment
    place.pos = run.pos
    status.place = place
    status.entry = run.entry
    status.sizes = run.sizes
    status.addresses = run.addresses
    return status
