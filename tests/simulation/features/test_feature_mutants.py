"""The feature simulation notices bugs: each of those that are put in on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.features.feature_mutants import FEATURE_MUTANTS, feature_applied
from tests.simulation.features.feature_simulation import run_seed

pytestmark = pytest.mark.slow

# Within so many seeds a bug is noticed; most need fewer than ten.
SEEDS_MAX = 300


def is_noticed(seed: int) -> bool:
    try:
        run_seed(seed)
    except Exception:
        return True
    return False


@pytest.mark.parametrize("name", sorted(FEATURE_MUTANTS))
def test_the_feature_simulation_notices(name: str) -> None:
    with feature_applied(name):
        noticed = next((seed for seed in range(SEEDS_MAX) if is_noticed(seed)), None)
    assert noticed is not None, f"nothing in {SEEDS_MAX} seeds shows it"


def test_the_readme_lists_every_feature_mutant() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert [name for name in FEATURE_MUTANTS if f"`{name}`" not in readme] == []
