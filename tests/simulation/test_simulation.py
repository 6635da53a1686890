"""Seeds of the simulation: whatever happens, what was promised is there, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import some
from tests.simulation.simulation import run_seed

pytestmark = pytest.mark.slow

SEEDS = 2000
CHUNK = 50
ROOT = Path(__file__).resolve().parents[2]

DIGEST = "from tests.simulation.simulation import run_seed; import sys; sys.stdout.write(run_seed({seed}).digest())"


@pytest.mark.parametrize("first", some(range(0, SEEDS, CHUNK)))
def test_what_was_promised_is_there_and_nothing_else_is(first: int) -> None:
    failed: dict[int, str] = {}
    for seed in range(first, first + CHUNK):
        try:
            run_seed(seed)
        except Exception as error:
            failed[seed] = f"{type(error).__name__}: {error}"
    assert not failed, f"python -m tests.simulation --seed {next(iter(failed), 0)} shows every step: {failed}"


@pytest.mark.parametrize("seed", [3, 17, 40])
def test_a_seed_does_the_same_in_every_process(seed: int) -> None:
    digests = []
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", DIGEST.format(seed=seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(ran.stdout)
    assert len(digests[0]) == 64
    assert digests[0] == digests[1]


def test_two_seeds_do_different_things() -> None:
    assert run_seed(3).digest() != run_seed(4).digest()
