"""A factory of `penstock serve` processes that are stopped after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.process import ServeProcess

Serve = Callable[..., ServeProcess]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a broker; arguments are the command's, keyword arguments are environment variables."""
    with ExitStack() as running:

        def start(*arguments: str, **variables: str) -> ServeProcess:
            started = ServeProcess(tmp_path, *arguments, **variables)
            running.callback(started.stop)
            return started

        yield start
