"""`penstock serve`: run a broker until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from typing import Any

import click

from penstock.cli.beside import PipelineBeside
from penstock.cli.settings_options import resolved_from, settings_options
from penstock.config import Config
from penstock.errors import StartupError
from penstock.server.descriptors import raise_descriptor_limit
from penstock.server.server import Server
from penstock.server.turn.collector import Collector

log = logging.getLogger("penstock.server")

EXIT_STARTUP = 1
EXIT_DISK = 1


@click.command(short_help="Run a broker until SIGINT or SIGTERM.")
@settings_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON line with host, port, pid and data_dir when ready."
)
def serve(as_json: bool, **values: Any) -> None:
    """Run a broker until SIGINT, SIGTERM or SIGHUP. All three stop it cleanly; nohup keeps SIGHUP from it.

    Durable queues and exchanges, and the persistent messages in durable queues, are kept in the data folder; one broker
    at a time can use it. Every setting can also be given in a file (see --config) and as a variable, PENSTOCK_ and its
    name in capitals: PENSTOCK_DEFAULT_USER, PENSTOCK_DEFAULT_PASS, PENSTOCK_DEFAULT_VHOST. The RABBITMQ_DEFAULT_USER,
    _PASS, _VHOST and RABBITMQ_NODE_PORT variables that RabbitMQ's images use are read, too. Options count more than
    variables, and variables more than files.

    Exit codes: 0 stopped as asked; 1 could not start, or the disk failed; 2 wrong options.
    """
    _check_together(values)
    try:
        resolved = resolved_from(values)
        config = resolved.config()
        logging.basicConfig(
            level=config.log_level.upper(),
            stream=sys.stderr,
            format="%(asctime)s [%(levelname)s] %(name)s: %(message)s",
        )
        for warning in resolved.warnings:
            log.warning("settings: %s", warning)
        disk_error = run(config, as_json, beside(config, config.lake) if config.pipeline else None)
    except StartupError as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_STARTUP)
    if disk_error is not None:
        click.echo(f"penstock: stopped because the disk failed: {disk_error}", err=True)
        sys.exit(EXIT_DISK)


def _check_together(values: dict[str, Any]) -> None:
    """Refuse options that make no sense together."""
    if values["in_memory"] and values["data_dir"] is not None:
        raise click.UsageError("--in-memory and --data-dir exclude each other")
    if values["http_host"] is not None and values["http_port"] is None:
        raise click.UsageError("--http-host says where, and --http-port whether: give --http-port, too")
    if values["lake"] is not None and not values["pipeline"]:
        raise click.UsageError("--lake says where, and --pipeline whether: give --pipeline, too")
    if values["in_memory"] and values["pipeline"]:
        raise click.UsageError("--pipeline archives what is on disk: leave --in-memory away")


def beside(config: Config, lake: str | None) -> PipelineBeside:
    """Return the pipeline of a broker that keeps what it has."""
    if config.data_dir is None:
        raise StartupError("the pipeline archives what is on disk, and the settings say in_memory: choose one of them")
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
