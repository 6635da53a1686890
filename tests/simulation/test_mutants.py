"""The tests of this folder notice bugs: each of those that are put in on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.damage import SmallStore, worst_flips
from tests.simulation.mutants import MUTANTS, OF_DAMAGE, applied
from tests.simulation.simulation import run_seed

pytestmark = pytest.mark.slow

# Within so many seeds a bug is noticed; most need fewer than fifty.
SEEDS_MAX = 2000


def is_noticed(seed: int) -> bool:
    try:
        run_seed(seed)
    except Exception:
        return True
    return False


@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in OF_DAMAGE])
def test_the_simulation_notices(name: str) -> None:
    with applied(name):
        noticed = next((seed for seed in range(SEEDS_MAX) if is_noticed(seed)), None)
    assert noticed is not None, f"nothing in {SEEDS_MAX} seeds shows it"


@pytest.mark.parametrize("name", sorted(OF_DAMAGE))
def test_flipped_bits_notice(name: str) -> None:
    store = SmallStore(stopped=False)
    with applied(name), pytest.raises(AssertionError):
        worst_flips(store, 5, "journal/")


def test_the_readme_lists_every_mutant() -> None:
    readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    assert [name for name in MUTANTS if f"`{name}`" not in readme] == []
