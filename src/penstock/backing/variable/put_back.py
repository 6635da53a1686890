"""Requeue: messages that come back stand again where their seq_ids belong.

A message that comes back is older than almost everything that is ready, so it mostly goes to the front of q4. But
messages that came back before may have been paged out meanwhile, so any zone can be the right one. A place among betas
asks for a write, one among alphas may ask for a read. When the disk cannot do that, the run becomes a stray: ready as
well, and kept as it is, in RAM if it was there. At the head there is room for it without a write; `let_in` puts it
there when it is next, and `retry` tries the right place again.

Invariants
  1. Those of `zones` hold after each run, also after one that could not be placed.
  2. A body is read only for a place among alphas; behind them a beta stays a beta. When many betas come back,
     alphas that were read from the disk make room for them: they are not read for a place before these.
  3. What has to stand among betas leaves RAM; it is written first if it has to be.
  4. No message that comes in here is lost or pending when the disk fails: it is in its zone, or a stray.
"""

from __future__ import annotations

import logging
from bisect import bisect
from collections import deque
from typing import Final

from penstock.backing.zones.msg_status import MsgStatus
from penstock.backing.zones.zones import Zones

log: Final = logging.getLogger("penstock.store")

# When more betas come back at once than this, what was read ahead leaves RAM, so that they need not be read.
READ_MAX: Final = 64


def put_back(zones: Zones, runs: list[MsgStatus]) -> None:
    """Requeue: runs in order, each where its seq_ids belong. What is in RAM may have to leave it."""
    if sum([status.count for status in runs if status.msg is None]) > READ_MAX:
        zones.forget_read_back()
    for status in runs:
        had_strays = zones.strays.count > 0
        try:
            _put(zones, status)
        except OSError as error:
            # As long as there are strays, more of them are no news.
            if not had_strays:
                log.error("messages that came back to %s have to wait for the disk: %s", zones.homes.folder, error)


def head_of(zones: Zones) -> MsgStatus | None:
    """Return the run at the head, be it a stray or not; nothing is read."""
    head = zones.head()
    if zones.strays.count:
        first = zones.strays.first()
        if head is None or first.seq_id < head.seq_id:
            return first
    return head


def head_in_ram(zones: Zones) -> MsgStatus | None:
    """Return the run at the head of q4, with its bodies, after strays that stand before it were let in."""
    while True:
        let_in(zones)
        head = zones.head_in_ram()
        # What stood at the head may have been damaged, so that a stray is next.
        if head is head_of(zones):
            return head


def let_in(zones: Zones) -> None:
    """Strays that stand before all other messages go to the head. An error leaves them strays."""
    while zones.strays.count and head_of(zones) is zones.strays.first():
        _put(zones, _first_stray(zones))


def retry(zones: Zones) -> None:
    """The disk may work again: put strays where they belong, until it turns out that it does not."""
    try:
        while zones.strays.count:
            _put(zones, _first_stray(zones))
    except OSError:
        return


def _first_stray(zones: Zones) -> MsgStatus:
    first = zones.strays.first()
    return zones.strays.take_back(range(first.seq_id, first.seq_id + first.count))[0]


def _put(zones: Zones, status: MsgStatus) -> None:
    """Put a run where it belongs. After an OSError what of it is not there is a stray."""
    zones.ready_count += status.count
    zones.ready_bytes += status.size_bytes
    waiting = [status]
    try:
        _put_all(zones, waiting)
    except OSError:
        for part in waiting:
            zones.ready_count -= part.count
            zones.ready_bytes -= part.size_bytes
            zones.strays.hold(part)
        raise


def _put_all(zones: Zones, waiting: list[MsgStatus]) -> None:
    """Put the one run that waits where it belongs; an error leaves those parts waiting that have no place yet."""
    status = waiting[0]
    seq_id = status.seq_id
    if not zones.q3 or seq_id < zones.q3[0].seq_id:
        _put_into_q4(zones, status)
    elif seq_id > _last_on_disk(zones):
        # Just published, fetched, and back: what stands in q1 is as young.
        _put_into_ram(zones, zones.q1, status)
    elif zones.q2 and seq_id > zones.q2[0].seq_id:
        _put_betas(zones, zones.q2, status)
    elif zones.delta_count and seq_id >= zones.delta_start:
        waiting[:] = _on_disk(zones, status)
        while waiting:
            # It keeps its bodies until its slots are there, too.
            zones.to_delta(waiting[0])
            del waiting[0]
    else:
        _put_betas(zones, zones.q3, status)
        if zones.delta_count:
            # The delta may begin with a hole that these fill; it begins behind them now.
            zones.delta_start = max(zones.delta_start, status.last_seq_id() + 1)


def _last_on_disk(zones: Zones) -> int:
    """Return the last seq_id of q3, delta and q2."""
    if zones.q2:
        return zones.q2[-1].last_seq_id()
    return zones.delta_end - 1 if zones.delta_count else zones.q3[-1].last_seq_id()


def _put_betas(zones: Zones, zone: deque[MsgStatus], status: MsgStatus) -> None:
    for part in _on_disk(zones, status):
        part.forget_bodies()
        insert_in_order(zone, part)


def _put_into_ram(zones: Zones, zone: deque[MsgStatus], status: MsgStatus) -> None:
    for part in [status] if status.msg is not None else zones.with_bodies(status):
        zones.ram_count += part.count
        zones.ram_bytes += part.ram_bytes()
        insert_in_order(zone, part)


def _put_into_q4(zones: Zones, status: MsgStatus) -> None:
    if status.msg is None and (not zones.q4 or status.seq_id > zones.q4[-1].seq_id):
        # Still a beta: nothing in RAM stands behind it, so q3 begins with it.
        zones.q3.appendleft(status)
    else:
        _put_into_ram(zones, zones.q4, status)


def _on_disk(zones: Zones, status: MsgStatus) -> list[MsgStatus]:
    """Return the run with its bodies on disk, in parts that each lie in one file; they may be in RAM as well."""
    if status.msg is None or status.can_forget_bodies():
        return [status]
    if not status.is_written():
        # Its batch is still gathering, and what stands behind it has left RAM: it cannot wait.
        return zones.homes.move_home(status)
    return zones.homes.write_out(status)


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
