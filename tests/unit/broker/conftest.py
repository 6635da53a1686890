"""Brokers in memory and on a simulated disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from at_hand_house import House


@pytest.fixture(params=["in memory", "on disk"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    made = House(request.param == "on disk")
    yield made
    made.check()


@pytest.fixture
def durable_house() -> Iterator[House]:
    made = House(True)
    yield made
    made.check()
