"""`penstock backup` and `penstock restore`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.data_folder import data_folder
from penstock.disk.os_files import OsFiles

if TYPE_CHECKING:
    from penstock.backup.archive.sink import Sink
    from penstock.backup.manifest import Manifest
    from penstock.backup.progress import Progress
    from penstock.backup.taking.source import Source

EXIT_FAILED = 1
TAR_ENDING = ".tar"
# Below the broker's own priority: a backup can wait, deliveries cannot.
NICE = 10
SHOW_EVERY_S = 0.2
MIB = 1 << 20


class BackupGroup(click.Group):
    """`penstock backup TARGET` is `penstock backup create TARGET`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["create", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["create", *args]
        return super().parse_args(ctx, args)


@click.group(cls=BackupGroup, short_help="Back up a broker with its messages; check a backup.")
def backup() -> None:
    """Back up a broker with all its durable definitions and messages, while it runs or not.

    \b
    penstock backup TARGET          make one: a folder, or one file if the name ends with .tar
    penstock backup verify BACKUP   compare every byte with its checksum

    `penstock backup create --help` has the options of the first.

    Exit codes: 0 done; 1 failed, or something is damaged; 2 wrong options.
    """


def data_dir_option(command: Any) -> Any:
    return click.option(
        "--data-dir",
        metavar="FOLDER",
        help="The data folder of the broker.  [default: PENSTOCK_DATA_DIR, or 'penstock' in the user's data folder]",
    )(command)


def json_option(command: Any) -> Any:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def base_option(command: Any) -> Any:
    return click.option(
        "--base",
        "bases",
        metavar="BACKUP",
        multiple=True,
        help="Where a backup that BACKUP adds to is now, if it was moved. May be given several times.",
    )(command)


@backup.command(short_help="Make a backup.")
@click.argument("target", metavar="TARGET")
@data_dir_option
@click.option(
    "--incremental-from",
    "base",
    metavar="BACKUP",
    help="Write only what BACKUP, an earlier backup of the same broker, does not have. Restoring needs both.",
)
@json_option
def create(target: str, data_dir: str | None, base: str | None, as_json: bool) -> None:
    """Back up the broker to TARGET: a new or empty folder, or a new file whose name ends with .tar.

    A running broker is asked, through the control socket in its data folder, to make a checkpoint and to keep its files
    until they are copied; publishers go on. The folder of a stopped one is locked meanwhile.

    Not in it: transient messages, messages of queues in PostgreSQL (use pg_dump), cursors of history's readers, the
    configuration.

    Exit codes: 0 done; 1 failed, and says why; 2 wrong options.
    """
    from penstock.backup.backup_error import BackupError
    from penstock.backup.restoring.chain import open_chain
    from penstock.backup.taking.taking import Taking
    from penstock.history.read_files import ReadFiles

    folder = data_folder(data_dir)
    with failing(), showing() as progress:
        if not os.path.isdir(folder):
            raise BackupError(f"there is no data folder {folder}: name the broker's with --data-dir")
        be_nice()
        known: Manifest | None = None
        base_path = ""
        if base is not None:
            chain = open_chain(base)
            known = chain.newest
            chain.close()
            base_path = os.path.relpath(base, os.path.dirname(os.path.abspath(target)))
        with source_of(folder) as source:
            taking = Taking(ReadFiles(folder), source, sink_at(target), known, base_path, progress)
            manifest = taking.run()
    if as_json:
        facts = {"backup": target, **summary(manifest), "copied_bytes": taking.copied_bytes, "notes": taking.notes}
        click.echo(json.dumps(facts))
        return
    for note in taking.notes:
        click.echo(f"penstock: {note}", err=True)
    click.echo(
        f"backed up to {target}: up to LSN {manifest.last_lsn}, {shown_moment(manifest.last_us)};"
        f" {len(manifest.files)} files, {sum(file.size for file in manifest.files) / MIB:,.1f} MiB, of which"
        f" {taking.copied_bytes / MIB:,.1f} MiB were written here"
    )


@backup.command(short_help="Compare every byte of a backup with its checksum.")
@click.argument("location", metavar="BACKUP")
@base_option
@json_option
def verify(location: str, bases: tuple[str, ...], as_json: bool) -> None:
    """Check that BACKUP, and the backups that it adds to, are complete and undamaged; show what they can restore.

    Exit codes: 0 all is well; 1 something is damaged or missing, and is named; 2 wrong options.
    """
    from penstock.backup.restoring.chain import open_chain
    from penstock.backup.restoring.verifying import verify as verify_chain

    with failing(), showing() as progress:
        chain = open_chain(location, bases)
        bad = verify_chain(chain, progress)
        links = [{"backup": link.archive.where, **summary(link.manifest)} for link in chain.links]
        chain.close()
    if as_json:
        click.echo(json.dumps({"damaged": bad, "backups": links}))
    else:
        for link in links:
            click.echo(
                f"{link['backup']}: LSN {link['first_lsn']} to {link['last_lsn']},"
                f" {shown_moment(link['first_us'])} to {shown_moment(link['last_us'])}, {link['files']} files"
            )
        for line in bad:
            click.echo(f"penstock: {line}", err=True)
        click.echo(f"{len(bad)} damaged" if bad else "nothing is damaged")
    if bad:
        sys.exit(EXIT_FAILED)


@click.command(short_help="Make a data folder of a backup.")
@click.argument("location", metavar="BACKUP")
@click.option("--data-dir", metavar="FOLDER", required=True, help="A folder that is empty or does not exist yet.")
@click.option("--to-lsn", type=click.IntRange(min=0), metavar="LSN", help="Leave out what the journal has behind it.")
@click.option(
    "--to-time", metavar="TIME", help="Leave out what came later: 2026-11-18T12:00:00Z; without a zone it is UTC."
)
@click.option("--accept-damage", is_flag=True, help="Finish although messages are damaged or missing; they are named.")
@base_option
@json_option
def restore(
    location: str,
    data_dir: str,
    to_lsn: int | None,
    to_time: str | None,
    accept_damage: bool,
    bases: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a data folder of BACKUP, for `penstock serve --data-dir FOLDER`: as of its end, or of an earlier moment.

    The moment is rounded down to the end of a batch of the journal, and the command says which. Backups that BACKUP
    adds to are found where they were when it was made, or with --base.

    Exit codes: 0 done; 1 failed, and says why: then no broker starts with FOLDER; 2 wrong options.
    """
    from penstock.backup.restoring.chain import open_chain
    from penstock.backup.restoring.plan import Moment
    from penstock.backup.restoring.restoring import Restoring

    if to_lsn is not None and to_time is not None:
        raise click.UsageError("give --to-lsn or --to-time, not both")
    moment = Moment(to_lsn, None if to_time is None else parse_time_us(to_time))
    with failing(), showing() as progress:
        chain = open_chain(location, bases)
        try:
            done = Restoring(chain, OsFiles(data_dir), data_dir, progress).run(moment, accept_damage)
        finally:
            chain.close()
    if as_json:
        facts = {"data_dir": data_dir, "lsn": done.lsn, "wall_us": done.wall_us, "messages": done.messages}
        facts |= {"files": done.files, "bytes": done.size_bytes, "findings": done.findings}
        click.echo(json.dumps(facts))
        return
    for line in done.findings:
        click.echo(f"penstock: {line}", err=True)
    click.echo(
        f"restored to {data_dir}: LSN {done.lsn}, {shown_moment(done.wall_us)}; {done.messages:,} messages,"
        f" {done.size_bytes / MIB:,.1f} MiB. Start it with `penstock serve --data-dir {data_dir}`"
    )


def summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "id": manifest.id,
        "online": manifest.online,
        "checkpoint": manifest.checkpoint,
        "first_lsn": manifest.first_lsn,
        "last_lsn": manifest.last_lsn,
        "first_us": manifest.first_us,
        "last_us": manifest.last_us,
        "files": len(manifest.files),
        "bytes": sum(file.size for file in manifest.files),
        "incremental_from": None if manifest.base is None else manifest.base.id,
    }


@contextlib.contextmanager
def failing() -> Iterator[None]:
    """Every error becomes a line that says what to do, and exit code 1."""
    from penstock.backup.backup_error import BackupError

    try:
        yield
    except BackupError as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_FAILED)
    except OSError as error:
        click.echo(f"penstock: {error.filename or 'a file'} cannot be used: {error.strerror or error}", err=True)
        sys.exit(EXIT_FAILED)


@contextlib.contextmanager
def showing() -> Iterator[Progress]:
    """How far the command is, on a terminal; elsewhere nothing."""
    from penstock.backup.progress import Progress

    shown_s = 0.0
    is_shown = False

    def show(phase: str, done: int, total: int) -> None:
        nonlocal shown_s, is_shown
        if time.monotonic() - shown_s >= SHOW_EVERY_S:
            shown_s, is_shown = time.monotonic(), True
            click.echo(f"\r\x1b[K{phase}: {done / MIB:,.1f} of {max(done, total) / MIB:,.1f} MiB", nl=False, err=True)

    try:
        yield Progress(show if sys.stderr.isatty() else None)
    finally:
        if is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)


@contextlib.contextmanager
def source_of(folder: str) -> Iterator[Source]:
    """Give the broker that uses the folder, or the folder if there is none."""
    from penstock.backup.taking.stopped_folder import StoppedFolder
    from penstock.cli.backup_source import RunningBroker
    from penstock.cli.ctl.broker_control import BrokerControl, NoBroker

    try:
        control = BrokerControl(folder)
    except NoBroker:
        yield StoppedFolder(OsFiles(folder))
        return
    with control:
        yield RunningBroker(control)


def sink_at(target: str) -> Sink:
    from penstock.backup.archive.folder_sink import FolderSink
    from penstock.backup.archive.tar_sink import TarSink

    if target.endswith(TAR_ENDING):
        folder, name = os.path.split(os.path.abspath(target))
        files = OsFiles(folder)
        files.make_dir("")
        return TarSink(files, name, target)
    return FolderSink(OsFiles(target), target)


def be_nice() -> None:
    if hasattr(os, "nice"):
        os.nice(NICE)


def parse_time_us(text: str) -> int:
    """Return microseconds since 1970; a time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-time {text!a} is not a time: write it as 2026-11-18T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)


def shown_moment(wall_us: int) -> str:
    from penstock.backup.restoring.plan import shown_time

    return shown_time(wall_us)
