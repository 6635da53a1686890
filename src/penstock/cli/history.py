"""`penstock history`: what the journal still has, who reads it, and who reads it no more."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, NoReturn

import click

from penstock.cli.data_folder import data_folder

if TYPE_CHECKING:
    from penstock.history.log import Log, ReaderState

EXIT_FAILED = 1
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@click.group(short_help="Look at the journal's history and its readers.")
def history() -> None:
    """Look at the history that a broker's journal holds, and at the named readers that it is kept for.

    The journal is read in the data folder of a broker that runs or does not (--source FOLDER), or from a running broker
    that was started with --http-port (--source http://HOST:PORT). For a URL --user and PENSTOCK_PASSWORD say who asks.

    Exit codes: 0 done as asked; 1 failed, and says why; 2 wrong options.
    """


def common(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all have."""
    source = click.option(
        "--source",
        metavar="FOLDER|URL",
        help="The data folder, or http://HOST:PORT of a running broker.  [default: PENSTOCK_DATA_DIR, or 'penstock' in"
        " the user's data folder]",
    )
    user = click.option(
        "--user",
        metavar="NAME",
        help="For a URL: who asks; the password is in PENSTOCK_PASSWORD.  [default: PENSTOCK_USER, or guest]",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON: one object, or one on each line.")
    return source(user(as_json(command)))


@contextmanager
def opened(source: str | None, user: str | None) -> Iterator[Log]:
    """The log for the command; every error becomes a line that says what to do, and exit code 1."""
    # Imported here: `penstock serve` needs none of it.
    from penstock.history.log import HistoryError
    from penstock.history.opening import open_log

    if source is None:
        source = data_folder(None)
    try:
        log = open_log(source, user)
        try:
            yield log
        finally:
            log.close()
    except HistoryError as error:
        fail(str(error))


def fail(text: str) -> NoReturn:
    click.echo(f"penstock: {text}", err=True)
    sys.exit(EXIT_FAILED)


@history.command(short_help="From where to where it reaches, and its size.")
@common
def status(source: str | None, user: str | None, as_json: bool) -> None:
    """Show the id of the log, its first and its last event, and how many segments and bytes there are.

    Exit codes: 0 shown; 1 cannot be read, and says why; 2 wrong options.
    """
    with opened(source, user) as log:
        state = log.state()
        begun_us = first_us(log)
    count, total = len(state.segments), sum(info.bytes for info in state.segments)
    if as_json:
        facts = {"source": log.source, "log_id": state.log_id, "first_lsn": state.first_lsn, "end_lsn": state.end_lsn}
        facts |= {"first_us": begun_us, "end_us": state.end_us, "segments": count, "bytes": total}
        click.echo(json.dumps(facts))
        return
    click.echo(f"source    {log.source}")
    click.echo(f"log id    {state.log_id or 'none yet: no broker has used the folder since there are ids'}")
    events = state.end_lsn - state.first_lsn
    click.echo(f"events    {events:,}" + (f", from {state.first_lsn} to {state.end_lsn - 1}" if events else ""))
    click.echo(f"first     {moment(begun_us)}")
    click.echo(f"last      {moment(state.end_us)}")
    click.echo(f"segments  {count}, {size(total)}")


def first_us(log: Log) -> int:
    """Wall clock of the first event; 0 when there is none."""
    from penstock.history.log import SegmentGone

    for info in log.state().segments:
        if info.next_lsn > info.first_lsn:
            try:
                marks = log.index(info.number).marks
            except SegmentGone:
                # Then history begins with the next one.
                continue
            return marks[0].min_us if marks else info.begun_us
    return 0


@history.command(short_help="Who reads it, how far they are, what they lost.")
@common
def readers(source: str | None, user: str | None, as_json: bool) -> None:
    """List the named readers: position, lag in events, bytes and time, and events that were removed unread.

    Exit codes: 0 listed; 1 cannot be read, and says why; 2 wrong options.
    """
    with opened(source, user) as log:
        found = log.readers()
    if as_json:
        for reader in found:
            click.echo(json.dumps(asdict(reader)))
        return
    if not found:
        click.echo("no readers: history is kept for as long as --history-limit and --history-hours say")
        return
    table(("reader", "position", "lag", "bytes", "behind", "lost", "last moved"), [reader_row(each) for each in found])
    for reader in found:
        if reader.lost_events:
            click.echo(
                f"penstock: {shown(reader.name)} has lost {reader.lost_events:,} events; raise --readers-limit of the"
                f" broker, or let it read faster, or `penstock history forget {quote(shown(reader.name))}`",
                err=True,
            )


def reader_row(reader: ReaderState) -> Sequence[str]:
    return (
        shown(reader.name),
        str(reader.lsn),
        f"{reader.lag_events:,}",
        size(reader.lag_bytes),
        f"{reader.lag_s:,.0f} s",
        f"{reader.lost_events:,}",
        moment(reader.updated_us),
    )


@history.command(short_help="Give a reader up: history is not kept for it.")
@click.argument("name")
@common
def forget(name: str, source: str | None, user: str | None, as_json: bool) -> None:
    """Give the reader NAME up: nothing is kept for it any more. One that still runs makes its cursor again.

    Exit codes: 0 forgotten; 1 there is none of that name, or it failed, and says why; 2 wrong options.
    """
    with opened(source, user) as log:
        if not log.forget_reader(name):
            fail(f"there is no reader {shown(name)}; `penstock history readers` lists those that there are")
    click.echo(json.dumps({"forgotten": name}) if as_json else f"{shown(name)} is forgotten")


@history.command(short_help="The segments of the journal.")
@common
def segments(source: str | None, user: str | None, as_json: bool) -> None:
    """List the segments of the journal that can be read, with their positions, sizes and times.

    Exit codes: 0 listed; 1 cannot be read, and says why; 2 wrong options.
    """
    with opened(source, user) as log:
        found = log.state().segments
    if as_json:
        for info in found:
            click.echo(json.dumps(asdict(info)))
        return
    rows = [
        (
            *(str(each.number), str(each.first_lsn), f"{each.next_lsn - each.first_lsn:,}"),
            *(size(each.bytes), moment(each.begun_us)),
        )
        for each in found
    ]
    table(("segment", "first", "events", "bytes", "begun"), rows)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    for row in [heads, *rows]:
        numbers = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        click.echo("  ".join([row[0].ljust(widths[0]), *numbers]))


def size(count: int) -> str:
    """Return bytes for people."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit else f"{count} B"


def moment(wall_us: int) -> str:
    """Return a wall clock for people."""
    try:
        return datetime.fromtimestamp(wall_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if wall_us else "-"
    except (ValueError, OverflowError, OSError):
        # It was written without a clock.
        return "?"


def shown(name: str) -> str:
    """Return a name in a terminal: another broker's answer can have anything in it."""
    return name if name.isprintable() else ascii(name)
