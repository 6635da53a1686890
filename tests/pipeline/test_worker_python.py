"""The Python of Spark's processes: this one, with pyspark as it is installed and everything else of their path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.worker_python import installed_archives, worker_python


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tmp_path / "a cache"


def test_workers_import_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    def found(_: int) -> tuple[str, str]:
        import sys

        import pyspark

        return pyspark.__file__, sys.executable

    [(package, python)] = spark.sparkContext.parallelize([0], 1).map(found).collect()
    assert (package, python) == (pyspark.__file__, sys.executable)


def test_all_but_the_archives_stays_in_the_path_and_arguments_are_as_they_were() -> None:
    archives = installed_archives()
    assert archives is not None
    others = ["/a folder", "*", "relative", f"{archives}-not"]
    path = os.pathsep.join([f"{archives}/pyspark.zip", others[0], f"{archives}/py4j-1-src.zip", *others[1:]])
    program = "import os, sys; print(os.environ['PYTHONPATH']); print(sys.argv[1:])"
    done = subprocess.run(
        [worker_python(), "-c", program, "a b", "*", "c:d"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [os.pathsep.join(others), "['a b', '*', 'c:d']"]


def test_the_script_is_made_once_and_again_when_it_was_changed() -> None:
    script = Path(worker_python())
    text, number = script.read_text(), script.stat().st_ino
    assert worker_python() == str(script)
    assert script.stat().st_ino == number
    script.write_text("#!/bin/sh\nexit 1\n")
    assert worker_python() == str(script)
    assert script.read_text() == text


def test_a_pyspark_from_elsewhere_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark" / "python" / "lib").mkdir(parents=True)
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    assert worker_python() == sys.executable


def test_where_no_script_can_be_made_python_is_started_as_it_is(own_cache: Path) -> None:
    own_cache.mkdir()
    (own_cache / "elsewhere").mkdir()
    (own_cache / "penstock").symlink_to(own_cache / "elsewhere")
    assert worker_python() == sys.executable
