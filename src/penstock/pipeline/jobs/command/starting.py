"""What comes before a job: a log that can be read, and Spark, which a job starts unless spark-submit has done so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from penstock.errors import StartupError
from penstock.pipeline.jobs.command.options import LOCAL, MEMORY, is_submitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_for(job: str, master: str | None, driver_memory: str | None) -> Iterator[SparkSession]:
    """A session for one job."""
    from penstock.pipeline.quiet_java import without_warnings
    from penstock.pipeline.session import spark_session
    from penstock.pipeline.spark_errors import SPARK_ERRORS, check_master, in_words

    config = {}
    given = "the options of spark-submit"
    if not is_submitted():
        master = master or LOCAL
        config["spark.driver.memory"] = driver_memory or MEMORY
        given = f"--master {master} and --driver-memory {config['spark.driver.memory']}"
        check_master(master)
    if sys.stderr.isatty():
        click.echo("starting Spark …", err=True)
    with without_warnings():
        try:
            spark = spark_session(f"penstock {job}", master, config)
        except SPARK_ERRORS as error:
            raise StartupError(f"Spark does not start with {given}: {in_words(error)}") from error
        try:
            yield spark
        finally:
            spark.stop()


def look_at_log(source: str, user: str | None) -> None:
    """HistoryError when the log cannot be read: it is told before Spark has taken its time to start."""
    from penstock.history.opening import open_log

    with closing(open_log(source, user)) as log:
        log.state()
