"""Looking at the messages of a variable queue without disturbing them: browsing, folding, snapshots, checks.

Nothing changes: no zone, no counter, no file. What is on disk is read for the occasion and forgotten again. Runs come
in the order of their seq_ids. A damaged message is left out here; a fetch that meets it takes it out of the books.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.backing.backing_queue import FoldVisitor
from penstock.backing.variable.pending_acks import PendingAcks
from penstock.backing.zones.msg_status import MsgStatus
from penstock.backing.zones.zones import Zones
from penstock.disk.files import is_temporary
from penstock.message import Entry, Run

# Numbers of a delta that are looked at for neighbours; and when there are only holes.
LOOK_AHEAD: Final = 128
LOOKS_AT_ONCE: Final = 4096
# Neighbours that a fold looks at together.
FOLD_AT_ONCE: Final = 256


def neighbours_at(zones: Zones, seq_id: int, count_max: int) -> list[MsgStatus]:
    """Return runs that follow each other without a hole, from the first message at or behind `seq_id` on.

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


def has_from(zones: Zones, seq_id: int) -> bool:
    """Return whether a message is ready at or behind a number, damaged or not."""
    strays = zones.strays
    return bool(strays.count and strays.seq_ids()[-1] >= seq_id) or bool(neighbours_at(zones, seq_id, 1))


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
    """Return every run but those of the delta, in order."""
    return [*zones.q4, *zones.q3, *zones.q2, *zones.q1]


def delta_runs(zones: Zones) -> list[MsgStatus]:
    """Return every run of the delta: reads all of it."""
    return delta_between(zones, zones.delta_start, zones.delta_end)


def delta_between(zones: Zones, start: int, end: int) -> list[MsgStatus]:
    """Return the runs of a part of the delta, made for the occasion."""
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
    """Return the messages of a run, read if need be, None for what cannot be; the run stays as it is."""
    if status.msg is not None:
        return list(status.entries())
    return zones.homes.look(status)


def _entries_of(zones: Zones, runs: list[MsgStatus], first: int, count_max: int, bytes_max: int) -> list[Entry]:
    """The messages of neighbouring runs from the first one on, within the bounds, up to the first damaged one."""
    entries: list[Entry] = []
    bytes_left = bytes_max
    for status in runs:
        at = first + len(entries)
        rest = status if at == status.seq_id else status.part_for(at, status.last_seq_id() + 1 - at)
        if entries and (rest.is_delivered != runs[0].is_delivered or rest.size_of(0) > bytes_left):
            break
        if entries and rest.msg is None and zones.homes.is_slow(rest, 0):
            break
        count = rest.count_within(count_max - len(entries), bytes_left)
        is_cut = count < rest.count
        if is_cut:
            rest = rest.part_for(at, count)
        bytes_left -= rest.size_bytes
        if count_max == 1 and rest.msg is None:
            # A caller that wants one message jumps; one that walks asks for more.
            found = [zones.homes.look_at(rest, 0)]
        else:
            found = bodies_of(zones, rest)
        if None in found:
            found = found[: found.index(None)]
        entries.extend([entry for entry in found if entry is not None])
        if is_cut or len(found) < count or len(entries) >= count_max:
            break
    return entries


def browse(zones: Zones, from_seq_id: int, count_max: int, bytes_max: int) -> Run | None:
    """Return a run of ready messages with seq_id >= from_seq_id, as `fetch` bounds it."""
    while True:
        runs = neighbours_at(zones, from_seq_id, count_max)
        for stray in zones.strays.runs() if zones.strays.count else []:
            if stray.last_seq_id() >= from_seq_id and (not runs or stray.seq_id < runs[0].seq_id):
                runs = [stray]
                break
        if not runs:
            return None
        first = max(from_seq_id, runs[0].seq_id)
        entries = _entries_of(zones, runs, first, count_max, bytes_max)
        if entries:
            return Run(first, entries, runs[0].is_delivered)
        # It is damaged. So may be those behind it: one at a time, until there is one that is not.
        from_seq_id = first + 1
        count_max = 1


def fold(zones: Zones, pending: PendingAcks, visit: FoldVisitor) -> None:
    """Visit ready and pending messages once each, in the order of seq_ids, until `visit` returns False."""
    waiting = sorted([*pending.seq_ids(), *zones.strays.seq_ids()])
    index = 0
    runs = neighbours_at(zones, 0, FOLD_AT_ONCE)
    while runs:
        for status in runs:
            seq_id = status.seq_id
            for entry in bodies_of(zones, status):
                while index < len(waiting) and waiting[index] < seq_id:
                    if not _visit_waiting(zones, pending, waiting[index], visit):
                        return
                    index += 1
                if entry is not None and not visit(seq_id, entry, False):
                    return
                seq_id += 1
        runs = neighbours_at(zones, runs[-1].last_seq_id() + 1, FOLD_AT_ONCE)
    for seq_id in waiting[index:]:
        if not _visit_waiting(zones, pending, seq_id, visit):
            return


def _visit_waiting(zones: Zones, pending: PendingAcks, seq_id: int, visit: FoldVisitor) -> bool:
    """Show a message that stands in no zone: a pending one, or a stray."""
    is_pending = seq_id in pending
    try:
        entry = pending.entry(seq_id) if is_pending else zones.strays.entry(seq_id)
    except OSError as error:
        if is_temporary(error):
            raise
        return True
    return entry is None or visit(seq_id, entry, is_pending)


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
