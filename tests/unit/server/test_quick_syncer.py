"""Small batches are synced on the spot while the disk is quick, and elsewhere when it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EIO
from random import Random

import pytest
from tests.disk.sim_files import FaultPlan, SimFiles, Survival

from penstock.clock import ManualClock
from penstock.disk.files import File
from penstock.journal.syncer import SyncDone, Syncer
from penstock.server.sync.quick_syncer import HANDED_OVER_QUICK_S, QUICK_ROW, QUICK_S, RELUCTANT_S, QuickSyncer


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

    def answer_after(self, seconds: float) -> None:
        """Ask for a sync that is done elsewhere, and answer it after this time."""
        asked = len(self.elsewhere.asked)
        self.ask()
        assert len(self.elsewhere.asked) == asked + 1
        self.clock.advance(seconds)
        self.elsewhere.asked[-1](None)

    def is_quick(self) -> bool:
        """Whether the next small batch is synced on the spot."""
        asked = len(self.elsewhere.asked)
        self.ask()
        return len(self.elsewhere.asked) == asked


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    return House(monkeypatch)


def test_a_small_batch_is_synced_on_the_spot_when_the_disk_has_shown_that_it_is_quick(house: House) -> None:
    assert not house.is_quick()
    house.answer_after(HANDED_OVER_QUICK_S)
    assert house.is_quick()
    assert house.answers == [None, None]


def test_a_disk_that_is_always_slow_never_holds_up_the_loop(house: House) -> None:
    house.sync_does(lambda: pytest.fail("synced on the spot"))
    for _ in range(10):
        house.answer_after(HANDED_OVER_QUICK_S * 2)
        house.clock.advance(RELUCTANT_S)
    assert house.answers == [None] * 10


def test_every_file_of_a_small_batch_is_synced() -> None:
    """A large body is in a file of its own, which comes before the journal's."""
    disk = SimFiles(FaultPlan(Survival.NOTHING))
    files = [disk.create(f"file-{number}") for number in range(3)]
    disk.sync_dir("")
    for file in files:
        file.pwrite([file.path.encode()], 0)
    answers: list[OSError | None] = []
    elsewhere = Elsewhere()
    syncer = QuickSyncer(elsewhere, ManualClock())
    syncer.submit_small([], answers.append)
    elsewhere.asked[0](None)
    syncer.submit_small(files, answers.append)
    assert answers == [None, None]
    left = disk.crash(Random(0).randrange)
    assert [left.open(file.path).pread(100, 0) for file in files] == [file.path.encode() for file in files]


def test_an_ordinary_batch_is_synced_elsewhere(house: House) -> None:
    house.syncer.submit([house.file], house.answers.append)
    assert house.answers == []
    assert len(house.elsewhere.asked) == 1


def test_a_slow_sync_on_the_spot_is_the_last_one_for_a_while_that_doubles(house: House) -> None:
    house.answer_after(0.0)
    house.sync_does(lambda: house.clock.advance(QUICK_S * 2))
    pause_s = RELUCTANT_S
    for _ in range(3):
        assert house.is_quick()
        house.clock.advance(pause_s * 0.9)
        house.answer_after(0.0)
        assert not house.is_quick()
        house.clock.advance(pause_s * 0.2)
        house.answer_after(0.0)
        pause_s *= 2


def test_after_many_quick_syncs_a_slow_one_is_an_exception_again(house: House) -> None:
    house.answer_after(0.0)
    for _ in range(5):
        house.sync_does(lambda: house.clock.advance(QUICK_S * 2))
        assert house.is_quick()
        house.clock.advance(RELUCTANT_S)
        house.answer_after(0.0)
        house.sync_does(lambda: None)
        for _ in range(QUICK_ROW):
            assert house.is_quick()


def test_an_error_is_passed_on(house: House) -> None:
    def fail() -> None:
        raise OSError(EIO, "no")

    house.answer_after(0.0)
    house.sync_does(fail)
    house.ask()
    assert [error.errno for error in house.answers if error is not None] == [EIO]


def test_closing_closes_the_other_one(house: House) -> None:
    house.syncer.close()
    assert house.elsewhere.closed
