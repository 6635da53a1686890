"""Random work, checkpoints, moves, and losses of power, against a model; see `variable_storm`.

PENSTOCK_STORM_SEEDS=5000 searches longer.
"""

from __future__ import annotations

import os

import pytest

from tests.contract.variable_storm import Storm
from tests.effort import some

# Seeds that once found a bug, each of another kind.
FOUND = [62, 1218, 2548, 3018, 3255, 3396, 3754]
# Of the longer storms.
SEEDS = int(os.environ.get("PENSTOCK_STORM_SEEDS", "300"))
FIRST, BLOCKS = 10_000, 20


@pytest.mark.parametrize("seed", FOUND)
def test_what_went_wrong_once_goes_right(seed: int) -> None:
    storm = Storm(seed)
    storm.run(150)
    assert storm.house.queue.lost_count == 0


@pytest.mark.parametrize("block", some(range(10)))
def test_nothing_is_lost_nothing_comes_back_and_nothing_is_left_over(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        storm = Storm(seed)
        storm.run(100)
        assert storm.published > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", some(range(BLOCKS)))
def test_nothing_is_lost_in_longer_storms(block: int) -> None:
    for seed in range(FIRST + block, FIRST + SEEDS, BLOCKS):
        storm = Storm(seed)
        storm.run(200)
        assert storm.published > 0
