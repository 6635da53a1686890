"""What a deleted or purged queue still has, given back a little at a time: references to the shared stores, and memory.

The row that ends the messages is in the journal, or is about to be. What is left are runs, some with their bodies in a
shared store, and, of a deleted queue, the part of the index that leads to more of those. After a crash a start counts
the references of the queues that there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, final

from penstock.backing.variable.homes import Homes
from penstock.backing.variable.pending_acks import PendingAcks
from penstock.backing.zones import zone_views
from penstock.backing.zones.delta_reader import read_delta
from penstock.backing.zones.msg_status import MsgStatus, shared_runs
from penstock.backing.zones.zones import Zones
from penstock.store.queue.live_map import LiveMap

log: Final = logging.getLogger("penstock.store")

# Slots of the index that one step reads.
SLOTS_AT_ONCE: Final = 512


@final
class DeltaLeft:
    """The delta of a deleted queue, as it was: its range, and what of it is no part of it."""

    __slots__ = ("end", "live", "pending", "start", "strays", "transient_threshold")

    def __init__(
        self,
        start: int,
        end: int,
        live: LiveMap,
        pending: PendingAcks,
        strays: PendingAcks,
        transient_threshold: int,
    ) -> None:
        self.start = start
        self.end = end
        self.live = live
        self.pending = pending
        self.strays = strays
        self.transient_threshold = transient_threshold


@final
class Leftovers:
    __slots__ = ("_delta", "_homes", "_pending", "_ready", "_released", "_shared", "_when_over")

    def __init__(
        self,
        homes: Homes,
        ready: list[MsgStatus],
        pending: PendingAcks,
        shared: list[MsgStatus],
        delta: DeltaLeft | None,
        when_over: Callable[[], None],
    ) -> None:
        """Runs that were ready and runs that were pending; `shared` are those of both with bodies in a shared store."""
        self._homes = homes
        self._ready = ready
        self._pending = pending
        # The last one is next; so many messages of it are done.
        self._shared = shared
        self._released = 0
        self._delta = delta
        self._when_over = when_over

    def release_some(self, count_max: int) -> int:
        """Give back so much, or look for more; return how much was done, 0 when nothing is left."""
        if self._shared:
            return self._release(count_max)
        if self._delta is not None:
            return self._look(self._delta)
        count = min(count_max, len(self._ready))
        if count:
            del self._ready[-count:]
        else:
            count = self._pending.free(count_max)
        if count == 0:
            self._when_over()
        return count

    def _release(self, count_max: int) -> int:
        left = count_max
        while self._shared and left > 0:
            run = self._shared[-1]
            count = min(run.count - self._released, left)
            self._homes.release(run, self._released, count)
            self._released += count
            left -= count
            if self._released == run.count:
                self._shared.pop()
                self._released = 0
        return count_max - left

    def _look(self, delta: DeltaLeft) -> int:
        slots = self._homes.slots
        start = delta.start
        segment = start // slots
        stop = min((segment + 1) * slots, delta.end)
        if self._homes.index_segments.get(segment, 0):
            stop = min(stop, start + SLOTS_AT_ONCE)
            try:
                part = read_delta(
                    self._homes.index,
                    delta.live,
                    delta.pending,
                    start,
                    stop,
                    delta.transient_threshold,
                    0,
                    delta.strays,
                )
                self._shared = shared_runs(part.betas)
            except OSError as error:
                # Its large bodies stay until the next start counts who wants them.
                folder = self._homes.folder
                log.warning("%s is deleted, but not all that it refers to could be found: %s", folder, error)
                stop = delta.end
        delta.start = stop
        if stop >= delta.end:
            self._delta = None
        return max(1, stop - start)


def leftovers_of(zones: Zones, live: LiveMap, pending: PendingAcks, when_over: Callable[[], None]) -> Leftovers:
    """Return all that a queue holds, ready and pending. The pending ones are taken out."""
    homes = zones.homes
    ready = zone_views.runs_in_ram(zones)
    strays, given_up = zones.strays.give_up(), pending.give_up()
    ready.extend(strays.runs())
    if not homes.has_shared():
        return Leftovers(homes, ready, given_up, [], None, when_over)
    delta: DeltaLeft | None = None
    if zones.delta_count and any(list(homes.index_segments.values())):
        threshold = zones.transient_threshold
        delta = DeltaLeft(zones.delta_start, zones.delta_end, live.copy(), given_up, strays, threshold)
    return Leftovers(homes, ready, given_up, [*shared_runs(ready), *given_up.shared_runs()], delta, when_over)
