"""Places for the worker's tests: the same tests on a PostgreSQL, an AMQP broker and a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.sync.session import Session
from penstock.testing import Broker


@pytest.fixture(params=["postgres", "amqp", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Each kind of place, with nothing in it."""
    if request.param == "postgres":
        yield request.getfixturevalue("penstock_url")
    elif request.param == "file":
        yield f"file://{tmp_path / 'queues'}"
    else:
        with Broker() as broker:
            yield broker.url


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    with Session(url) as opened:
        yield opened


@pytest.fixture
def gate(tmp_path: Path) -> str:
    """A FIFO: a job that reads it waits until the test opens it for writing."""
    os.mkfifo(tmp_path / "gate")
    return str(tmp_path / "gate")
