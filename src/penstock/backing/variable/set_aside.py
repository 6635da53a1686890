"""Messages of one queue that the disk cannot read now, and when they are tried again.

A read error (EIO and the like, after it was tried again at once) says nothing about the bytes: a cable, a controller or
a network disk may work again in a minute. So the messages are not written off. They become pending, without a consumer
that could settle them, so that those behind them can go on; they are named in the log and counted in the queue's
status, and are put back where they belong after a while, to be read again.

Invariants
  1. Every message that is noted here is pending.
  2. The first try comes after `FIRST_S`, each further one after twice the time, up to `LONGEST_S`.
"""

from __future__ import annotations

import logging
from typing import Final, final

from penstock.backing.zones.msg_status import MsgStatus
from penstock.clock import Clock

log: Final = logging.getLogger("penstock.store")

# Seconds until messages that cannot be read are tried again.
FIRST_S: Final = 1.0
LONGEST_S: Final = 60.0


@final
class SetAside:
    __slots__ = ("_clock", "_due_s", "_runs", "_wait_s", "count", "is_stalled")

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        # Nothing can be read: where the messages are is not known either, or the machine is out of descriptors.
        self.is_stalled = False
        self._clock = clock
        # (seq_id, count), in the order in which they were met.
        self._runs: list[tuple[int, int]] = []
        self._due_s = 0.0
        self._wait_s = FIRST_S

    def add(self, status: MsgStatus, folder: str, error: OSError) -> None:
        """These messages of the queue in `folder` could not be read."""
        if not self._runs:
            self._wait()
            log.error(
                "%d messages from seq_id %d on in %s, and maybe more, cannot be read now: %s. They are set aside, and"
                " tried again every minute at least, and at the next start",
                status.count,
                status.seq_id,
                folder,
                error,
            )
        self._runs.append((status.seq_id, status.count))
        self.count += status.count

    def is_due(self) -> bool:
        return (self.count > 0 or self.is_stalled) and self._clock.monotonic_s() >= self._due_s

    def take(self) -> list[int]:
        """Return all of them, to be put back; from now on they are not noted here."""
        seq_ids: list[int] = []
        for first, count in self._runs:
            seq_ids.extend(range(first, first + count))
        self.clear()
        return seq_ids

    def clear(self) -> None:
        self._runs = []
        self.count = 0
        self.is_stalled = False

    def stall(self, folder: str, error: OSError) -> None:
        """Nothing of the queue in `folder` can be read now: its consumers are told again after a while."""
        if not self.is_stalled:
            self.is_stalled = True
            if not self._runs:
                self._wait()
                log.error("messages of %s cannot be read now, and wait: %s", folder, error)

    def _wait(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s > self._due_s + LONGEST_S:
            # The last trouble is long over.
            self._wait_s = FIRST_S
        self._due_s = now_s + self._wait_s
        self._wait_s = min(2 * self._wait_s, LONGEST_S)
