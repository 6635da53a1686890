"""Alarms: conditions under which publishers are blocked until they pass.

Only publishers. Deliveries, acks, deletions and compaction go on: they are what ends an alarm. An alarm goes off at one
mark and is over at another one, so that it does not flap around a single one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

# The alarm is over when memory use has fallen to this share of the limit, so that it does not flap.
CLEAR_SHARE = 0.9

MIB = 1024 * 1024
# Free room at which the disk alarm goes off, unless it was configured. RabbitMQ's 50 MB are gone in a second of
# publishing; this is some segments of the journal.
DISK_BYTES_MIN = 512 * MIB
# On a small disk it is this part of the whole: 5 %, which is 51 MiB of 1 GiB, and 512 MiB from 10 GiB on.
DISK_PART = 20
# The disk alarm is over at this many times the mark: a journal segment (64 MiB) that comes or goes does not set it off
# again.
DISK_CLEAR_FACTOR = 1.25


class Alarm(ABC):
    """One resource that can run out."""

    RESOURCE: str = ""

    def __init__(self) -> None:
        self.active = False

    @property
    def reason(self) -> str:
        """The text of connection.blocked, as RabbitMQ words it."""
        return f"low on {self.RESOURCE}"

    def check(self) -> bool:
        """Look again; True when the alarm went on or off."""
        before = self.active
        self.active = self._is_low()
        return self.active != before

    @abstractmethod
    def _is_low(self) -> bool:
        """Return whether the alarm should be on now; `active` says whether it is."""


class MemoryAlarm(Alarm):
    """Waiting messages take too much memory."""

    RESOURCE = "memory"

    def __init__(self, bytes_max: int, used_bytes: Callable[[], int]) -> None:
        super().__init__()
        self.bytes_max = bytes_max
        self._used_bytes = used_bytes

    def _is_low(self) -> bool:
        return self._used_bytes() > (self.bytes_max * CLEAR_SHARE if self.active else self.bytes_max)


class DiskAlarm(Alarm):
    """The disk that the data folder is on is nearly full."""

    RESOURCE = "disk"

    def __init__(self, free_bytes: Callable[[], int], bytes_min: int) -> None:
        super().__init__()
        self.bytes_min = bytes_min
        self._free_bytes = free_bytes

    def _is_low(self) -> bool:
        try:
            free_bytes = self._free_bytes()
        except OSError:
            # Not the same as full: a disk that cannot be asked fails at the next write, and is reported there.
            return self.active
        return free_bytes < (self.bytes_min * DISK_CLEAR_FACTOR if self.active else self.bytes_min)


def default_disk_bytes_min(disk_bytes: int) -> int:
    """Return the mark of the disk alarm on a disk of this size."""
    return min(DISK_BYTES_MIN, disk_bytes // DISK_PART)


def blocked_reason(alarms: Sequence[Alarm]) -> str:
    """Return the text of connection.blocked for all alarms that are on; empty when none is."""
    resources = [alarm.RESOURCE for alarm in alarms if alarm.active]
    return f"low on {' & '.join(resources)}" if resources else ""
