"""A task that is made again by Spark publishes nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing import Broker
from tests.pipeline import spark_process
from tests.pipeline.sink.queues import bodies, declare_dedup

ROWS = 6_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_task_that_failed_in_the_middle_and_is_made_again_publishes_each_row_once(
    broker: Broker, tmp_path: Path
) -> None:
    declare_dedup(broker.url, "orders")
    log = tmp_path / "log.txt"
    process = spark_process.start("tests.pipeline.sink.retried_task", [broker.url], log)
    try:
        assert process.wait(240) == 0, log.read_text()[-5000:]
    finally:
        spark_process.kill(process)
    assert "as the test wants it" in log.read_text()
    assert sorted(map(int, bodies(broker.url, "orders"))) == list(range(ROWS))
