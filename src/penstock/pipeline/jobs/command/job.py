"""What the jobs have in common as commands: who may read what they write, what they answer, how they fail.

A file of a job has its options and its words, and imports neither Spark nor Arrow, which are an extra, before it runs.
`penstock pipeline archive` and `spark-submit … archive.py` are the same command; who starts Spark is in `starting`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NoReturn

import click

from penstock.errors import StartupError

EXIT_FAILED = 1
MISSING = "the pipeline needs Spark and Arrow: pip install 'penstock[pipeline]'"
# What the jobs write has messages in it; what Spark writes for them, too.
PRIVATE = 0o077


class Job(click.Command):
    """A command whose errors are one line, and whose files are for their owner alone unless it is not `private`."""

    def __init__(self, name: str | None, private: bool = True, **named: Any) -> None:
        super().__init__(name, {"help_option_names": ["-h", "--help"]}, **named)
        self.private = private

    def invoke(self, context: click.Context) -> Any:
        before = os.umask(PRIVATE)
        os.umask(before | PRIVATE if self.private else before)
        try:
            with said():
                return super().invoke(context)
        finally:
            # A program that calls a job within its own process goes on as it was.
            os.umask(before)


def fail(text: str) -> NoReturn:
    click.echo(f"penstock: {text}", err=True)
    sys.exit(EXIT_FAILED)


@contextmanager
def said() -> Iterator[None]:
    """Every error that has a text for people becomes a line that says what to do, and exit code 1."""
    try:
        from penstock.history.log import HistoryError
        from penstock.pipeline.lake.table_file import LakeError
        from penstock.pipeline.publishing.selection import SelectionError
        from penstock.pipeline.sink.options import SinkError
        from penstock.pipeline.source.options import OptionError
        from penstock.pipeline.spark_errors import SPARK_ERRORS, in_words
    except ImportError:
        fail(MISSING)
    try:
        yield
    except (HistoryError, LakeError, OptionError, SelectionError, SinkError, StartupError) as error:
        fail(str(error))
    except SPARK_ERRORS as error:
        fail(in_words(error))
    except ImportError as error:
        fail(f"{MISSING} ({error})")
    except BrokenPipeError:
        # The reader has seen enough (`| head`): click ends the command without a word.
        raise
    except OSError as error:
        fail(str(error) if error.filename is None else f"{error.filename}: {error.strerror}")


def answer(result: Any, as_json: bool, text: str) -> None:
    """Print a result: for programs, or in words."""
    click.echo(json.dumps(asdict(result), default=str) if as_json else text)


def show(text: str) -> None:
    """On a terminal: a line that the next one is written over."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)


def end_line() -> None:
    """On a terminal: what comes next has a line of its own."""
    if sys.stderr.isatty():
        click.echo("", err=True)
