"""One thing goes wrong, at every call that the script makes to the disk."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest

from tests.disk.sim_faults import Fault
from tests.disk.sim_files import CHANGING_CALLS, SimCrash, SimFiles, Survival
from tests.effort import some
from tests.simulation.machine import Node
from tests.simulation.script import Script
from tests.simulation.simulation import small_buffers

pytestmark = pytest.mark.slow

# Of what a crash may leave of unsynced bytes, so many samples besides nothing and everything.
SAMPLES = 3
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
# Faults of these are about writing.
WRITING_CALLS = CHANGING_CALLS - {"open", "lock"}


def calls_of_both_lives() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    script = Script()
    with small_buffers(script.profile):
        script.first_life()
        first = script.files
        script.second_life()
    return first.calls, script.files.calls


FIRST_CALLS, SECOND_CALLS = calls_of_both_lives()


def numbers(calls: list[tuple[str, str]], wanted: frozenset[str]) -> list[int]:
    return [number for number, (name, _) in enumerate(calls, 1) if name in wanted]


def test_the_script_does_everything_that_it_is_about() -> None:
    calls = [*FIRST_CALLS, *SECOND_CALLS]
    done = {(name, path.rpartition("/")[2].partition(".")[2], path.partition("/")[0]) for name, path in calls}
    assert ("pwrite", "qs", "vhosts") in done, "nothing was copied to a queue's store"
    assert ("pwrite", "qi", "vhosts") in done, "nothing was paged out to an index"
    assert ("rename", "tmp", "vhosts") in done, "nothing was compacted"
    assert ("unlink", "qi", "vhosts") in done, "no index segment was removed"
    assert ("unlink", "pnj", "journal") in done, "no journal segment was removed"
    assert ("rename", "ckpt.tmp", "checkpoint") in done, "no checkpoint was made"


# --- crashes ----------------------------------------------------------------------------------------


def outcomes(files: SimFiles) -> Iterator[SimFiles]:
    """What may be left of a machine that went down."""
    files.is_dead = True
    yield files.copy()
    for survival in (Survival.NOTHING, Survival.EVERYTHING):
        files.plan.survival = survival
        yield files.crash(random.Random(0).randrange)
    files.plan.survival = Survival.ANYTHING
    for sample in range(SAMPLES):
        yield files.crash(random.Random(sample).randrange)


def crashed(life: int, number: int, after: bool) -> Script:
    """The script up to a crash at a call of its first or second life."""
    script = Script()
    script.ends_with_a_crash = True
    if life == 1:
        script.files.plan.crash_at, script.files.plan.crash_after = number, after
    else:
        script.crash_in_second_life = (number, after)
    with small_buffers(script.profile):
        try:
            script.first_life()
            script.second_life()
        except SimCrash:
            return script
    raise AssertionError(f"call {number} of life {life} was not made")


def check_outcome(script: Script, files: SimFiles) -> None:
    node = Node(files, script.clock, script.profile, script.rng)
    script.books.cut(script.open_and_find(node), node.definitions, False)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("life", [1, 2])
def test_nothing_is_lost_by_a_crash_at_any_call(life: int, after: bool) -> None:
    calls = FIRST_CALLS if life == 1 else SECOND_CALLS
    for number in some(numbers(calls, CHANGING_CALLS)):
        script = crashed(life, number, after)
        with small_buffers(script.profile):
            for index, files in enumerate(outcomes(script.files)):
                try:
                    check_outcome(script, files)
                except Exception as error:
                    error.add_note(f"call {number} of life {life}, {calls[number - 1]}, outcome {index}")
                    raise


def test_the_last_batch_may_be_torn_at_any_byte() -> None:
    script = Script()
    with small_buffers(script.profile):
        script.first_life()
        while script.node.syncer.under_way is not None:
            script.node.syncer.answer()
        script.publish()
        script.transaction()
        script.ask()
        script.node.journal.commit()
        assert script.files.last_write is not None
        path, _, size = script.files.last_write
        assert path.startswith("journal/")
        assert script.node.syncer.under_way is not None
        script.files.plan.survival = Survival.EVERYTHING
        for torn_at in some(range(size + 1)):
            script.files.plan.torn_at = torn_at
            check_outcome(script, script.files.crash(random.Random(0).randrange))
            script.files.is_dead = False


# --- errors -----------------------------------------------------------------------------------------


def run_with(faults: list[Fault]) -> None:
    """The whole script, with its end, on a disk that fails."""
    script = Script()
    script.is_faulty = True
    script.files.plan.faults = faults
    script.whole()


def fault_at(number: int, error: int, forever: bool = False) -> Fault:
    """Strikes at a call of the first life, as long as the script is undisturbed."""
    name = FIRST_CALLS[number - 1][0]
    nth = sum(1 for call, _ in FIRST_CALLS[:number] if call == name)
    return Fault(error, name, "", nth, forever, 0)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-ever"])
@pytest.mark.parametrize("error", ERRORS)
def test_nothing_is_lost_by_an_error_of_any_writing_call(error: str, forever: bool) -> None:
    tried = numbers(FIRST_CALLS, WRITING_CALLS)
    for number in some(tried):
        try:
            run_with([fault_at(number, ERRORS[error], forever)])
        except Exception as failed:
            failed.add_note(f"{error} at call {number}, {FIRST_CALLS[number - 1]}")
            raise
    assert len(tried) > 100


@pytest.mark.parametrize("error", [0, errno.ENOSPC, errno.EIO], ids=["short", "then-ENOSPC", "then-EIO"])
def test_nothing_is_lost_by_a_short_write(error: int) -> None:
    writes = len(numbers(FIRST_CALLS, frozenset({"pwrite"})))
    for nth in some(range(1, writes + 1)):
        for size in (1, 50):
            try:
                run_with([Fault(error, "pwrite", "", nth, False, size)])
            except Exception as failed:
                failed.add_note(f"{size} bytes of write {nth}")
                raise
    assert writes > 20


def test_a_read_that_fails_costs_no_message() -> None:
    for number in some(numbers(FIRST_CALLS, frozenset({"pread", "size", "open"}))):
        try:
            run_with([fault_at(number, errno.EIO)])
        except Exception as failed:
            failed.add_note(f"EIO at call {number}, {FIRST_CALLS[number - 1]}")
            raise
    assert numbers(FIRST_CALLS, frozenset({"pread"}))
