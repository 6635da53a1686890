"""`penstock pipeline prepare`: makes every later start of Spark shorter."""

from __future__ import annotations

import sys

import click

from penstock.pipeline.jobs.command.job import Job, answer
from penstock.pipeline.jobs.command.options import json_option


@click.command(cls=Job, short_help="Make Spark start faster on this machine.")
@json_option
def prepare(as_json: bool) -> None:
    """Keep Spark's classes in one file, in this user's cache, so that Spark starts sooner.

    Takes a minute or two, and 200 MB in XDG_CACHE_HOME/penstock (~/.cache/penstock). All commands that start Spark use
    the file from then on, as long as Java and Spark are the same; the file may be deleted at any time.
    """
    from penstock.pipeline.prepare import make_archive
    from penstock.pipeline.quiet_java import without_warnings

    is_terminal = sys.stderr.isatty()
    with without_warnings():
        made = make_archive(lambda text: click.echo(text, err=True) if is_terminal else None)
    answer(made, as_json, f"{made.classes:,} classes, {made.bytes / 1e6:.0f} MB, for {made.java}: {made.path}")


if __name__ == "__main__":
    prepare()
