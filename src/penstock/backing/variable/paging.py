"""How much of a queue stays in RAM, and what leaves it first.

It decides; `zones` and `pending_acks` move the messages.

The limit: at most 2048 bodies; no more than two seconds of what consumers take; no more than the duration target
asks for; no more than the queue's share of bytes; at least 1. That is where eviction ends. It begins `slack` messages
above the limit, so that a queue that moves fast, and holds a few thousand messages for a moment, never pages.

Each publish and requeue asks `is_over`, which compares two pairs of numbers; only a queue that is over pays for more.
It then pages in slices, each a little larger than what came in, so that it never falls behind.

Invariants
  1. The limit is at least 1 while there is no limit of bytes: the head can always be in RAM.
  2. A slice never moves more than `slice_count` messages.
  3. Nothing is read back here: RAM that is free again is filled by fetches only.
  4. A disk that cannot be written costs memory, and nothing else: what could not leave stays where it was.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, final

from penstock.backing.variable.pending_acks import PendingAcks
from penstock.backing.variable.rates import Rates
from penstock.backing.zones.msg_status import MsgStatus
from penstock.backing.zones.zones import Zones

log: Final = logging.getLogger("penstock.store")

INFINITE: Final = float("inf")


@final
class PagingOptions:
    __slots__ = (
        "at_once",
        "bytes_max",
        "cap",
        "io_batch",
        "read_ahead_bytes",
        "read_ahead_count",
        "slack",
        "slice_count",
    )

    def __init__(
        self,
        cap: int = 2048,
        slack: int = 8192,
        bytes_max: int = 16 << 20,
        io_batch: int = 4096,
        slice_count: int = 1024,
        read_ahead_count: int = 2048,
        read_ahead_bytes: int = 256 << 10,
        at_once: int = 512,
    ) -> None:
        # Bodies that a queue keeps in RAM when it pages, and how many more it may have before it does.
        self.cap = cap
        self.slack = slack
        # Payload bytes in RAM above which it pages, whatever their number; down to half of it.
        self.bytes_max = bytes_max
        # Positions go to the index only when so many have to.
        self.io_batch = io_batch
        # Messages that one slice lets go of.
        self.slice_count = slice_count
        # What one step reads back from disk.
        self.read_ahead_count = read_ahead_count
        self.read_ahead_bytes = read_ahead_bytes
        # Runs, or large bodies, that a purge or a deletion deals with at once; of more there are slices.
        self.at_once = at_once


@final
class Paging:
    def __init__(self, options: PagingOptions, rates: Rates, zones: Zones, pending: PendingAcks) -> None:
        self.options = options
        self.lazy = False
        self.duration_s = INFINITE
        self.bytes_target = -1
        # Work was left over when the last slice ended.
        self.unfinished = False
        # The last slice could not write.
        self._is_failing = False
        self._rates = rates
        self._zones = zones
        self._pending = pending

    def limit(self) -> int:
        """Return how many bodies may stay in RAM."""
        if self.lazy:
            return 0
        rates = self._rates
        rates.update_if_due()
        limit = min(self.options.cap, 1 + int(2 * rates.out_rate))
        if self.duration_s != INFINITE:
            limit = min(limit, rates.target_ram_count(self.duration_s))
        return max(1, limit)

    def bytes_limit(self) -> int:
        target = self.bytes_target
        return self.options.bytes_max if target < 0 else min(target, self.options.bytes_max)

    def is_over(self) -> bool:
        """Return whether eviction has to begin."""
        zones = self._zones
        pending = self._pending
        options = self.options
        count = zones.ram_count + pending.ram_count()
        if count <= options.slack and self.duration_s == INFINITE and not self.lazy:
            # The usual case, without a look at rates.
            return zones.ram_bytes + pending.ram_bytes > self.bytes_limit()
        slack = 0 if self.lazy or self.duration_s != INFINITE else options.slack
        return count > self.limit() + slack or zones.ram_bytes + pending.ram_bytes > self.bytes_limit()

    def reduce(self, count_max: int) -> None:
        """One slice of paging: bodies first, then positions."""
        zones = self._zones
        pending = self._pending
        count_max = min(count_max, self.options.slice_count)
        quota = zones.ram_count + pending.ram_count() - self.limit()
        surplus = zones.ram_bytes + pending.ram_bytes - self.bytes_limit() // 2
        if surplus > 0:
            in_ram = max(1, zones.ram_count + pending.ram_count())
            average = max(1, (zones.ram_bytes + pending.ram_bytes) // in_ram)
            quota = max(quota, surplus // average + 1)
        chosen = min(quota, count_max)
        self.unfinished = False
        try:
            moved = self._let_go(chosen) if chosen > 0 else 0
            more_positions = self._push_positions(count_max)
        except OSError as error:
            self._could_not_write(error)
            return
        self._is_failing = False
        self.unfinished = more_positions or (quota > chosen and moved > 0)

    def _could_not_write(self, error: OSError) -> None:
        """Messages stay in RAM; the next slice tries again. Said once, until it works again."""
        if not self._is_failing:
            self._is_failing = True
            log.error("messages of %s cannot be paged out, and stay in memory: %s", self._zones.homes.folder, error)

    def _let_go(self, quota: int) -> int:
        rates = self._rates
        if rates.ack_in_rate - rates.ack_out_rate > rates.in_rate - rates.out_rate:
            moved = self._pending.evict(quota)
            return moved + self.push_alphas(quota - moved)
        moved = self.push_alphas(quota)
        return moved + self._pending.evict(quota - moved) if moved < quota else moved

    def push_alphas(self, quota: int) -> int:
        """Let alphas become betas. What will be delivered last leaves first: all of q1 before any of q4."""
        if quota <= 0:
            return 0
        zones = self._zones
        from_q1 = min(quota, _count_up_to(quota, zones.q1))
        return zones.push_alphas_to_betas(from_q1, min(quota - from_q1, _count_up_to(quota, zones.q4)))

    def permitted_positions(self) -> int:
        """Return how many runs may stand in q2 and q3."""
        zones = self._zones
        segment = zones.slots
        if self.lazy or self.duration_s == 0:
            return min(len(zones.q3), segment)
        on_disk = zones.positions() + zones.delta_count
        return max(segment, on_disk - on_disk * on_disk // (on_disk + self.limit()))

    def settle_positions(self) -> None:
        """After a start: as many positions in RAM as are permitted, at once."""
        while self._zones.positions() - self.permitted_positions() >= self.options.io_batch:
            try:
                if not self._zones.push_betas_to_deltas(self.options.io_batch, self.options.slice_count):
                    return
            except OSError as error:
                self._could_not_write(error)
                return

    def _push_positions(self, count_max: int) -> bool:
        """Let positions go; True when there are more that can."""
        surplus = self._zones.positions() - self.permitted_positions()
        if surplus < self.options.io_batch:
            return False
        pushed = self._zones.push_betas_to_deltas(surplus, max(count_max, 1))
        return 0 < pushed < surplus and self._zones.positions() - self.permitted_positions() >= self.options.io_batch


def _count_up_to(enough: int, zone: deque[MsgStatus]) -> int:
    """Messages in a zone; it is not looked at any further than to `enough` of them, so a long one costs no more."""
    count = 0
    for status in zone:
        count += status.count
        if count >= enough:
            break
    return count
