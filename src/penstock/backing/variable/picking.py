"""Takes messages out of the zones of a queue by number, wherever they stand.

In q1 … q4 their runs are cut, in the delta they become holes, and strays are taken as they are. First everything is
found and read (`Pick`), bodies included, and nothing has changed until then. Then the messages leave their zones,
without any I/O.

Invariants
  1. Those of `zones` hold before and after, also when an error comes out: then nothing was taken.
  2. Slots of neighbours are read together; of a body that stands alone, its neighbours are not read.
  3. What is damaged, or cannot be read now, leaves the zones too, and is reported, as with a fetch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import final

from penstock.backing.variable.pending_acks import spans
from penstock.backing.zones.msg_status import MsgStatus
from penstock.backing.zones.zones import Zones
from penstock.disk.files import is_temporary
from penstock.message import Entry


@final
class Pick:
    """What was found of the messages that are wanted."""

    __slots__ = ("damaged", "found", "unread")

    def __init__(self) -> None:
        # Copies of what stands in the zones: runs with their bodies, runs whose bodies are damaged, and runs that
        # cannot be read now, with the error that says so.
        self.found: list[MsgStatus] = []
        self.damaged: list[MsgStatus] = []
        self.unread: list[tuple[MsgStatus, OSError]] = []

    def all(self) -> list[MsgStatus]:
        return [*self.found, *self.damaged, *[status for status, _ in self.unread]]


def pick(zones: Zones, wanted: list[int]) -> list[MsgStatus]:
    """Take messages out; `wanted` is sorted, each once. Runs with bodies, in the order of seq_ids."""
    strays = zones.strays
    if strays.count:
        read = _read_strays(zones, [seq_id for seq_id in wanted if seq_id in strays])
        wanted = [seq_id for seq_id in wanted if seq_id not in strays]
    else:
        read = Pick()
    _keep_q3(zones, wanted)
    within = Pick()
    ahead = Pick()
    for zone in (zones.q4, zones.q3, zones.q2, zones.q1):
        if zone:
            _find_in_zone(zones, within, zone, wanted)
    if zones.delta_count:
        _find_in_delta(zones, ahead, wanted)
    # From here on there is nothing to read.
    for status in read.all():
        strays.take_back(range(status.seq_id, status.seq_id + status.count))
    for status in within.all():
        _take_out(zones, status)
    for status in ahead.all():
        # Of the delta nothing is known but how many there are.
        zones.ready_count -= status.count
        zones.ready_bytes -= status.size_bytes
        zones.delta_count -= status.count
    zones.closed_up()
    for status in [*read.damaged, *within.damaged, *ahead.damaged]:
        zones.lost(status)
    for status, error in [*read.unread, *within.unread, *ahead.unread]:
        zones.unreadable(status, error)
    picked = [*read.found, *within.found, *ahead.found]
    picked.sort(key=_seq_id_of)
    return picked


def _keep_q3(zones: Zones, wanted: list[int]) -> None:
    """While there is a delta q3 must not become empty: more of the delta is read first, if it would."""
    while zones.q3 and zones.delta_count:
        first = bisect_left(wanted, zones.q3[0].seq_id)
        stop = bisect_left(wanted, zones.q3[-1].last_seq_id() + 1)
        asked = stop - first
        if asked < len(zones.q3) or asked < sum([status.count for status in zones.q3]):
            return
        zones.deltas_to_betas(len(zones.q3))


def _read_strays(zones: Zones, wanted: list[int]) -> Pick:
    result = Pick()
    for status in zones.strays.parts(wanted):
        _note(zones, result, status)
    return result


def _find_in_zone(zones: Zones, result: Pick, zone: deque[MsgStatus], wanted: list[int]) -> None:
    first = bisect_left(wanted, zone[0].seq_id)
    stop = bisect_left(wanted, zone[-1].last_seq_id() + 1)
    for start, end in spans(wanted[first:stop]):
        index = bisect_left(zone, start, key=_last_seq_id_of)
        while index < len(zone):
            run = zone[index]
            at = max(start, run.seq_id)
            until = min(end, run.seq_id + run.count)
            if at >= until:
                break
            _note(zones, result, run.part_for(at, until - at))
            index += 1


def _find_in_delta(zones: Zones, result: Pick, wanted: list[int]) -> None:
    part = zones.delta_some(wanted[bisect_left(wanted, zones.delta_start) : bisect_left(wanted, zones.delta_end)])
    for status in part.betas:
        _note(zones, result, status)
    if part.missing:
        zones.lose_slots(part.missing)


def _note(zones: Zones, result: Pick, status: MsgStatus) -> None:
    """Read the bodies of a copy of some messages."""
    if status.msg is not None:
        status.msg = status.entries()
        status.start = 0
        result.found.append(status)
        return
    if status.count == 1:
        try:
            entry = zones.homes.read_one(status, 0)
        except OSError as error:
            if is_temporary(error):
                raise
            result.unread.append((status, error))
            return
        if entry is not None:
            status.load([entry])
            result.found.append(status)
            return
    parts, damaged, unread, failed = zones.read_parts(status)
    result.found.extend(parts)
    result.damaged.extend(damaged)
    if failed is not None:
        result.unread.extend([(part, failed) for part in unread])


def _take_out(zones: Zones, status: MsgStatus) -> None:
    """The messages leave their zone; `status` is the copy that was made of them."""
    seq_id = status.seq_id
    zones.ready_count -= status.count
    zones.ready_bytes -= status.size_bytes
    for zone in (zones.q4, zones.q1):
        if zone and zone[0].seq_id <= seq_id <= zone[-1].last_seq_id():
            zones.ram_count -= status.count
            zones.ram_bytes -= status.ram_bytes()
            _cut(zone, seq_id, status.count)
            return
    _cut(zones.q3 if zones.q3 and seq_id <= zones.q3[-1].last_seq_id() else zones.q2, seq_id, status.count)


def _cut(zone: deque[MsgStatus], seq_id: int, count: int) -> None:
    """Take messages of one run out of a zone."""
    index = bisect_left(zone, seq_id, key=_last_seq_id_of)
    run = zone[index]
    assert run.seq_id <= seq_id and seq_id + count <= run.seq_id + run.count
    behind = run.seq_id + run.count - seq_id - count
    if seq_id > run.seq_id:
        rear = run.split_rear(behind + count)
        if behind:
            rear.drop_front(count, rear.size_of_first(count))
            zone.insert(index + 1, rear)
    elif behind:
        run.drop_front(count, run.size_of_first(count))
    else:
        del zone[index]


def order_given(seq_ids: Sequence[int], found: dict[int, Entry]) -> list[tuple[int, Entry]]:
    """What was found, in the order in which it was asked for."""
    # Popped: a number that was given twice counts once.
    return [(seq_id, found.pop(seq_id)) for seq_id in seq_ids if seq_id in found]


def _seq_id_of(status: MsgStatus) -> int:
    return status.seq_id


def _last_seq_id_of(status: MsgStatus) -> int:
    return status.last_seq_id()
