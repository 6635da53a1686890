"""Looking at the ready messages of a variable queue without disturbing them.

What it owns: nothing. Browsing, folding, snapshots and the checks of invariants walk over the zones of a queue with
these functions. What is on disk is read for the occasion and forgotten again.

Invariants
  1. Nothing changes: no zone, no counter, no file.
  2. Runs come in the order of their seq_ids.
  3. A damaged message is left out here; a fetch that meets it takes it out of the books.

Crash: there is nothing to lose. It does not know pending messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.backing.msg_status import MsgStatus
from penstock.backing.zones import Zones
from penstock.message import Entry

# Numbers of a delta that are looked at for neighbours; and when there are only holes.
LOOK_AHEAD: Final = 128
LOOKS_AT_ONCE: Final = 4096


def neighbours_at(zones: Zones, seq_id: int, count_max: int) -> list[MsgStatus]:
    """Runs that follow each other without a hole, from the first message at or behind `seq_id` on.

    Those of one zone, at most, and as many as it takes for `count_max` messages. Of the delta no more is read than
    what can be among them.
    """
    for zone in (zones.q4, zones.q3):
        if zone and zone[-1].last_seq_id() >= seq_id:
            return _joined(zone, bisect_left(zone, seq_id, key=_last_seq_id_of), seq_id, count_max)
    start = max(zones.delta_start, seq_id)
    width = min(count_max, LOOK_AHEAD)
    while zones.delta_count and start < zones.delta_end:
        start, stop = zones.delta_stretch(start, min(start + width, zones.delta_stop(start)))
        if start < stop:
            betas = zones.delta_part(start, stop).betas
            if betas:
                return _joined(betas, 0, seq_id, count_max)
        start = stop
        width = min(8 * width, LOOKS_AT_ONCE)
    for zone in (zones.q2, zones.q1):
        if zone and zone[-1].last_seq_id() >= seq_id:
            return _joined(zone, bisect_left(zone, seq_id, key=_last_seq_id_of), seq_id, count_max)
    return []


def _joined(zone: Sequence[MsgStatus], index: int, seq_id: int, count_max: int) -> list[MsgStatus]:
    run = zone[index]
    runs = [run]
    stop = max(seq_id, run.seq_id) + count_max
    index += 1
    while index < len(zone) and run.seq_id + run.count < stop and zone[index].seq_id == run.seq_id + run.count:
        run = zone[index]
        runs.append(run)
        index += 1
    return runs


def runs_in_ram(zones: Zones) -> list[MsgStatus]:
    """Every run but those of the delta, in order."""
    return [*zones.q4, *zones.q3, *zones.q2, *zones.q1]


def delta_runs(zones: Zones) -> list[MsgStatus]:
    """Every run of the delta: reads all of it."""
    return delta_between(zones, zones.delta_start, zones.delta_end)


def delta_between(zones: Zones, start: int, end: int) -> list[MsgStatus]:
    """The runs of a part of the delta, made for the occasion."""
    runs: list[MsgStatus] = []
    if zones.delta_count:
        start = max(start, zones.delta_start)
        end = min(end, zones.delta_end)
        while start < end:
            stop = min(end, zones.delta_stop(start))
            runs.extend(zones.delta_part(start, stop).betas)
            start = stop
    return runs


def bodies_of(zones: Zones, status: MsgStatus) -> list[Entry | None]:
    """The messages of a run, read if need be, None for what cannot be; the run stays as it is."""
    if status.msg is not None:
        return list(status.entries())
    return zones.homes.look(status)


def check_zones(zones: Zones) -> None:
    """Assert the invariants of `zones`."""
    assert not zones.q1 or zones.q3, "2: q1 without q3"
    assert not zones.q2 or zones.delta_count, "2: q2 without a delta"
    assert not zones.delta_count or zones.q3, "2: a delta without q3"
    last = -1
    for zone in (zones.q4, zones.q3):
        last = _check_order(zone, last)
    if zones.delta_count:
        assert last < zones.delta_start, "1: the delta begins before q3 ends"
        assert zones.delta_start + zones.delta_count <= zones.delta_end, "5: the delta is too short"
        last = zones.delta_end - 1
    for zone in (zones.q2, zones.q1):
        last = _check_order(zone, last)
    assert all([status.msg is not None for zone in (zones.q1, zones.q4) for status in zone]), "3: q1, q4 are alphas"
    assert all([status.msg is None for zone in (zones.q2, zones.q3) for status in zone]), "3: q2, q3 are betas"
    in_ram = [*zones.q1, *zones.q4]
    counted = sum([status.count for zone in (zones.q1, zones.q2, zones.q3, zones.q4) for status in zone])
    assert counted + zones.delta_count == zones.ready_count, "4: ready messages"
    assert sum([status.count for status in in_ram]) == zones.ram_count, "4: messages in RAM"
    assert sum([status.ram_bytes() for status in in_ram]) == zones.ram_bytes, "4: bytes in RAM"


def _check_order(zone: deque[MsgStatus], last: int) -> int:
    for status in zone:
        assert status.count > 0 and status.seq_id > last, "1: the order of seq_ids"
        last = status.last_seq_id()
    return last


def _last_seq_id_of(status: MsgStatus) -> int:
    return status.last_seq_id()
