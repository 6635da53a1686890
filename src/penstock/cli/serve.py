"""`penstock serve`: run a broker until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys

import click

from penstock.config import Config, UserConfig, config_from_environment, user_from_outside
from penstock.errors import StartupError
from penstock.server.server import Server

# Exit codes, as documented in --help.
EXIT_STARTUP = 1


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
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line with host, port and pid when ready.")
def serve(
    host: str | None,
    port: int | None,
    users: tuple[str, ...],
    vhosts: tuple[str, ...],
    memory_limit: int | None,
    log_level: str,
    as_json: bool,
) -> None:
    """Run a broker until SIGINT or SIGTERM.

    Queues live in memory: when the broker stops, they are gone. Users, port and vhost are also taken from
    PENSTOCK_HOST, PENSTOCK_PORT, PENSTOCK_DEFAULT_USER, PENSTOCK_DEFAULT_PASS, PENSTOCK_DEFAULT_VHOST, and from the
    RABBITMQ_DEFAULT_USER, _PASS, _VHOST and RABBITMQ_NODE_PORT variables that RabbitMQ's images use.

    Exit codes: 0 stopped as asked; 1 could not start; 2 wrong options.
    """
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s"
    )
    try:
        config = serve_config(host, port, users, vhosts, memory_limit)
        run(config, as_json)
    except StartupError as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_STARTUP)


def serve_config(
    host: str | None, port: int | None, users: tuple[str, ...], vhosts: tuple[str, ...], memory_limit: int | None
) -> Config:
    config = config_from_environment(os.environ)
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


def _user(text: str) -> UserConfig:
    name, colon, password = text.partition(":")
    if not name or not colon or not password:
        raise click.BadParameter(f"'{text}' is not of the form NAME:PASSWORD", param_hint="--user")
    return user_from_outside(name, password)


def run(config: Config, as_json: bool) -> None:
    """Serve on the fastest loop that is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(config, as_json))
    else:
        uvloop.run(_serve(config, as_json))


async def _serve(config: Config, as_json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Before the log says that the broker is ready: whoever waits for that may send a signal at once.
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:
            # Windows: only Ctrl-C, through the default handler.
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    server = Server(config)
    await server.start()
    if as_json:
        click.echo(json.dumps({"host": config.host, "port": server.port, "pid": os.getpid()}))
    # What exists now lives until the end: the collector need not look at it again. Messages are tuples and bytes,
    # so the young generations can be large; see docs/decisions/0003.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    await stop.wait()
    await server.stop()
