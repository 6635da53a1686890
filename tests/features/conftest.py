"""Brokers of the feature tests: in memory, in a folder, and two ways to end in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.features.stage import Stage, on_stage

Restart = Callable[[Stage], None]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """In memory."""
    with on_stage() as stage:
        yield stage


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Stage]:
    """In a folder."""
    with on_stage(tmp_path / "data") as stage:
        yield stage


@pytest.fixture(params=["memory", "folder"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Once in memory, once in a folder: the backings differ."""
    with on_stage(tmp_path / "data" if request.param == "folder" else None) as stage:
        yield stage


@pytest.fixture(params=[Stage.stop_and_start, Stage.kill_and_start], ids=["restart", "kill"])
def restart(request: pytest.FixtureRequest) -> Restart:
    chosen: Restart = request.param
    return chosen
