"""The life of a `penstock serve`: start, signals, drain, stop, and what systemd is told of it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable

import click

from penstock.cli.beside import PipelineBeside
from penstock.config import Config
from penstock.errors import StartupError
from penstock.server.server import Server
from penstock.server.service.drain import Drain
from penstock.server.service.systemd import Notifier, inherited_sockets
from penstock.server.turn.collector import Collector
from penstock.settings.settings import Settings

log = logging.getLogger("penstock.server")


def hangup_stops() -> bool:
    """Return whether SIGHUP says that the terminal was closed, and not that the settings have changed."""
    return sys.stdin is not None and sys.stdin.isatty()


class Serving:
    def __init__(
        self, config: Config, as_json: bool, pipeline: PipelineBeside | None, settings: Settings | None
    ) -> None:
        self._config = config
        self._as_json = as_json
        self._pipeline = pipeline
        # None: there is nothing that could be read again.
        self._settings = settings
        self._notifier = Notifier(os.environ)
        self._server = Server(config)
        self._server.inherited = inherited_sockets(os.environ)
        self._stop: asyncio.Event
        self._drain: Drain

    async def run(self) -> OSError | None:
        """Serve until a signal comes; return what was wrong with the disk, if that ended it."""
        loop = asyncio.get_running_loop()
        server = self._server
        self._stop = asyncio.Event()
        self._drain = Drain(server)
        # Before the log says that the broker is ready: a signal may come right after that.
        self._handle_signals(loop)
        server.disk_failed = self._disk_failed
        await server.start()
        if self._as_json:
            click.echo(json.dumps(self._ready()))
        collector = Collector(loop, lambda: server.scheduler.turn_count)
        collector.start()
        if self._pipeline is not None:
            self._pipeline.start()
        self._notifier.ready()
        self._notifier.watch(loop)
        await self._stop.wait()
        drain_s = self._config.drain_s
        self._notifier.stopping(drain_s)
        collector.stop()
        # All at once: Spark may need longer than whoever stops a service waits before he kills it.
        stopping = None if self._pipeline is None else loop.create_task(self._pipeline.stop())
        await self._drain.run(drain_s)
        await server.stop()
        if stopping is not None:
            await stopping
        self._notifier.close()
        return server.disk_error

    def _handle_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        handlers: dict[signal.Signals, Callable[[], None]] = {
            number: self._stopper(number.name) for number in (signal.SIGINT, signal.SIGTERM)
        }
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            handlers[signal.SIGHUP] = self._stopper("SIGHUP") if hangup_stops() else self._reload
        for number, handler in handlers.items():
            try:
                loop.add_signal_handler(number, handler)
            except NotImplementedError:
                # Windows: only Ctrl-C, through the default handler.
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._stop.set))

    def _stopper(self, name: str) -> Callable[[], None]:
        def stop() -> None:
            if self._stop.is_set():
                log.info("%s again: the broker stops at once", name)
                self._drain.hurry()
            else:
                log.info("%s: the broker stops", name)
                self._stop.set()

        return stop

    def _disk_failed(self) -> None:
        # No ack can be kept any more: nothing is worth waiting for.
        self._drain.hurry()
        self._stop.set()

    def _reload(self) -> None:
        """Read the settings again, and apply those that can change while clients are served."""
        if self._settings is None or self._stop.is_set():
            return
        self._notifier.reloading()
        config = self._settings.again()
        later: list[str] = []
        try:
            later = [] if config is None else self._server.reload(config)
        except StartupError as error:
            log.error("a part of the settings stays as it is: %s", error)
        if config is not None:
            logging.getLogger().setLevel(config.log_level.upper())
            log.info("SIGHUP: the settings were read again")
            if later:
                log.warning("these settings have changed and count from the next start: %s", ", ".join(later))
        self._notifier.ready()

    def _ready(self) -> dict[str, object]:
        """Where it is, and what it found, for programs."""
        server = self._server
        ready: dict[str, object] = {"host": server.host, "port": server.port, "pid": os.getpid()}
        if server.config.data_dir is not None:
            ready["data_dir"] = server.config.data_dir
            ready["recovery"] = server.broker.recovery_report
        if server.tls_port is not None:
            ready["tls_port"] = server.tls_port
        if server.http_port is not None:
            ready["http_port"] = server.http_port
        return ready
