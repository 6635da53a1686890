"""The session: bound to this machine, in UTC, with this process's Python and this package on every worker."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import StartupError
from penstock.pipeline import session
from penstock.pipeline.session import (
    is_local,
    is_on_loopback,
    prepare_environment,
    settings,
    ship_package,
    write_archive,
)
from penstock.pipeline.worker_python import worker_python


def test_a_session_listens_on_the_loopback_interface_alone(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"


def test_times_are_in_utc_and_filters_are_pushed_down(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]


@pytest.mark.parametrize(
    ("master", "local", "loopback"),
    [
        ("local", True, True),
        ("local[*]", True, True),
        ("local[2,3]", True, True),
        ("local-cluster[2,1,1024]", False, True),
        ("spark://127.0.0.1:7077", False, True),
        ("spark://localhost:7077", False, True),
        ("spark://10.0.0.1:7077", False, False),
        ("spark://127.example.com:7077", False, False),
        ("k8s://https://example.com", False, False),
        (None, False, False),
    ],
)
def test_only_masters_of_this_machine_bind_to_loopback(master: str | None, local: bool, loopback: bool) -> None:
    assert is_local(master) is local
    assert is_on_loopback(master) is loopback
    assert ("spark.driver.bindAddress" in settings(master)) is loopback


def test_the_archive_can_be_imported_from(tmp_path: Path) -> None:
    root = Path(session.penstock.__file__).parent
    archive = tmp_path / "sources.zip"
    write_archive(archive, [root, *root.parent.glob("pyspark_penstock*")])
    program = (
        "import penstock.pipeline.session as s, pyspark_penstock as p;"
        "assert '.zip' in s.__file__ and '.zip' in p.__file__, s.__file__;"
        "print(p.DefaultSource.name())"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {program}"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert said.stdout == "penstock\n", said.stderr
    assert not [name for name in zipfile.ZipFile(archive).namelist() if "__pycache__" in name]


def test_a_local_session_is_sent_nothing(spark: SparkSession) -> None:
    before = list(spark.sparkContext._python_includes)
    ship_package(spark)
    assert spark.sparkContext._python_includes == before


def test_without_spark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(StartupError, match=r"pip install 'penstock\[pipeline\]'"):
        session.spark_session("nothing")


def test_the_environment_of_a_cluster_is_left_to_who_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "JAVA_HOME"):
        # Set and then removed, so that both are taken back after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    prepare_environment("spark://10.0.0.1:7077")
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert "SPARK_LOCAL_IP" not in os.environ
    # spark-submit has started the JVM: no other Java is looked for.
    assert "JAVA_HOME" not in os.environ
    prepare_environment("local[1]")
    assert os.environ["PYSPARK_PYTHON"] == worker_python()
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
