"""The job as a process: killed with -9 while it works, and started again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.refine import progress
from tests.interop.deadline import wait_until
from tests.pipeline import spark_process
from tests.pipeline.conftest import SECONDS_FOR_SPARK
from tests.pipeline.refine.test_refine import archive, busy_log, check_tables

JOB = "penstock.pipeline.jobs.refine"


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_FOR_SPARK)
def test_a_job_that_was_killed_is_started_again_and_loses_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    log = busy_log(40)
    archive(lake, log, 0)
    arguments = ["--lake", str(lake.path), "--master", "local[1]", "--step-events", "50", "--json"]
    output = tmp_path / "output"
    process = spark_process.start(JOB, arguments, output)
    try:
        # The second range is begun: the first is done, and there is more to do.
        wait_until(lambda: version_begun(lake) == 2, "a second range", timeout_s=SECONDS_FOR_SPARK * 0.4)
    finally:
        spark_process.kill(process)
    assert progress.refined(lake).lsn < len(log)
    assert spark_process.start(JOB, arguments, output).wait(SECONDS_FOR_SPARK * 0.5) == 0
    result = json.loads(output.read_text().splitlines()[-1])
    assert result["lsn"] == result["end_lsn"] == len(log)
    check_tables(lake, log)


def version_begun(lake: Lake) -> int:
    begun = progress.planned(lake)
    return 0 if begun is None else begun.version
