"""Options that several jobs have."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import click

Command = Callable[..., None]

LOCAL = "local[*]"
MEMORY = "1g"


def source_options(command: Command) -> Command:
    """Where the log is, and who asks."""
    source = click.option(
        "--source", envvar="PENSTOCK_SOURCE", metavar="FOLDER|URL", help="The broker's data folder, or its http URL."
    )
    user = click.option(
        "--user", envvar="PENSTOCK_USER", metavar="NAME", help="For a URL; the password is in PENSTOCK_PASSWORD."
    )
    return source(user(command))


def needed(source: str | None) -> str:
    if source is None:
        raise click.UsageError("--source is missing: the broker's data folder, or its http URL (or PENSTOCK_SOURCE)")
    return source


def lake_option(command: Command) -> Command:
    return click.option(
        "--lake", envvar="PENSTOCK_LAKE", required=True, metavar="FOLDER", help="Where the tables are."
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def queue_options(command: Command) -> Command:
    """For what people read."""
    known = "Only these; * and ? stand for anything. Repeatable."
    queue = click.option("--queue", "queues", multiple=True, metavar="NAME", help=known)
    return queue(click.option("--vhost", metavar="NAME", help="Only its queues.")(command))


def spark_options(command: Command) -> Command:
    """For jobs that start Spark."""
    where = "local[N], spark://HOST:PORT, yarn, k8s://…"
    master = click.option(
        "--master",
        callback=_a_master,
        metavar="URL",
        help=f"Spark's: {where}; not for spark-submit, which has its own.  [default: {LOCAL}]",
    )
    memory = click.option(
        "--driver-memory",
        callback=_a_size,
        metavar="SIZE",
        help=f"Memory of the driver's JVM; not for spark-submit.  [default: {MEMORY}]",
    )
    return master(memory(command))


def is_submitted() -> bool:
    """Return whether spark-submit runs the job: then the JVM is there already, with its settings."""
    from penstock.pipeline.session import SUBMITTED

    return SUBMITTED in os.environ


def _a_master(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    _not_for_spark_submit(value)
    if value is not None and re.fullmatch(r"yarn|local(\[.+\])?|local-cluster\[.+\]|(spark|k8s)://.+", value) is None:
        raise click.BadParameter(f"'{value}' is none of local[N], spark://HOST:PORT, yarn and k8s://…")
    return value


def _a_size(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    _not_for_spark_submit(value)
    if value is not None and re.fullmatch(r"[1-9][0-9]{0,8}[kmgt]b?", value, re.IGNORECASE) is None:
        raise click.BadParameter(f"'{value}' is not a size like 512m or 2g")
    return value


def _not_for_spark_submit(value: str | None) -> None:
    if value is not None and is_submitted():
        raise click.BadParameter("spark-submit has started Spark: give it this option before the file of the job")
