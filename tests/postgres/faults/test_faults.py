"""Two brokers, sessions and plain SQL on one PostgreSQL while it all breaks: nothing is lost, nothing invented.

Longer: `python -m tests.postgres.faults --faults 2000 --seed 7`. See docs/postgres-faults.md.
"""

from __future__ import annotations

import pytest

from tests.postgres.faults.__main__ import run_plans
from tests.postgres.faults.injector import GENTLE, ROUGH
from tests.postgres.faults.rounds import plans
from tests.postgres.faults.stage import SETTINGS
from tests.postgres_server import new_server

# Every kind is among so many.
FAULTS = 25
SEED = 1


def test_the_faults_that_are_tried_here_are_of_every_kind() -> None:
    assert {kind for plan in plans(SEED, FAULTS) for kind in plan.faults} == {*GENTLE, *ROUGH}


def test_the_faults_of_a_seed_are_always_the_same() -> None:
    assert plans(5, 60) == plans(5, 60)
    assert plans(5, 60) != plans(6, 60)
    assert sum(len(plan.faults) for plan in plans(5, 23)) == 23
    assert plans(5, 60)[0].is_gentle


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_invented_whatever_breaks() -> None:
    assert run_plans(plans(SEED, FAULTS), is_talking=True, server=new_server(SETTINGS)) == []
