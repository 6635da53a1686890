"""A crash at every call: what was reported durable is there, whole batches or nothing, and never called rot."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from journal_house import FOLDER, House, bodies, replayed
from tests.disk.sim_files import FaultPlan, SimCrash, SimFiles

from penstock.journal.format import rows
from penstock.journal.format.layout import FIRST_BATCH_AT
from penstock.journal.options import JournalOptions
from penstock.journal.reading.replay import cut_torn_tail

# Several rolls, and batches larger than a block.
TINY = JournalOptions(segment_bytes=FIRST_BATCH_AT + 9000, batch_bytes_max=2000, idle_s=1.0)
BATCHES = 12


def text(life: int, batch: int, part: int) -> bytes:
    return b"%d.%d.%d;" % (life, batch, part) * (1 + (batch * 37 + part * 11) % 90)


class Life:
    """One run of the broker: batches of three messages over two queues, each batch all or nothing."""

    def __init__(self, files: SimFiles, number: int, segment: int, lsn: int) -> None:
        self.files = files
        self.number = number
        self.confirmed: list[int] = []
        self._segment = segment
        self._lsn = lsn

    def run(self) -> None:
        house = House(self.files, TINY, segment=self._segment, lsn=self._lsn)
        for batch in range(BATCHES):
            seq_id = self.number * 1000 + batch * 10
            house.publish(seq_id, [text(self.number, batch, part) for part in range(2)], 1)
            house.publish(seq_id, [text(self.number, batch, 2)], 2)
            house.journal.settle(rows.ACKED, 3, seq_id, 10, 0)

            def durable(success: bool, batch: int = batch) -> None:
                assert success
                self.confirmed.append(batch)

            house.journal.when_durable(durable)
            house.journal.commit()
            if batch % 5 == 4:
                house.clock.advance(1)
                house.journal.commit()

    def expected(self, batch: int) -> dict[tuple[int, int], bytes]:
        seq_id = self.number * 1000 + batch * 10
        first, second, third = bodies(*[text(self.number, batch, part) for part in range(3)])
        return {(1, seq_id): first, (1, seq_id + 1): second, (2, seq_id): third}


def calls_of_a_life() -> int:
    files = SimFiles()
    Life(files, 0, 1, 0).run()
    return len(files.calls)


def check_life(found: dict[tuple[int, int], bytes], life: Life) -> list[int]:
    """The batches of a life that are there: each whole, the confirmed ones among them, without gaps."""
    present = []
    for batch in range(BATCHES):
        wanted = life.expected(batch)
        there = {key: found[key] for key in wanted if key in found}
        assert there in ({}, wanted), f"batch {batch} is there in part, or wrong"
        if there:
            present.append(batch)
    assert set(life.confirmed) <= set(present)
    assert present == list(range(len(present)))
    return present


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_call_keeps_what_was_reported_durable(after: bool) -> None:
    for crash_at in range(1, calls_of_a_life() + 1):
        chance = random.Random(crash_at)
        files = SimFiles(FaultPlan(crash_at=crash_at, crash_after=after))
        life = Life(files, 0, 1, 0)
        with suppress(SimCrash):
            life.run()
        survivor = files.crash(chance.randrange)
        found = replayed(survivor)
        assert found.end.rotten == [], crash_at
        assert len(found.end.torn) <= 1
        check_life(found.bodies, life)


def test_lives_that_end_in_crashes_follow_each_other() -> None:
    calls = calls_of_a_life()
    for seed in range(40):
        chance = random.Random(seed)
        files, segment, lsn = SimFiles(), 1, 0
        lives: list[tuple[Life, list[int]]] = []
        for number in range(5):
            files.plan.crash_at = len(files.calls) + chance.randrange(1, calls + 20)
            files.plan.crash_after = chance.random() < 0.5
            life = Life(files, number, segment, lsn)
            with suppress(SimCrash):
                life.run()
            files = files.kill() if chance.random() < 0.3 else files.crash(chance.randrange)
            found = replayed(files)
            assert found.end.rotten == []
            assert found.end.next_lsn >= lsn
            for earlier, present in lives:
                assert check_life(found.bodies, earlier) == present
            lives.append((life, check_life(found.bodies, life)))
            cut_torn_tail(files, FOLDER, found.end)
            assert replayed(files).damage() == ([], [])
            segment, lsn = found.end.next_segment, found.end.next_lsn
