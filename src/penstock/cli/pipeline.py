"""`penstock pipeline`: the group, and what its commands have in common.

Options, texts and exit codes; the work is done in `penstock.pipeline`, which is imported when a command runs: Spark and
Arrow are an extra.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any, NoReturn

import click

from penstock.cli.quiet_java import without_warnings
from penstock.errors import StartupError

EXIT_FAILED = 1
MISSING = "the pipeline needs Spark and Arrow: pip install 'penstock[pipeline]'"

Command = Callable[..., None]


# What the commands write has messages in it; what Spark writes for them, too.
PRIVATE = 0o077


@click.group(short_help="Messages and their history on Spark: archive, refine, report, replay.")
@click.pass_context
def pipeline(context: click.Context) -> None:
    """Bring every message's life into a lake, make use of it, and bring messages back into queues. Runs on Spark.

    --source is the data folder of a broker, or http://HOST:PORT of one that was started with --http-port. --lake is a
    folder: tables in Delta or Parquet that Spark, DuckDB and pandas read. --master is Spark's; by default all cores of
    this machine. PENSTOCK_SOURCE, PENSTOCK_LAKE, PENSTOCK_USER and PENSTOCK_PASSWORD are taken from the environment.

    Exit codes: 0 done as asked; 1 failed, and says why; 2 wrong options.
    """
    if context.invoked_subcommand != "report":
        # A report is written where its user wants it, for whom he wants.
        os.umask(PRIVATE | os.umask(PRIVATE))


def source_options(command: Command) -> Command:
    """Where the log is, and who asks."""
    source = click.option(
        "--source", envvar="PENSTOCK_SOURCE", metavar="FOLDER|URL", help="The broker's data folder, or its http URL."
    )
    user = click.option(
        "--user", envvar="PENSTOCK_USER", metavar="NAME", help="For a URL; the password is in PENSTOCK_PASSWORD."
    )
    return source(user(command))


def lake_option(command: Command) -> Command:
    return click.option(
        "--lake", envvar="PENSTOCK_LAKE", required=True, metavar="FOLDER", help="Where the tables are."
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def a_master(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if re.fullmatch(r"yarn|local(\[.+\])?|local-cluster\[.+\]|(spark|k8s)://.+", value) is None:
        raise click.BadParameter(f"'{value}' is none of local[N], spark://HOST:PORT, yarn and k8s://…")
    return value


def a_size(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if re.fullmatch(r"[1-9][0-9]{0,8}[kmgt]b?", value, re.IGNORECASE) is None:
        raise click.BadParameter(f"'{value}' is not a size like 512m or 2g")
    return value


def spark_options(command: Command) -> Command:
    """For commands that start Spark."""
    where = "local[N], spark://HOST:PORT, yarn, k8s://…"
    master = click.option(
        "--master", default="local[*]", show_default=True, callback=a_master, metavar="URL", help=f"Spark's: {where}."
    )
    memory = click.option(
        "--driver-memory",
        default="1g",
        show_default=True,
        callback=a_size,
        metavar="SIZE",
        help="Memory of the driver's JVM.",
    )
    return master(memory(command))


def fail(text: str) -> NoReturn:
    click.echo(f"penstock: {text}", err=True)
    sys.exit(EXIT_FAILED)


@contextmanager
def said() -> Iterator[None]:
    """Every error that has a text for people becomes a line that says what to do, and exit code 1."""
    try:
        from penstock.history.log import HistoryError
        from penstock.pipeline.lake.table import LakeError
        from penstock.pipeline.publishing.selection import SelectionError
        from penstock.pipeline.spark_errors import SPARK_ERRORS, in_words
    except ImportError:
        fail(MISSING)
    try:
        yield
    except (HistoryError, LakeError, SelectionError, StartupError) as error:
        fail(str(error))
    except SPARK_ERRORS as error:
        fail(in_words(error))
    except ImportError as error:
        fail(f"{MISSING} ({error})")
    except BrokenPipeError:
        # Whoever reads has seen enough (`| head`): click ends the command without a word.
        raise
    except OSError as error:
        fail(str(error) if error.filename is None else f"{error.filename}: {error.strerror}")


@contextmanager
def spark_for(job: str, master: str, driver_memory: str) -> Iterator[Any]:
    """A session for one command."""
    from penstock.pipeline.session import spark_session
    from penstock.pipeline.spark_errors import SPARK_ERRORS, check_master, in_words

    check_master(master)
    if sys.stderr.isatty():
        click.echo("starting Spark …", err=True)
    with without_warnings():
        try:
            spark = spark_session(f"penstock {job}", master, {"spark.driver.memory": driver_memory})
        except SPARK_ERRORS as error:
            given = f"--master {master} and --driver-memory {driver_memory}"
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


def as_object(result: Any) -> str:
    """A result, for programs."""
    return json.dumps(asdict(result), default=str)


def needed(source: str | None) -> str:
    if source is None:
        raise click.UsageError("--source is missing: the broker's data folder, or its http URL (or PENSTOCK_SOURCE)")
    return source
