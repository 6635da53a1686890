"""Requeue: messages that come back stand again where their seq_ids belong (VQ-9).

What it owns: nothing; it works on the zones of a queue. What comes back is older than almost everything that is ready,
so it mostly goes to the front of q4. But messages that came back before may have been paged out meanwhile, so any zone
can be the right one.

Life of the data: taken out of the pending ones as runs, in order of seq_ids; put in here; ready again.

Invariants
  1. Those of `zones` hold after each run.
  2. A body is read only for a place among alphas; behind them a beta stays a beta (C-15).
  3. What has to stand among betas leaves RAM; it is written first if it has to be.

Crash: the messages are ready after the next start anyway. It does not count deliveries and writes no rows.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque

from penstock.backing.msg_status import MsgStatus
from penstock.backing.zones import Zones


def put_back(zones: Zones, runs: list[MsgStatus]) -> None:
    """Requeue (VQ-9): runs in order, each where its seq_ids belong. What is in RAM may have to leave it."""
    for status in runs:
        zones.ready_count += status.count
        zones.ready_bytes += status.size_bytes
        _put_one(zones, status)


def _put_one(zones: Zones, status: MsgStatus) -> None:
    seq_id = status.seq_id
    if not zones.q3 or seq_id < zones.q3[0].seq_id:
        _put_into_q4(zones, status)
    elif seq_id > _last_on_disk(zones):
        # Just published, fetched, and back: what stands in q1 is as young.
        _put_into_ram(zones, zones.q1, status)
    elif zones.q2 and seq_id > zones.q2[0].seq_id:
        _put_betas(zones, zones.q2, status)
    elif zones.delta_count and seq_id >= zones.delta_start:
        for part in _as_betas(zones, status):
            zones.to_delta(part)
    else:
        if zones.delta_count:
            # The delta may begin with a hole that these fill; it begins behind them now.
            zones.delta_start = max(zones.delta_start, status.last_seq_id() + 1)
        _put_betas(zones, zones.q3, status)


def _last_on_disk(zones: Zones) -> int:
    """The last seq_id of q3, delta and q2."""
    if zones.q2:
        return zones.q2[-1].last_seq_id()
    return zones.delta_end - 1 if zones.delta_count else zones.q3[-1].last_seq_id()


def _put_betas(zones: Zones, zone: deque[MsgStatus], status: MsgStatus) -> None:
    for part in _as_betas(zones, status):
        insert_in_order(zone, part)


def _put_into_ram(zones: Zones, zone: deque[MsgStatus], status: MsgStatus) -> None:
    for part in [status] if status.msg is not None else zones.with_bodies(status):
        zones.ram_count += part.count
        zones.ram_bytes += part.size_bytes
        insert_in_order(zone, part)


def _put_into_q4(zones: Zones, status: MsgStatus) -> None:
    if status.msg is None and (not zones.q4 or status.seq_id > zones.q4[-1].seq_id):
        # Still a beta (C-15): nothing in RAM stands behind it, so q3 begins with it.
        zones.q3.appendleft(status)
    else:
        _put_into_ram(zones, zones.q4, status)


def _as_betas(zones: Zones, status: MsgStatus) -> list[MsgStatus]:
    if status.msg is None:
        return [status]
    if not status.is_written():
        # Its batch is still gathering, and what stands behind it has left RAM: it cannot wait.
        parts = zones.homes.move_home(status)
    else:
        parts = [status] if status.can_forget_bodies() else zones.homes.write_out(status)
    for part in parts:
        part.forget_bodies()
    return parts


def insert_in_order(zone: deque[MsgStatus], status: MsgStatus) -> None:
    """Where the run's seq_ids belong; mostly at the front."""
    if not zone or status.seq_id > zone[-1].seq_id:
        zone.append(status)
    elif status.seq_id < zone[0].seq_id:
        zone.appendleft(status)
    else:
        zone.insert(bisect(zone, status.seq_id, key=_seq_id_of), status)


def _seq_id_of(status: MsgStatus) -> int:
    return status.seq_id
