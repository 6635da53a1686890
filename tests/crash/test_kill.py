"""kill -9 of a real broker under load, and clean stops under load; `make crash CYCLES=5000` for more of it."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

from tests.crash.__main__ import run_round
from tests.crash.checker import Checker
from tests.crash.cycles import ENDS, Driver, Round
from tests.crash.history import read_history

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9 and poll() are POSIX"),
]
# Enough for each way to end, for a kill during the recovery, and for consumers and publishers in each of their moods:
# the seeds were chosen for that.
CYCLES, SEEDS = 8, {False: 205, True: 235}
CLEAN_CYCLES, CLEAN_SEED = 4, 137


def ends_of(plan: Round) -> set[str]:
    """How the broker ended in the round."""
    return {details[0] for kind, _, _, *details in read_history(plan.histories / "driver.jsonl") if kind == "info end"}


@pytest.mark.parametrize("small", [False, True], ids=["real limits", "tiny limits"])
def test_a_broker_that_is_killed_again_and_again_keeps_what_it_promised(
    small: bool, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    plan = Round(tmp_path / "round", SEEDS[small], cycles=CYCLES, small=small)
    confirmed, problems = run_round(plan)
    assert not problems
    assert confirmed > 1000, "next to nothing was confirmed: the test proves nothing"
    assert ends_of(plan) == set(ENDS)
    record_property("ready_s_median", round(statistics.median(plan.ready_s), 3))
    record_property("ready_s_longest", round(max(plan.ready_s), 3))


@pytest.mark.parametrize("small", [False, True], ids=["real limits", "tiny limits"])
def test_a_broker_that_is_stopped_and_started_forgets_nothing_and_flags_nothing_without_reason(
    small: bool, tmp_path: Path
) -> None:
    plan = Round(tmp_path / "round", CLEAN_SEED, cycles=CLEAN_CYCLES, small=small, clean=True)
    confirmed, problems = run_round(plan)
    assert not problems
    assert confirmed > 500, "next to nothing was confirmed: the test proves nothing"


def test_a_broker_that_promises_too_early_is_found_out(tmp_path: Path) -> None:
    # Confirms that wait for nothing: a kill shows it. This is the test of the two above.
    # One kill in some is enough, so short rounds, each of which is looked at: the first usually shows it.
    for seed in range(1, 7):
        plan = Round(tmp_path / f"round-{seed}", seed, cycles=5, arguments=("--confirm-sync", "none"))
        Driver(plan).run()
        kinds = {kind for kind, _ in Checker(plan.histories).anomalies}
        if "lost" in kinds:
            break
    assert "lost" in kinds
