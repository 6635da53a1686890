"""`penstock serve`: run a broker until it is told to stop."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from penstock.cli.beside import PipelineBeside
from penstock.cli.serving import Serving
from penstock.cli.settings_options import resolved_from, settings_options
from penstock.config import Config
from penstock.errors import StartupError
from penstock.server.descriptors import raise_descriptor_limit
from penstock.server.service.logs import set_up_logs
from penstock.settings.settings import Settings

EXIT_STARTUP = 1
EXIT_DISK = 1


@click.command(short_help="Run a broker until SIGINT or SIGTERM.")
@settings_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON line with host, port, pid and data_dir when ready."
)
def serve(as_json: bool, **values: Any) -> None:
    """Run a broker until SIGINT or SIGTERM. It waits a little for its clients (--drain); a second signal ends that.

    SIGHUP has the settings read again, and those applied that can change while the broker runs. In a terminal, where it
    means that the terminal was closed, it stops the broker; under nohup it is ignored.

    Durable queues and exchanges, and the persistent messages in durable queues, are kept in the data folder; one broker
    at a time can use it. Every setting can also be given in a file (see --config) and as a variable, PENSTOCK_ and its
    name in capitals: PENSTOCK_DEFAULT_USER, PENSTOCK_DEFAULT_PASS, PENSTOCK_DEFAULT_VHOST. The RABBITMQ_DEFAULT_USER,
    _PASS, _VHOST and RABBITMQ_NODE_PORT variables that RabbitMQ's images use are read, too. Options count more than
    variables, and variables more than files.

    Exit codes: 0 stopped as asked; 1 could not start, or the disk failed; 2 wrong options.
    """
    _check_together(values)
    # A copy for each reading: it is asked for again at each SIGHUP.
    settings = Settings(lambda: resolved_from(dict(values)))
    try:
        config = settings.first()
        set_up_logs(config.log_level, config.log_format, config.log_file)
        settings.log_warnings()
        disk_error = run(config, as_json, beside(config, config.lake) if config.pipeline else None, settings)
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


def run(
    config: Config, as_json: bool, pipeline: PipelineBeside | None = None, settings: Settings | None = None
) -> OSError | None:
    """Serve on the fastest loop that is installed; return what was wrong with the disk, if that ended it."""
    raise_descriptor_limit()
    serving = Serving(config, as_json, pipeline, settings)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serving.run())
    else:
        error: OSError | None = uvloop.run(serving.run())
        return error
