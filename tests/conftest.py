"""What all tests share: hypothesis without stop-watch, a broker on the wire, a PostgreSQL (postgres_server.py)."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.builds import BUILD, HonestMonkeyPatch
from tests.effort import examples

# Examples are not timed: a loaded machine is not a failing test.
settings.register_profile("penstock", deadline=None, max_examples=examples(100))
settings.load_profile("penstock")

ROOT = Path(__file__).resolve().parents[1]

pytest_plugins = ["tests.postgres_server"]

# Where tests were started with nohup, a broker that they start would ignore SIGHUP as well, which means to reload.
if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# For every Spark that a test starts, in whatever process: it is over before the better compiler has paid for itself.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Files whose tests share a Spark session share a process, too: a session takes a gigabyte, and seconds to start.
SPARK = "tests/pipeline/"
SESSION = "spark: SparkSession"
# Those that start Spark in processes of their own do it in two groups, one after the other in each: Spark
# gives up on what starts too slowly.
SPARK_PROCESSES = {
    "Spark is killed": ("tests/pipeline/exactly_once/", "tests/cli/test_pipeline_run.py"),
    "Spark in processes": (
        "tests/pipeline/cluster/",
        "tests/pipeline/refine/test_refine_process.py",
        "tests/pipeline/sink/test_retried_task.py",
        "tests/pipeline/test_java.py",
        "tests/pipeline/test_shipping.py",
        "tests/pipeline/test_warm_worker.py",
        "tests/cli/test_pipeline_walk.py",
    ),
}
# Long searches whose tests share nothing.
SEARCHES = (
    "tests/simulation/test_simulation.py",
    "tests/simulation/test_faults.py",
    "tests/simulation/features/",
    "tests/contract/test_variable_storm.py",
    "tests/unit/queues/test_shelf_model.py",
)


def group_of(nodeid: str) -> str:
    """Tests of one group run in one process: those of a file, all that use Spark, or a single one."""
    for group, beginnings in SPARK_PROCESSES.items():
        if nodeid.startswith(beginnings):
            return group
    file = nodeid.partition("::")[0]
    if file.startswith(SPARK) and uses_session(file):
        return SPARK
    return nodeid if nodeid.startswith(SEARCHES) else file


@cache
def uses_session(file: str) -> bool:
    return SESSION in (ROOT / file).read_text(encoding="utf-8")


class Groups(LoadFileScheduling):
    """Hands out tests by group."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def place_of(item: pytest.Item) -> int:
    """The groups that take longest come first, so that nobody waits for them in the end; single tests fill the end."""
    group = group_of(item.nodeid)
    return 0 if group == SPARK else 1 if group in SPARK_PROCESSES else 3 if group == item.nodeid else 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=place_of)


def pytest_report_header() -> str:
    return f"penstock: {BUILD}"


@pytest.fixture
def monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    """As pytest's own; on compiled modules it skips what they would not notice."""
    patch = HonestMonkeyPatch()
    yield patch
    patch.undo()


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the collector does not look at them again and again."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _leaks_are_found_where_they_are_made() -> Iterator[None]:
    """What a file leaves open is noticed at its end, and not in some test that happens to run when memory is tidied.

    What is left then stays, and is not looked at again: tests of the collector bring back what was put aside.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups | None:
    return Groups(config, log) if config.getvalue("dist") == "loadfile" else None


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
