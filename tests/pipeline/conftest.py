"""What the tests of the pipeline share: one Spark session, a broker with a folder, and journals made by hand.

A session takes seconds to start, so there is one for each process of the run, made when a test first asks for it. Its
tests are `slow`: `make test` runs them, `make check` does not. They share its settings: who needs others starts a
process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.written_journal import Step, WrittenJournal, write_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing import Broker

JournalOf = Callable[[Iterable[Step]], str]

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # A stream looks for new data as often as it can.
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
# The first use of Spark in a run pays for its start, on a machine that does other things at the same time.
SECONDS_FOR_SPARK = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SECONDS_FOR_SPARK))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The process's session. Streams that a test has left are stopped by `no_stream_is_left`."""
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")
    from penstock.pipeline.session import spark_session

    session = spark_session("penstock tests", master="local[2]", config=SETTINGS)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def no_stream_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        session: SparkSession = request.getfixturevalue("spark")
        for query in session.streams.active:
            query.stop()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data folder of `broker`."""
    return tmp_path / "data"


@pytest.fixture
def broker(data_dir: Path) -> Iterator[Broker]:
    """A real broker that keeps what is durable in `data_dir`."""
    from penstock.testing import Broker

    with Broker(data_dir=data_dir) as running:
        yield running


@pytest.fixture
def journal_of(tmp_path: Path) -> JournalOf:
    """Makes a data folder whose journal has these steps (see `written_journal`), and returns its path."""
    made = 0

    def make(steps: Iterable[Step]) -> str:
        nonlocal made
        made += 1
        folder = tmp_path / f"journal-{made}"
        folder.mkdir()
        journal = WrittenJournal(folder)
        write_steps(journal, steps)
        journal.close()
        return str(folder)

    return make
