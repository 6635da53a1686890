"""Reads a part of a delta: from slots of the queue index back to runs.

A delta is only a range of seq_ids; the index knows what is in it. This module reads the slots of a part of the range,
leaves out what is pending or gone, and joins neighbours that lie side by side into runs again. The betas go to q3, or
are looked at and forgotten (browse, fold).

Invariants
  1. Every live seq_id of the part is in exactly one of `betas`, `outdated`, `missing`, or is pending, or is a stray.
  2. A slot that is damaged or was never written makes its message `missing`; nothing is guessed.
  3. Transient messages below the threshold are from before the last start: `outdated`, and not counted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Sequence
from typing import final

from penstock.backing.zones.msg_status import MsgStatus, status_at
from penstock.journal.place import BatchPlace
from penstock.message import MessageProps
from penstock.store.queue import places
from penstock.store.queue.live_map import LiveMap
from penstock.store.queue.places import Slot, StoreError
from penstock.store.queue.queue_index import QueueIndex
from penstock.store.queue.queue_state import RunPlace


@final
class DeltaPart:
    __slots__ = ("betas", "missing", "outdated")

    def __init__(self) -> None:
        self.betas: list[MsgStatus] = []
        self.outdated: list[int] = []
        self.missing: list[int] = []


@final
class SlotRun:
    """Slots of neighbours that lie side by side."""

    __slots__ = ("addresses", "count", "delivered", "first", "last", "seq_id", "sizes")

    def __init__(self, seq_id: int, slot: Slot, delivered: bool) -> None:
        self.seq_id = seq_id
        self.first = slot
        self.last = slot
        self.delivered = delivered
        self.count = 1
        # Of all of them, once there are more than one.
        self.sizes: array[int] | None = None
        self.addresses: array[int] | None = None

    def takes(self, seq_id: int, slot: Slot, delivered: bool) -> bool:
        """Append the slot if it continues the run."""
        last = self.last
        if (
            seq_id != self.seq_id + self.count
            or slot[0] != last[0]
            or slot[1] != last[1]
            or slot[3] != last[3]
            or delivered != self.delivered
        ):
            return False
        if slot[0] == places.JOURNAL:
            if slot[4] != last[4] or slot[5] != last[5] or slot[6] != last[6] + 1:
                return False
        elif slot[0] == places.QUEUE_STORE and (slot[4] != last[4] or slot[5] != last[5] + last[6]):
            return False
        self.last = slot
        self.count += 1
        if self.sizes is None or self.addresses is None:
            self.sizes = array("i", [self.first[2]])
            self.addresses = array("q", [_address(self.first)])
        self.sizes.append(slot[2])
        self.addresses.append(_address(slot))
        return True

    def status(self) -> MsgStatus:
        kind, flags, size, expiry_ms, segment, pos, entry = self.first
        sizes = self.sizes
        equal = sizes is None or min(sizes) == max(sizes)
        addresses: array[int] | None = None
        if kind != places.JOURNAL:
            addresses = self.addresses
            if addresses is None:
                addresses = array("q", [_address(self.first)])
            if kind == places.QUEUE_STORE:
                addresses.append(self.last[5] + self.last[6])
        run = RunPlace(
            self.seq_id,
            self.count,
            kind,
            segment,
            pos,
            entry if kind == places.JOURNAL else 0,
            expiry_ms,
            size if equal else -1,
            None if equal else sizes,
            addresses,
        )
        status = status_at(run, flags & places.PERSISTENT != 0, self.delivered)
        status.index_on_disk = True
        return status


def _alone(seq_id: int, slot: Slot, delivered: bool) -> MsgStatus:
    """Return what `SlotRun.status` does, for one message."""
    kind, flags, size, expiry_ms, segment, pos, entry = slot
    props = None if expiry_ms < 0 else MessageProps(expiry_ms)
    persist_to = places.MSG_STORE if kind == places.MSG_STORE else places.QUEUE_STORE
    status = MsgStatus(seq_id, 1, None, props, size, size, persist_to)
    status.is_persistent = flags & places.PERSISTENT != 0
    status.is_delivered = delivered
    status.msg_in_store = kind
    status.index_on_disk = True
    place = BatchPlace()
    place.segment = segment
    place.pos = pos
    status.place = place
    if kind == places.JOURNAL:
        status.entry = entry
    elif kind == places.QUEUE_STORE:
        status.addresses = array("q", [pos, pos + entry])
    else:
        status.addresses = array("q", [places.address_of(slot)])
    return status


def _address(slot: Slot) -> int:
    return places.address_of(slot) if slot[0] == places.MSG_STORE else slot[5]


def read_delta(
    index: QueueIndex,
    live: LiveMap,
    pending: Container[int],
    start: int,
    stop: int,
    transient_threshold: int,
    next_deliver_seq_id: int,
    strays: Container[int] = (),
    marked: Container[int] = (),
) -> DeltaPart:
    """What the index says about start..stop-1. Strays and what is pending are no part of it.

    What is marked was delivered before, whatever its slot says.
    """
    part = DeltaPart()
    runs = live.live_runs(start, stop)
    if not runs:
        return part
    slots: list[Slot | None]
    try:
        slots = index.read(start, stop)
    except StoreError:
        # The head of the file is damaged.
        slots = [None] * (stop - start)
    seq_ids: list[int] = []
    for first, count in runs:
        for seq_id in range(first, first + count):
            if seq_id not in pending and seq_id not in strays:
                seq_ids.append(seq_id)
    found = [slots[seq_id - start] for seq_id in seq_ids]
    _join(part, seq_ids, found, transient_threshold, next_deliver_seq_id, marked)
    return part


def read_some(
    index: QueueIndex,
    live: LiveMap,
    pending: Container[int],
    wanted: Sequence[int],
    transient_threshold: int,
    next_deliver_seq_id: int,
    strays: Container[int],
    marked: Container[int],
) -> DeltaPart:
    """What the index says about some messages, which are sorted. Strays and what is pending are no part of it."""
    part = DeltaPart()
    seq_ids = [seq_id for seq_id in wanted if live.is_live(seq_id) and seq_id not in pending and seq_id not in strays]
    found: list[Slot | None] = []
    at = 0
    while at < len(seq_ids):
        # File by file: the head of one may be damaged.
        stop = bisect_left(seq_ids, (seq_ids[at] // index.segment_slots + 1) * index.segment_slots, at)
        try:
            found.extend(index.read_each(seq_ids[at:stop]))
        except StoreError:
            found.extend([None] * (stop - at))
        at = stop
    _join(part, seq_ids, found, transient_threshold, next_deliver_seq_id, marked)
    return part


def _join(
    part: DeltaPart,
    seq_ids: list[int],
    slots: list[Slot | None],
    transient_threshold: int,
    next_deliver_seq_id: int,
    marked: Container[int],
) -> None:
    """Make runs of the slots of messages."""
    open_run: SlotRun | None = None
    for index, slot in enumerate(slots):
        seq_id = seq_ids[index]
        if slot is None:
            part.missing.append(seq_id)
            continue
        if seq_id < transient_threshold and not slot[1] & places.PERSISTENT:
            part.outdated.append(seq_id)
            continue
        delivered = seq_id < next_deliver_seq_id or slot[1] & places.DELIVERED != 0 or seq_id in marked
        if open_run is not None:
            if open_run.takes(seq_id, slot, delivered):
                continue
            part.betas.append(open_run.status())
        if index + 1 < len(seq_ids) and seq_ids[index + 1] == seq_id + 1:
            open_run = SlotRun(seq_id, slot, delivered)
        else:
            open_run = None
            part.betas.append(_alone(seq_id, slot, delivered))
    if open_run is not None:
        part.betas.append(open_run.status())


def first_stretch(
    live: LiveMap, pending: Container[int], strays: Container[int], start: int, stop: int
) -> tuple[int, int]:
    """The first numbers of start..stop-1 that have no hole between them: from, and up to; (stop, stop) without any."""
    first, last = live.first_run(start, stop)
    while first < last:
        at = first
        while at < last and not (at in pending or at in strays):
            at += 1
        if at > first:
            return first, at
        first, last = live.first_run(first + 1, stop)
    return stop, stop
