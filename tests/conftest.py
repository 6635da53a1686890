"""What all tests share: hypothesis without stop-watch, a broker on the wire, a PostgreSQL (postgres_server.py)."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.effort import examples

# Examples are not timed: a loaded machine is not a failing test.
settings.register_profile("penstock", deadline=None, max_examples=examples(100))
settings.load_profile("penstock")

pytest_plugins = ["tests.postgres_server"]

# For every Spark that a test starts, in whatever process: it is over before the better compiler has paid for itself.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Tests that share a Spark session share a process, too: a session takes a gigabyte, and seconds to start.
SPARK = "tests/pipeline/"
# Those in there that have none, or start processes of their own.
NOT_SPARK = tuple(f"tests/pipeline/{name}/" for name in ("cluster", "decode", "exactly_once", "report"))


class FilesAndSpark(LoadFileScheduling):
    """A file stays in one process; all files that use Spark are as one."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(SPARK) and not nodeid.startswith(NOT_SPARK):
            return SPARK
        return super()._split_scope(nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, so that nobody waits for it in the end; otherwise as it was collected."""
    items.sort(key=lambda item: not item.nodeid.startswith(SPARK))


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the collector does not look at them again and again."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _leaks_are_found_where_they_are_made() -> Iterator[None]:
    """What a file leaves open is noticed at its end, and not in some test that happens to run when memory is tidied."""
    yield
    gc.collect()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndSpark | None:
    return FilesAndSpark(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def broker_url() -> Iterator[str]:
    """An AMQP URL: PENSTOCK_TEST_BROKER_URL when set, else a penstock started for this session.

    The variable exists to run the interop tests against RabbitMQ, which proves the tests themselves.
    """
    outside = os.environ.get("PENSTOCK_TEST_BROKER_URL")
    if outside:
        yield outside
        return
    from penstock.testing import Broker

    with Broker() as broker:
        yield broker.url
