"""A house with an engine in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "folder")
    yield house
    house.engine.close()
