"""A Spark session as the jobs and the tests need it.

It sets what has to be right before Spark starts: Java, which Python its workers run, which address it listens on, and
that its workers find this package. `config` can set everything otherwise.

A local session listens on the loopback interface alone; Spark by itself takes the first one that others can reach. So
does the driver of a cluster whose master is on this machine's loopback interface.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import penstock
from penstock.errors import StartupError
from penstock.pipeline.class_archive import archive_options
from penstock.pipeline.java import java_home
from penstock.pipeline.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"
# Set by spark-submit: the JVM is there already.
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
# What workers import, and what it reads.
SHIPPED: Final = (".py", ".sql")
ARCHIVE: Final = "penstock-sources.zip"

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Times are instants; a table means the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Without it the source cannot be asked to filter by itself (option pushFilters).
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # 10000 by default. Spark limits batches in bytes, too.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Hadoop's own, for checkpoints: it does not ask the process's. There are messages in what jobs write.
    "spark.hadoop.fs.permissions.umask-mode": "077",
}

# Arrow would compare each access with the bounds of its buffer, and ask for a null a second time: Spark asks before it
# reads, and reads rows that are there.
ARROW_OPTIONS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

# Archives that were made for workers, for as long as this process lives.
_archives: list[tempfile.TemporaryDirectory[str]] = []


def spark_session(
    app_name: str,
    master: str | None = "local[*]",
    config: Mapping[str, str] | None = None,
    quiet: bool = True,
) -> SparkSession:
    """Return the process's session, made when there is none. `master` None leaves it to spark-submit and its files.

    StartupError when Spark or a Java for it is not installed. Sets JAVA_HOME and PYSPARK_PYTHON in this process.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise StartupError("the pipeline needs Spark: pip install 'penstock[pipeline]'") from None
    prepare_environment(master)
    chosen = settings(master, quiet)
    if SUBMITTED not in os.environ:
        mapped = archive_options(os.environ["JAVA_HOME"])
        for who in ("driver", "executor") if is_on_loopback(master) else ("driver",):
            chosen[f"spark.{who}.defaultJavaOptions"] += f" {mapped}"
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in {**chosen, **(config or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if quiet:
        spark.sparkContext.setLogLevel("ERROR")
    ship_package(spark)
    return spark


def settings(master: str | None, quiet: bool = True) -> dict[str, str]:
    """What this module sets, for a master."""
    chosen = dict(SETTINGS)
    chosen["spark.driver.defaultJavaOptions"] = java_options(quiet)
    chosen["spark.executor.defaultJavaOptions"] = ARROW_OPTIONS
    if is_on_loopback(master):
        chosen["spark.driver.bindAddress"] = LOOPBACK
        chosen["spark.driver.host"] = LOOPBACK
    if is_local(master):
        # 200 by default: on one machine their tasks cost more than they do.
        chosen["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
    return chosen


def java_options(quiet: bool) -> str:
    """Of the driver's JVM, which starts with them."""
    log4j = Path(__file__).with_name("log4j2.properties")
    options = [ARROW_OPTIONS]
    # The file is not there when the package came in an archive; then the JVM runs already.
    if quiet and log4j.is_file():
        # Without it the JVM greets with warnings before it knows of any log level.
        options.append(f"-Dlog4j2.configurationFile={log4j.as_uri()}")
    return " ".join(options)


def prepare_environment(master: str | None) -> None:
    """What the JVM and the workers take from this process's environment."""
    if is_local(master):
        # Workers would run `python3` of PATH, which may have neither pyarrow nor this package. What a source does in
        # the driver's JVM (planning, offsets, commits) runs the Python of the other variable.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python()
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_on_loopback(master):
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    if SUBMITTED not in os.environ:
        os.environ["JAVA_HOME"] = java_home()


def is_local(master: str | None) -> bool:
    """Return whether workers are children of this process's JVM, on the same files."""
    return master is not None and re.fullmatch(r"local(\[.*\])?", master) is not None


def is_on_loopback(master: str | None) -> bool:
    if master is None:
        return False
    is_here = re.match(r"spark://(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d+", master) is not None
    return is_here or master.startswith("local")


def ship_package(spark: SparkSession) -> None:
    """Give workers on other machines this package as it is here. A local session has it, and is left alone."""
    context = spark.sparkContext
    if is_local(context.master):
        return
    if any(str(path).endswith(ARCHIVE) for path in context._python_includes or ()):
        return
    root = Path(penstock.__file__).parent
    if not root.is_dir():
        # It came in such an archive itself.
        return
    folder = tempfile.TemporaryDirectory(prefix="penstock-spark-")
    # Spark serves the file from where it is, so it stays until this process ends.
    _archives.append(folder)
    archive = Path(folder.name, ARCHIVE)
    write_archive(archive, [root, *sorted(root.parent.glob("pyspark_penstock*"))])
    context.addPyFile(str(archive))


def write_archive(archive: Path, packages: list[Path]) -> None:
    """The sources of these packages, so that they can be imported from the archive."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for package in packages:
            for path in sorted(package.rglob("*")):
                if path.suffix in SHIPPED and path.is_file():
                    target.write(path, path.relative_to(package.parent).as_posix())
