"""kill -9 of a real broker under load, and clean stops under load; `make crash CYCLES=5000` for more of it."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

from tests.crash.__main__ import run_round
from tests.crash.checker import Checker
from tests.crash.cycles import Driver, Round

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9 and poll() are POSIX"),
]
CYCLES = 15


@pytest.mark.parametrize("small", [False, True], ids=["real limits", "tiny limits"])
def test_a_broker_that_is_killed_again_and_again_keeps_what_it_promised(
    small: bool, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    plan = Round(tmp_path / "round", seed=20 + small, cycles=CYCLES, small=small)
    confirmed, problems = run_round(plan)
    assert not problems
    assert confirmed > 1000, "next to nothing was confirmed: the test proves nothing"
    record_property("ready_s_median", round(statistics.median(plan.ready_s), 3))
    record_property("ready_s_longest", round(max(plan.ready_s), 3))


@pytest.mark.parametrize("small", [False, True], ids=["real limits", "tiny limits"])
def test_a_broker_that_is_stopped_and_started_forgets_nothing_and_flags_nothing_without_reason(
    small: bool, tmp_path: Path
) -> None:
    plan = Round(tmp_path / "round", seed=30 + small, cycles=6, small=small, clean=True)
    confirmed, problems = run_round(plan)
    assert not problems
    assert confirmed > 500, "next to nothing was confirmed: the test proves nothing"


def test_a_broker_that_promises_too_early_is_found_out(tmp_path: Path) -> None:
    # Confirms that wait for nothing: a kill shows it. This is the test of the two above.
    for seed in range(3):
        plan = Round(tmp_path / f"round-{seed}", seed, cycles=10, arguments=("--confirm-sync", "none"))
        Driver(plan).run()
        kinds = {kind for kind, _ in Checker(plan.histories).anomalies}
        if "lost" in kinds:
            break
    assert "lost" in kinds
