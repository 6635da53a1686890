"""The archive of Spark's classes: a session that has one maps it, and a Java that makes none is no harm."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import StartupError
from penstock.pipeline import prepare
from penstock.pipeline.class_archive import archive_options, archive_path
from tests.pipeline.test_java import program


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with nothing in it, at a place with a blank in its name."""
    folder = tmp_path / "a cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def test_the_jvm_of_a_session_maps_the_archive_that_was_prepared(spark: SparkSession) -> None:
    path = archive_path(os.environ["JAVA_HOME"])
    java = spark._jvm
    assert java is not None
    # `make test` prepares a cache of its own: there, and with a Java that can, it must be.
    is_ours = os.environ.get("XDG_CACHE_HOME") == str(Path(sys.prefix, "cache"))
    if not path.is_file() and not (is_ours and java.java.lang.Runtime.version().feature() == 17):
        pytest.skip("no archive of Spark's classes: `penstock pipeline prepare` makes one, with Java 17")
    maps = Path(f"/proc/{java.java.lang.ProcessHandle.current().pid()}/maps")
    if not maps.is_file():
        pytest.skip("needs /proc: what a process maps is looked at")
    assert str(path) in maps.read_text()


def test_without_an_archive_the_jvm_is_told_nothing(cache: Path) -> None:
    assert archive_options("/usr/lib/jvm/a") == ""


def test_each_java_has_its_own_archive_and_blanks_in_its_path_are_quoted(cache: Path) -> None:
    path = archive_path("/usr/lib/jvm/a")
    assert path != archive_path("/usr/lib/jvm/b")
    path.touch()
    assert archive_options("/usr/lib/jvm/a") == f'"-XX:SharedArchiveFile={path}" -Xlog:cds*=off'
    assert archive_options("/usr/lib/jvm/b") == ""


def test_a_cache_that_others_can_write_to_is_not_used(cache: Path) -> None:
    cache.mkdir()
    (cache / "elsewhere").mkdir()
    (cache / "penstock").symlink_to(cache / "elsewhere")
    assert archive_options("/usr/lib/jvm/a") == ""


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo cannot >&2; exit 3", "has not written an archive of Spark's classes: exit code 3: cannot"),
        ("exit 0", "has not written an archive"),
        # It writes one, and then cannot use it.
        (
            'for a; do case $a in -XX:Shared*File=*) touch "${a#*=}";; -Xshare:on) echo twice; exit 1;; esac; done',
            r"cannot use an archive of Spark's classes, so Spark starts as before; Java 17 can .*: exit code 1: twice",
        ),
    ],
)
def test_a_java_that_makes_no_archive_is_told_and_leaves_none(
    tmp_path: Path, cache: Path, script: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "java"
    program(home / "bin" / "java", script)
    monkeypatch.setattr(prepare, "java_home", lambda: str(home))

    def noted(classes: Path, folder: Path) -> str:
        classes.write_text("java/lang/Object\n")
        return "a.jar"

    monkeypatch.setattr(prepare, "_note_classes", noted)
    with pytest.raises(StartupError, match=complaint):
        prepare.make_archive(lambda text: None)
    assert list((cache / "penstock").iterdir()) == []
