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

from penstock.backing.msg_status import MsgStatus
from penstock.backing.zones import Zones
from penstock.message import Entry


def run_at(zones: Zones, seq_id: int) -> MsgStatus | None:
    """The first run that has a message at or behind `seq_id`; one of the delta is made for the occasion."""
    for zone in (zones.q4, zones.q3):
        if zone and zone[-1].last_seq_id() >= seq_id:
            return zone[bisect_left(zone, seq_id, key=_last_seq_id_of)]
    start = max(zones.delta_start, seq_id)
    while zones.delta_count and start < zones.delta_end:
        stop = zones.delta_stop(start)
        betas = zones.delta_part(start, stop).betas
        if betas:
            return betas[0]
        start = stop
    for zone in (zones.q2, zones.q1):
        if zone and zone[-1].last_seq_id() >= seq_id:
            return zone[bisect_left(zone, seq_id, key=_last_seq_id_of)]
    return None


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
    """The messages of a run, read if need be; the run stays as it is."""
    if status.msg is not None:
        return list(status.entries())
    return zones.homes.read(status)


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
    assert sum([status.size_bytes for status in in_ram]) == zones.ram_bytes <= zones.ready_bytes, "4: bytes in RAM"


def _check_order(zone: deque[MsgStatus], last: int) -> int:
    for status in zone:
        assert status.count > 0 and status.seq_id > last, "1: the order of seq_ids"
        last = status.last_seq_id()
    return last


def _last_seq_id_of(status: MsgStatus) -> int:
    return status.last_seq_id()
