"""Makes the archive of Spark's classes (`class_archive`): `penstock pipeline prepare`.

Runs a small archive and refine, notes which classes they used, and has Java write them. The file takes its place when
it is whole and Java has shown that it can use it; until then there is the old one, or none.

It takes a minute or two, and 200 MB, so it runs only when it is asked for.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.client.sync.session import Session
from penstock.errors import StartupError
from penstock.pipeline.archive import ArchiveOptions, archive
from penstock.pipeline.class_archive import SILENT, archive_path, quoted
from penstock.pipeline.java import java_home
from penstock.pipeline.lake.opening import open_lake
from penstock.pipeline.own_scripts import own_folder
from penstock.pipeline.refine.refine import refine
from penstock.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITING_S: Final = 600.0
JVM_EXIT_S: Final = 60.0
MESSAGES: Final = 20
SAID_CHARS: Final = 300


@dataclass(frozen=True)
class Prepared:
    """What `make_archive` has made."""

    path: str
    java: str
    classes: int
    bytes: int


def make_archive(say: Callable[[str], None]) -> Prepared:
    """Make the archive, or make it anew. StartupError when Spark does not start, or Java does not write it."""
    home = java_home()
    target = archive_path(home)
    with tempfile.TemporaryDirectory(prefix="penstock-prepare-", dir=own_folder()) as name:
        folder = Path(name)
        classes, draft = folder / "classes", folder / "draft"
        say("running a small archive and refine, to see which classes they use …")
        class_path = _note_classes(classes, folder)
        say("writing the archive …")
        _write(str(Path(home, "bin", "java")), classes, class_path, draft)
        # Whole or not at all: a JVM that starts meanwhile finds the old one, and keeps it.
        draft.replace(target)
        count = sum(1 for line in classes.read_text().splitlines() if not line.startswith(("#", "@")))
    return Prepared(str(target), home, count, target.stat().st_size)


def _note_classes(classes: Path, folder: Path) -> str:
    """Run what jobs run; the class path of the JVM that did."""
    source, lake = folder / "queues", folder / "lake"
    _live(source)
    options = quoted(f"-XX:DumpLoadedClassList={classes}")
    # A session that is there already would have been started without the option.
    config = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": f"-Xshare:off {options}"}
    spark = spark_session("penstock prepare", "local[1]", config)
    try:
        _work(spark, source, lake)
        class_path = str(_system_property(spark, "java.class.path"))
    finally:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(JVM_EXIT_S)
        except subprocess.TimeoutExpired:
            # What it has noted by then is as good, if not all.
            gateway.proc.kill()
    if not classes.is_file():
        raise StartupError("Spark was started before in this process: run `penstock pipeline prepare` by itself")
    return class_path


def _system_property(spark: SparkSession, name: str) -> object:
    java = spark._jvm
    assert java is not None
    return java.java.lang.System.getProperty(name)


def _live(source: Path) -> None:
    """A journal with some messages that were published, and some that were done."""
    with Session(source.absolute().as_uri()) as session:
        session.use_queue("orders")
        with session.producer_for("orders") as producer:
            producer.put_many([b"%d" % number for number in range(MESSAGES)])
        with session.consumer_for("orders") as consumer:
            consumer.finalize_many(consumer.reserve_many(MESSAGES // 2))


def _work(spark: SparkSession, source: Path, lake: Path) -> None:
    archive(spark, ArchiveOptions(str(source), str(lake), once=True))
    refine(spark, open_lake(str(lake)))
    events = spark.read.format("penstock").option("source", str(source)).load()
    events.groupBy("queue", "kind").count().orderBy("count").collect()
    events.write.format("noop").mode("overwrite").save()


def _write(java: str, classes: Path, class_path: str, draft: Path) -> None:
    about = (f"-XX:SharedArchiveFile={draft}", "-cp", class_path)
    # It is over before the better compiler has paid for itself.
    cheap = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    failure = _run(java, "-Xshare:dump", SILENT, *cheap, f"-XX:SharedClassListFile={classes}", *about)
    if failure is not None or not draft.is_file():
        raise StartupError(f"{java} has not written an archive of Spark's classes: {failure}")
    # Ends at once if it cannot use the archive. Java 21 cannot: it does not understand a class path that has the same
    # jar twice, and Spark's launcher makes such a one.
    failure = _run(java, "-Xshare:on", *about, "-version")
    if failure is not None:
        raise StartupError(
            f"{java} cannot use an archive of Spark's classes, so Spark starts as before; Java 17 can"
            f" (install one, and set JAVA_HOME to its folder): {failure}"
        )


def _run(*command: str) -> str | None:
    """What is wrong; None when all is well."""
    try:
        done = subprocess.run(  # noqa: S603 - the Java that Spark was run with
            command, capture_output=True, text=True, errors="replace", timeout=WRITING_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = " ".join((done.stderr + done.stdout).split())
    return None if done.returncode == 0 else f"exit code {done.returncode}: {said[-SAID_CHARS:]}"
