"""Large bodies of one queue that are wanted elsewhere than at its head: by what leaves unread, and by browsers.

Each is read beside the loop first (`body_ahead`), one at a time for each purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import final

from penstock.backing.backing_queue import Answered
from penstock.backing.variable.homes import Homes
from penstock.backing.variable.pending_acks import PendingAcks
from penstock.backing.variable.put_back import head_of
from penstock.backing.zones import zone_views
from penstock.backing.zones.zones import Zones
from penstock.call_all import call_all


@final
class LargeBodies:
    __slots__ = ("_homes", "_pending", "_waiting", "_zones")

    def __init__(self, homes: Homes, zones: Zones, pending: PendingAcks) -> None:
        self._homes = homes
        self._zones = zones
        self._pending = pending
        # Who waits for one that was handed out and is to leave.
        self._waiting: list[Answered] = []

    def is_at_head(self) -> bool:
        head = head_of(self._zones)
        return head is not None and head.msg is None and self._homes.is_slow(head, 0)

    def await_leaving(self, seq_ids: Sequence[int], done: Answered) -> int:
        """`BackingQueue.await_body`."""
        homes = self._homes
        if not homes.has_shared():
            return -1
        is_one_there = False
        runs = self._pending.parts(seq_ids if isinstance(seq_ids, range) else list(dict.fromkeys(seq_ids)))
        for run in [run for run in runs if run.msg is None]:
            for index in [index for index in range(run.count) if homes.is_slow(run, index)]:
                if is_one_there:
                    return run.seq_id + index
                if homes.await_leaving(run, index):
                    self._waiting.append(done)
                    return run.seq_id + index
                # It was read; or it cannot be beside the loop, and is read by the caller.
                is_one_there = True
        return -1

    def leaving_came(self) -> None:
        """The reading of a body that is to leave is over."""
        waiting, self._waiting = self._waiting, []
        call_all([partial(done, None) for done in waiting])

    def await_shown(self, from_seq_id: int) -> bool:
        """`BackingQueue.waits_to_browse`."""
        if not self._homes.has_shared():
            return False
        runs = zone_views.neighbours_at(self._zones, from_seq_id, 1)
        if not runs or runs[0].msg is not None:
            return False
        index = max(0, from_seq_id - runs[0].seq_id)
        return self._homes.is_slow(runs[0], index) and self._homes.await_shown(runs[0], index)

    def forget(self) -> None:
        """The queue is deleted: what is being read is for nobody."""
        self._homes.ahead.forget()
        self._homes.leaving.forget()
        self._homes.shown.forget()
        self._waiting = []
