"""A broker with a tiny store, and its log both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.history.log import Log
from penstock.server.sync import open_store
from penstock.testing import Broker
from tests.history.small_broker import http_broker, log_of, small_options
from tests.server.brokers import check_health

OpenLog = Callable[[], Log]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(open_store, "StoreOptions", small_options)
    with http_broker(folder) as running:
        yield running
        if running.is_running:
            check_health(running)


@pytest.fixture(params=["folder", "http"])
def any_log(request: pytest.FixtureRequest, broker: Broker, folder: Path) -> Iterator[OpenLog]:
    """Opens the log of the broker, as often as it is called."""
    with ExitStack() as opened:

        def open_one() -> Log:
            log = log_of(request.param, broker, folder)
            opened.callback(log.close)
            return log

        yield open_one
