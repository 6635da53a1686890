"""Workers that do not have the package get it from the driver: a cluster whose Python lacks it."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.pipeline.source.log_scenes import decoded, write_log

JOB = """
import json, sys
from penstock.pipeline.session import spark_session, ship_package

spark = spark_session("workers without the package", master="local-cluster[1,1,512]", config={
    "spark.executor.memory": "512m",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
})
ship_package(spark)

def where(_):
    import penstock
    yield penstock.__file__

found = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
frame = spark.read.format("penstock").schema("lsn long").load(sys.argv[1])
lsns = sorted(row.lsn for row in frame.collect())
print(json.dumps({"found": found, "lsns": lsns, "shipped": len(spark.sparkContext._python_includes)}))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_workers_without_the_package_read_with_the_one_of_the_driver(tmp_path: Path) -> None:
    write_log(tmp_path / "data", minutes=2).close()
    # Without `site` nothing that is installed by a .pth file is found: packages from PyPI are, this one is not.
    python = tmp_path / "python"
    packages = sysconfig.get_paths()["purelib"]
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    lacks = subprocess.run([str(python), "-c", "import pyarrow, penstock"], capture_output=True, text=True, check=False)
    if "No module named 'penstock'" not in lacks.stderr:
        pytest.skip("the package is in site-packages itself, so that no Python of this environment lacks it")
    said = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path / "data")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYSPARK_PYTHON": str(python)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout.splitlines()[-1])
    assert all("penstock-sources.zip" in path for path in told["found"]), told
    assert told["lsns"] == [row["lsn"] for row in decoded(tmp_path / "data")]
    assert told["shipped"] == 1
