"""Small batches are synced on the spot while the disk is quick, and elsewhere when it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EIO
from random import Random

import pytest

from penstock.clock import ManualClock
from penstock.files import File
from penstock.journal.syncer import SyncDone, Syncer
from penstock.server.quick_syncer import QUICK_S, RELUCTANT_S, QuickSyncer
from penstock.sim_files import FaultPlan, SimFiles, Survival


class Elsewhere(Syncer):
    """Keeps what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[SyncDone] = []
        self.closed = False

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        self.asked.append(done)

    def close(self) -> None:
        self.closed = True


class House:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.elsewhere = Elsewhere()
        self.syncer = QuickSyncer(self.elsewhere, self.clock)
        self.file = SimFiles().create("f")
        self.answers: list[OSError | None] = []
        self._monkeypatch = monkeypatch

    def sync_does(self, what: Callable[[], None]) -> None:
        self._monkeypatch.setattr(type(self.file), "fdatasync", lambda _: what())

    def ask(self) -> None:
        self.syncer.submit_small([self.file], self.answers.append)


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    return House(monkeypatch)


def test_a_small_batch_is_synced_on_the_spot(house: House) -> None:
    house.ask()
    assert house.answers == [None]
    assert house.elsewhere.asked == []


def test_every_file_of_a_small_batch_is_synced() -> None:
    """A large body is in a file of its own, which comes before the journal's."""
    disk = SimFiles(FaultPlan(Survival.NOTHING))
    files = [disk.create(f"file-{number}") for number in range(3)]
    disk.sync_dir("")
    for file in files:
        file.pwrite([file.path.encode()], 0)
    answers: list[OSError | None] = []
    QuickSyncer(Elsewhere(), ManualClock()).submit_small(files, answers.append)
    assert answers == [None]
    left = disk.crash(Random(0).randrange)
    assert [left.open(file.path).pread(100, 0) for file in files] == [file.path.encode() for file in files]


def test_an_ordinary_batch_is_synced_elsewhere(house: House) -> None:
    house.syncer.submit([house.file], house.answers.append)
    assert house.answers == []
    assert len(house.elsewhere.asked) == 1


def test_a_slow_disk_gets_no_more_of_the_loops_time_for_a_while(house: House) -> None:
    house.sync_does(lambda: house.clock.advance(QUICK_S * 2))
    house.ask()
    assert house.answers == [None]
    house.clock.advance(RELUCTANT_S * 0.9)
    house.ask()
    assert len(house.elsewhere.asked) == 1
    house.clock.advance(RELUCTANT_S * 0.2)
    house.ask()
    assert house.answers == [None, None]


def test_an_error_is_passed_on(house: House) -> None:
    def fail() -> None:
        raise OSError(EIO, "no")

    house.sync_does(fail)
    house.ask()
    assert [error.errno for error in house.answers if error is not None] == [EIO]


def test_closing_closes_the_other_one(house: House) -> None:
    house.syncer.close()
    assert house.elsewhere.closed
