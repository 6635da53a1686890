"""Every contract test runs against every backing queue, once with transient and once with persistent messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.backing.backing_queue import BackingQueue
from tests.contract.backings import BACKING_PARAMETERS, Backing, OpenBacking


@pytest.fixture(params=BACKING_PARAMETERS)
def spec(request: pytest.FixtureRequest) -> Backing:
    return request.param


@pytest.fixture(params=[False, True], ids=["transient", "persistent"])
def backing(request: pytest.FixtureRequest, spec: Backing, tmp_path: Path) -> Iterator[OpenBacking]:
    """An empty queue. What a test leaves must still satisfy the invariants and give every confirm."""
    opened = OpenBacking(spec, tmp_path, persistent=request.param)
    yield opened
    opened.queue.check_invariants()
    opened.queue.delete_and_terminate()
    opened.open_queues.stop()


@pytest.fixture
def bq(backing: OpenBacking) -> BackingQueue:
    return backing.queue
