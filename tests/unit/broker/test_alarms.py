"""The alarms of memory and disk: when they go off, when they are over, what publishers are told."""

from __future__ import annotations

import pytest

from penstock.broker.memory.alarms import DiskAlarm, MemoryAlarm, blocked_reason, default_disk_bytes_min

MIB = 1024 * 1024


class Gauge:
    """A number that a test moves, or that cannot be read."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.broken = False

    def read(self) -> int:
        if self.broken:
            raise OSError("no such disk")
        return self.value


def test_the_memory_alarm_goes_off_above_its_limit_and_is_over_at_nine_tenths() -> None:
    used = Gauge(1_000)
    alarm = MemoryAlarm(1_000, used.read)
    assert (alarm.check(), alarm.active) == (False, False)
    seen = []
    for used.value in (1_001, 1_000, 901, 900, 901, 1_000, 1_001):
        changed = alarm.check()
        seen.append((used.value, changed, alarm.active))
    assert seen == [
        (1_001, True, True),
        (1_000, False, True),
        (901, False, True),
        (900, True, False),
        (901, False, False),
        (1_000, False, False),
        (1_001, True, True),
    ]


def test_the_disk_alarm_goes_off_below_its_mark_and_is_over_a_quarter_above_it() -> None:
    free = Gauge(1_000)
    alarm = DiskAlarm(free.read, 1_000)
    assert (alarm.check(), alarm.active) == (False, False)
    seen = []
    for free.value in (999, 1_000, 1_249, 1_250, 1_249, 1_000, 999, 0):
        changed = alarm.check()
        seen.append((free.value, changed, alarm.active))
    assert seen == [
        (999, True, True),
        (1_000, False, True),
        (1_249, False, True),
        (1_250, True, False),
        (1_249, False, False),
        (1_000, False, False),
        (999, True, True),
        (0, False, True),
    ]


@pytest.mark.parametrize("active", [False, True], ids=["off", "on"])
def test_a_disk_that_cannot_be_asked_leaves_the_alarm_as_it_is(active: bool) -> None:
    free = Gauge(0 if active else 2_000)
    alarm = DiskAlarm(free.read, 1_000)
    alarm.check()
    free.broken = True
    assert (alarm.check(), alarm.active) == (False, active)


def test_a_mark_of_0_switches_the_disk_alarm_off() -> None:
    alarm = DiskAlarm(Gauge(0).read, 0)
    assert (alarm.check(), alarm.active) == (False, False)


def test_publishers_are_told_every_resource_that_is_low_in_rabbitmqs_words() -> None:
    memory, disk = MemoryAlarm(0, Gauge(1).read), DiskAlarm(Gauge(0).read, 1)
    assert (memory.reason, disk.reason) == ("low on memory", "low on disk")
    assert blocked_reason([memory, disk]) == ""
    disk.check()
    assert blocked_reason([memory, disk]) == "low on disk"
    memory.check()
    assert blocked_reason([memory, disk]) == "low on memory & disk"


@pytest.mark.parametrize(
    ("disk_mib", "mark_mib"), [(1_024 * 1_024, 512), (10 * 1_024, 512), (5 * 1_024, 256), (1_000, 50), (0, 0)]
)
def test_the_mark_is_half_a_gibibyte_and_less_on_small_disks(disk_mib: int, mark_mib: int) -> None:
    assert default_disk_bytes_min(disk_mib * MIB) == mark_mib * MIB
