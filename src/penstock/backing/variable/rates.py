"""How fast messages go in and out of a queue, and for how many seconds those in RAM last.

`ins` and `outs` count messages that are published and taken from the head; `ack_ins` and `ack_outs` those that become
pending and cease to be. Counting costs an addition per run; the clock is read when the averages are made. An average is
exponential: after 5 s (`HALF_LIFE_S`) the past counts for one half, however many updates there were in between.

Invariants
  1. Rates are finite and not negative.
  2. Nothing that was counted is lost: an update without any time in between leaves the counters as they are.
  3. A duration is infinite exactly when nothing moves; a target for an infinite duration is UNLIMITED.
"""

from __future__ import annotations

import math
from typing import Final, final

from penstock.clock import Clock

HALF_LIFE_S: Final = 5.0
# More messages in and out than this since the last update, and the next one is due.
UPDATE_AFTER_MESSAGES: Final = 100
# Below this many messages per second a rate counts as standstill.
STANDSTILL: Final = 0.01
# A number of messages that no queue reaches.
UNLIMITED: Final = 1 << 62


@final
class Rates:
    __slots__ = (
        "_clock",
        "_ram_acks_before",
        "_ram_messages_before",
        "_updated_s",
        "ack_in_rate",
        "ack_ins",
        "ack_out_rate",
        "ack_outs",
        "in_rate",
        "ins",
        "out_rate",
        "outs",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._updated_s = clock.monotonic_s()
        # Since the last update; the queue adds to them.
        self.ins = 0
        self.outs = 0
        self.ack_ins = 0
        self.ack_outs = 0
        # Messages per second.
        self.in_rate = 0.0
        self.out_rate = 0.0
        self.ack_in_rate = 0.0
        self.ack_out_rate = 0.0
        # What was in RAM when the duration was asked for the last time.
        self._ram_messages_before = 0
        self._ram_acks_before = 0

    def update_if_due(self) -> None:
        """Update once enough was counted. For the hot path: without a look at the clock while it is not."""
        if self.ins + self.outs > UPDATE_AFTER_MESSAGES:
            self.update()

    def update(self) -> None:
        """Mix what was counted since the last update into the averages."""
        now_s = self._clock.monotonic_s()
        elapsed_s = now_s - self._updated_s
        if elapsed_s <= 0.0:
            return
        self._updated_s = now_s
        old_weight = math.pow(0.5, elapsed_s / HALF_LIFE_S)
        new_weight = (1.0 - old_weight) / elapsed_s
        self.in_rate = self.in_rate * old_weight + self.ins * new_weight
        self.out_rate = self.out_rate * old_weight + self.outs * new_weight
        self.ack_in_rate = self.ack_in_rate * old_weight + self.ack_ins * new_weight
        self.ack_out_rate = self.ack_out_rate * old_weight + self.ack_outs * new_weight
        self.ins = 0
        self.outs = 0
        self.ack_ins = 0
        self.ack_outs = 0

    def total(self) -> float:
        return self.in_rate + self.out_rate + self.ack_in_rate + self.ack_out_rate

    def is_standstill(self) -> bool:
        fastest = max(self.in_rate, self.out_rate, self.ack_in_rate, self.ack_out_rate)
        return fastest < STANDSTILL

    def ram_duration(self, ram_messages: int, ram_acks: int) -> float:
        """Return seconds that the ready and the pending messages in RAM last; infinite when nothing moves.

        The mean of what is there now and what was there when this was asked before, over the mean of the four rates.
        """
        self.update()
        held = self._ram_messages_before + ram_messages + self._ram_acks_before + ram_acks
        self._ram_messages_before = ram_messages
        self._ram_acks_before = ram_acks
        if self.is_standstill():
            return math.inf
        return held / (4.0 * self.total())

    def target_ram_count(self, duration_s: float) -> int:
        """Return how many messages last for so long at the present rates."""
        if duration_s == math.inf:
            return UNLIMITED
        count = duration_s * self.total()
        return int(count) if count < UNLIMITED else UNLIMITED
