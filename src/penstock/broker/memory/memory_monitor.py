"""The memory monitor: how much of its messages each queue may hold in RAM when memory gets scarce.

It looks at the queues that hold most every 2.5 s, when its caller lets it. Below half of the memory that messages may
take, queues hold what they like. Above, it works out two targets, and tells them to the queues that hold more:

- a duration, as RabbitMQ does: the mean of what the queues report, made smaller by how full memory is. A queue that is
  read fast may hold more messages than one that stands still.
- a number of bytes: the share at which all queues together are at half again, found from the largest down. A queue that
  holds less than its share is left alone.

A queue that holds nothing in RAM is never called, and one that is within its targets is not called either, so
that memory pressure does not wake thousands of idle queues. A queue that was told a target is told a looser one as
soon as there is one and it holds something.

While the disk is low, nothing is paged out: all targets are lifted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from penstock import limits
from penstock.backing.backing_queue import BackingQueue

CHECK_S = 2.5
# The share of the memory at which queues begin to page out.
PAGING_RATIO = 0.5
# When everything was paged out, the durations that queues report are 0 and would stay 0. Below this share of the memory
# a second is added to their sum, so that they can grow again.
GROWTH_BELOW_RATIO = 0.95
GROWTH_S = 1.0

NO_BYTES_TARGET = -1
# Seconds and payload bytes, as a queue is told them.
Target = tuple[float, int]


class MemoryMonitor:
    def __init__(
        self,
        bytes_max: int,
        queues: Callable[[], Iterable[BackingQueue]],
        used_bytes: Callable[[], int] | None = None,
    ) -> None:
        """`used_bytes` is what counts as used besides these queues, and with them; without it only they do."""
        self.bytes_max = bytes_max
        self._queues = queues
        self._used_bytes = used_bytes
        self._next_check_s = -math.inf
        # The targets in force, for views: seconds, and bytes of RAM per queue.
        self.desired_duration_s = math.inf
        self.share_bytes = NO_BYTES_TARGET

    def check(self, now_s: float, disk_is_low: bool = False) -> bool:
        """Look at the queues if it is time; True when it was."""
        if now_s < self._next_check_s:
            return False
        self._next_check_s = now_s + CHECK_S
        low_bytes = PAGING_RATIO * self.bytes_max
        if self._used_bytes is not None and not self._is_pressing() and self._used_bytes() < low_bytes:
            # Mostly there is nothing to do. Queues that were told a target earlier are told otherwise by `relieve`.
            return True
        holders = [(queue, ram_bytes) for queue in self._queues() if (ram_bytes := queue.ram_bytes()) > 0]
        queue_bytes = sum(ram_bytes for _, ram_bytes in holders)
        used_bytes = queue_bytes if self._used_bytes is None else max(queue_bytes, self._used_bytes())
        if disk_is_low or used_bytes < low_bytes:
            self._lift()
        else:
            self._press(holders, used_bytes / max(self.bytes_max, 1), used_bytes - queue_bytes)
        return True

    def _is_pressing(self) -> bool:
        return self.share_bytes != NO_BYTES_TARGET or self.desired_duration_s != math.inf

    def _lift(self) -> None:
        self.desired_duration_s = math.inf
        self.share_bytes = NO_BYTES_TARGET
        for queue in self._queues():
            self.relieve(queue)

    def relieve(self, queue: BackingQueue) -> None:
        """Take a queue's target back if there is no pressure. Asked for every queue in turn, also for small ones."""
        if queue.told_target is not None and self.share_bytes == NO_BYTES_TARGET and queue.ram_bytes() > 0:
            queue.told_target = None
            queue.set_ram_duration_target(math.inf)
            queue.set_ram_bytes_target(NO_BYTES_TARGET)

    def _press(self, holders: Sequence[tuple[BackingQueue, int]], ratio: float, other_bytes: int) -> None:
        """`other_bytes` is memory that cannot be paged out."""
        durations = [queue.ram_duration() for queue, _ in holders]
        self.desired_duration_s = desired_duration(durations, ratio)
        budget_bytes = max(0, int(PAGING_RATIO * self.bytes_max) - other_bytes)
        self.share_bytes = fair_share([ram_bytes for _, ram_bytes in holders], budget_bytes)
        for (queue, ram_bytes), duration_s in zip(holders, durations, strict=True):
            target = (self.desired_duration_s, payload_share(queue, self.share_bytes))
            told = queue.told_target
            is_over = duration_s > self.desired_duration_s or ram_bytes > self.share_bytes
            is_looser = told is not None and (target[0] > told[0] or target[1] > told[1])
            if (is_over or is_looser) and target != told:
                queue.told_target = target
                queue.set_ram_duration_target(target[0])
                queue.set_ram_bytes_target(target[1])


def desired_duration(durations_s: Sequence[float], ratio: float) -> float:
    """Return seconds for which queues may hold messages in RAM, from what they report; infinite when none moves.

    Those that stand still report infinity and do not count, nor do those that do not page and report 0.
    """
    counted = [duration_s for duration_s in durations_s if 0.0 < duration_s < math.inf]
    if not counted:
        return math.inf
    growth_s = GROWTH_S if ratio < GROWTH_BELOW_RATIO else 0.0
    return (sum(counted) + growth_s) / len(counted) / ratio


def fair_share(queue_bytes: Sequence[int], budget_bytes: int) -> int:
    """Return the largest share with which all together hold no more than the budget, when each is cut to it."""
    left = budget_bytes
    waiting = len(queue_bytes)
    for size in sorted(queue_bytes):
        share = left // waiting
        if size > share:
            return share
        left -= size
        waiting -= 1
    return budget_bytes


def payload_share(queue: BackingQueue, share_bytes: int) -> int:
    """What is left of a share for payload, besides the cost of holding the messages at all."""
    payload_bytes = queue.ready_bytes() + queue.pending_bytes()
    overhead_bytes = queue.depth() * limits.MESSAGE_OVERHEAD_BYTES
    return share_bytes * payload_bytes // max(payload_bytes + overhead_bytes, 1)
