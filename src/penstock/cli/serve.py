"""`penstock serve`: run a broker until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys

import click

from penstock.cli.beside import PipelineBeside
from penstock.config import (
    CONFIRM_SYNC,
    Config,
    UserConfig,
    config_from_environment,
    default_data_dir,
    user_from_outside,
)
from penstock.errors import StartupError
from penstock.server.descriptors import raise_descriptor_limit
from penstock.server.server import Server
from penstock.server.turn.collector import Collector

log = logging.getLogger("penstock.server")

EXIT_STARTUP = 1
EXIT_DISK = 1


@click.command(short_help="Run a broker until SIGINT or SIGTERM.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1, or PENSTOCK_HOST]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 = any free one.  [default: 5672, or PENSTOCK_PORT]"
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME:PASSWORD",
    help="A user with full permissions; may be repeated. Replaces guest:guest. A user named guest may only connect"
    " from this machine.",
)
@click.option("--vhost", "vhosts", multiple=True, metavar="NAME", help="A virtual host; may be repeated.  [default: /]")
@click.option(
    "--memory-limit",
    type=click.IntRange(1),
    metavar="MIB",
    help="Block publishers when waiting messages take this much memory.  [default: 40 % of the machine's]",
)
@click.option(
    "--data-dir",
    metavar="FOLDER",
    help="Where durable queues and messages are kept.  [default: PENSTOCK_DATA_DIR, or 'penstock' in the user's data"
    " folder: ~/.local/share on Linux]",
)
@click.option(
    "--disk-limit",
    type=click.IntRange(1),
    metavar="MIB",
    help="Block publishers when the disk of the data folder has less room than this.  [default: 512, or 5 % of a small"
    " disk]",
)
@click.option(
    "--history-limit",
    type=click.IntRange(0),
    metavar="MIB",
    help="Keep this much of the journal as history when no message needs it any more.  [default: 1024]",
)
@click.option(
    "--history-hours",
    type=click.FloatRange(0),
    metavar="HOURS",
    help="Keep history for this long at most.  [default: 168, a week]",
)
@click.option(
    "--readers-limit",
    type=click.IntRange(0),
    metavar="MIB",
    help="Keep this much more of it, and longer, for named readers that have not read it yet; see `penstock history"
    " readers`.  [default: 10240]",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="Serve history over HTTP on this port; 0 = any free one. Needs penstock[http].  [default: not served]",
)
@click.option("--http-host", help="Address for HTTP.  [default: that of --host]")
@click.option(
    "--pipeline",
    "with_pipeline",
    is_flag=True,
    help="Archive every message's life to a lake beside the broker, refine it and write a report. Needs"
    " penstock[pipeline].",
)
@click.option(
    "--lake", metavar="FOLDER", help="Where the lake of --pipeline is.  [default: the data folder's name + '-lake']"
)
@click.option("--in-memory", is_flag=True, help="Keep nothing on disk: when the broker stops, all is gone.")
@click.option(
    "--confirm-sync",
    type=click.Choice(CONFIRM_SYNC),
    help="When a persistent message is confirmed: when it is synced to disk (fsync), when the system has it (os:"
    " survives a crash of the broker, not of the machine), or at once (none).  [default: fsync, or"
    " PENSTOCK_CONFIRM_SYNC]",
)
@click.option(
    "--postgres",
    "postgres_url",
    metavar="URL|embedded",
    help="A PostgreSQL for queues that are declared with x-backing=postgres: its URL, or one of the broker's own in the"
    " data folder. The schema is made if it is not there.  [default: PENSTOCK_POSTGRES_URL]",
)
@click.option("--postgres-schema", metavar="NAME", help="The schema of these queues.  [default: penstock]")
@click.option(
    "--postgres-queues",
    multiple=True,
    metavar="PATTERN",
    help="Durable queues with such names are in PostgreSQL without having said so; may be repeated. *, ? and [] as in a"
    " shell.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON line with host, port, pid and data_dir when ready."
)
def serve(
    host: str | None,
    port: int | None,
    users: tuple[str, ...],
    vhosts: tuple[str, ...],
    memory_limit: int | None,
    data_dir: str | None,
    disk_limit: int | None,
    history_limit: int | None,
    history_hours: float | None,
    readers_limit: int | None,
    http_port: int | None,
    http_host: str | None,
    with_pipeline: bool,
    lake: str | None,
    in_memory: bool,
    confirm_sync: str | None,
    postgres_url: str | None,
    postgres_schema: str | None,
    postgres_queues: tuple[str, ...],
    log_level: str,
    as_json: bool,
) -> None:
    """Run a broker until SIGINT, SIGTERM or SIGHUP. All three stop it cleanly; nohup keeps SIGHUP from it.

    Durable queues and exchanges, and the persistent messages in durable queues, are kept in the data folder; one broker
    at a time can use it. Users, port, vhost and folder are also taken from PENSTOCK_HOST, PENSTOCK_PORT,
    PENSTOCK_DEFAULT_USER, PENSTOCK_DEFAULT_PASS, PENSTOCK_DEFAULT_VHOST, PENSTOCK_DATA_DIR, PENSTOCK_CONFIRM_SYNC,
    PENSTOCK_POSTGRES_URL, and from the RABBITMQ_DEFAULT_USER, _PASS, _VHOST and RABBITMQ_NODE_PORT variables that
    RabbitMQ's images use.

    Exit codes: 0 stopped as asked; 1 could not start, or the disk failed; 2 wrong options.
    """
    if in_memory and data_dir is not None:
        raise click.UsageError("--in-memory and --data-dir exclude each other")
    if http_host is not None and http_port is None:
        raise click.UsageError("--http-host says where, and --http-port whether: give --http-port, too")
    if lake is not None and not with_pipeline:
        raise click.UsageError("--lake says where, and --pipeline whether: give --pipeline, too")
    if in_memory and with_pipeline:
        raise click.UsageError("--pipeline archives what is on disk: leave --in-memory away")
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s"
    )
    try:
        config = serve_config(host, port, users, vhosts, memory_limit, data_dir, in_memory, confirm_sync)
        config.disk_bytes_min = (disk_limit or 0) * 1024 * 1024
        set_postgres(config, postgres_url, postgres_schema, postgres_queues)
        set_history(config, history_limit, history_hours, readers_limit)
        config.http_port = http_port
        config.http_host = http_host
        disk_error = run(config, as_json, beside(config, lake) if with_pipeline else None)
    except StartupError as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_STARTUP)
    if disk_error is not None:
        click.echo(f"penstock: stopped because the disk failed: {disk_error}", err=True)
        sys.exit(EXIT_DISK)


def serve_config(
    host: str | None,
    port: int | None,
    users: tuple[str, ...],
    vhosts: tuple[str, ...],
    memory_limit: int | None,
    data_dir: str | None = None,
    in_memory: bool = False,
    confirm_sync: str | None = None,
) -> Config:
    config = config_from_environment(os.environ)
    config.data_dir = None if in_memory else data_dir or config.data_dir or default_data_dir(os.environ)
    if confirm_sync is not None:
        config.confirm_sync = confirm_sync
    if host is not None:
        config.host = host
    if port is not None:
        config.port = port
    if vhosts:
        config.vhosts = list(vhosts)
    if memory_limit is not None:
        config.memory_bytes_max = memory_limit * 1024 * 1024
    if users:
        config.users = [_user(text) for text in users]
    return config


def set_history(config: Config, limit: int | None, hours: float | None, readers_limit: int | None) -> None:
    if limit is not None:
        config.history_bytes_max = limit * 1024 * 1024
    if hours is not None:
        config.history_hours_max = hours
    if readers_limit is not None:
        config.readers_bytes_max = readers_limit * 1024 * 1024


def set_postgres(config: Config, url: str | None, schema: str | None, patterns: tuple[str, ...]) -> None:
    if url is not None:
        config.postgres_url = url
    if schema is not None:
        config.postgres_schema = schema
    config.postgres_queues = list(patterns)
    # Whether everything goes together that was given.
    config.__post_init__()


def _user(text: str) -> UserConfig:
    name, colon, password = text.partition(":")
    if not name or not colon or not password:
        raise click.BadParameter(f"'{text}' is not of the form NAME:PASSWORD", param_hint="--user")
    return user_from_outside(name, password)


def beside(config: Config, lake: str | None) -> PipelineBeside:
    """Return the pipeline of a broker that keeps what it has."""
    assert config.data_dir is not None
    return PipelineBeside(config.data_dir, lake or config.data_dir.rstrip("/\\") + "-lake")


def run(config: Config, as_json: bool, pipeline: PipelineBeside | None = None) -> OSError | None:
    """Serve on the fastest loop that is installed; return what was wrong with the disk, if that ended it."""
    raise_descriptor_limit()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_serve(config, as_json, pipeline))
    else:
        error: OSError | None = uvloop.run(_serve(config, as_json, pipeline))
        return error


def stop_signals() -> list[signal.Signals]:
    """Signals that stop a broker cleanly.

    There is nothing to reload, so SIGHUP, which a closed terminal sends, is one of them. Under nohup it is ignored.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


async def _serve(config: Config, as_json: bool, pipeline: PipelineBeside | None) -> OSError | None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Before the log says that the broker is ready: a signal may come right after that.
    for number in stop_signals():

        def stop_for(name: str = number.name) -> None:
            log.info("%s: the broker stops", name)
            stop.set()

        try:
            loop.add_signal_handler(number, stop_for)
        except NotImplementedError:
            # Windows: only Ctrl-C, through the default handler.
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    server = Server(config)
    server.disk_failed = stop.set
    await server.start()
    if as_json:
        click.echo(json.dumps(_ready(server)))
    collector = Collector(loop, lambda: server.scheduler.turn_count)
    collector.start()
    if pipeline is not None:
        pipeline.start()
    await stop.wait()
    collector.stop()
    # Both at once: Spark may need longer than whoever stops a service waits before he kills it.
    stopping = None if pipeline is None else loop.create_task(pipeline.stop())
    await server.stop()
    if stopping is not None:
        await stopping
    return server.disk_error


def _ready(server: Server) -> dict[str, object]:
    """Where it is, and what it found, for programs."""
    ready: dict[str, object] = {"host": server.config.host, "port": server.port, "pid": os.getpid()}
    if server.config.data_dir is not None:
        ready["data_dir"] = server.config.data_dir
        ready["recovery"] = server.broker.recovery_report
    if server.http_port is not None:
        ready["http_port"] = server.http_port
    return ready
