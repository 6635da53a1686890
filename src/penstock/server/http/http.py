"""The HTTP listener of a broker: history, served by uvicorn on the broker's own loop. See docs/decisions/0010.

The socket is bound before uvicorn gets it, so that a port in use is a `StartupError` like any other. Uvicorn is an
extra (`penstock[http]`) and is imported when one is opened. It gets no signals and keeps no access log.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.broker.broker import Broker
from penstock.config import Config
from penstock.errors import StartupError
from penstock.history.endpoint import HistoryEndpoint
from penstock.history.folder_log import FolderLog
from penstock.history.log import Log
from penstock.server.connection.login_guard import LoginGuard
from penstock.server.connection.password_checks import PasswordChecks
from penstock.server.http.http_answers import BrokerAnswers
from penstock.server.tls.contexts import TlsContexts

if TYPE_CHECKING:
    from penstock.server.http.http_uvicorn import QuietServer

log = logging.getLogger("penstock.http")

BACKLOG: Final = 64
# Between two looks at whether uvicorn has started.
_STARTED_S: Final = 0.01


class HttpListener:
    """Listens for HTTP while the broker runs."""

    def __init__(
        self,
        config: Config,
        broker: Broker,
        guard: LoginGuard,
        checks: PasswordChecks,
        connections_max: int,
        tls: TlsContexts | None = None,
    ) -> None:
        assert config.http_port is not None
        self._host = config.http_host or config.host
        self._wanted_port = config.http_port
        self._connections_max = connections_max
        self._tls = tls
        answers = BrokerAnswers(broker, guard, checks)
        self._endpoint = HistoryEndpoint(
            _log_factory(config.data_dir),
            answers.access,
            answers.counters,
            answers.messages,
            config.login_refused_delay_s,
        )
        self._socket: socket.socket | None = None
        self._server: QuietServer | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Listen. Raises StartupError with what to do when that is not possible."""
        try:
            from penstock.server.http.http_uvicorn import make_server
        except ImportError as error:
            raise StartupError(
                "history over HTTP needs uvicorn, which is not installed: pip install 'penstock[http]', or start"
                " without --http-port"
            ) from error
        self._socket = _listening_socket(self._host, self._wanted_port)
        self._server = make_server(self._endpoint, self._connections_max, self._tls)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started and not self._serving.done():
            await asyncio.sleep(_STARTED_S)
        if self._serving.done():
            await self._serving
        log.info("started HTTP listener on %s:%d", self._host, self.port)

    async def stop(self) -> None:
        """Let requests that are under way end, for a moment, and close."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._server.cut_connections()
        if self._socket is not None:
            self._socket.close()
        self._endpoint.close()


def _log_factory(data_dir: str | None) -> Callable[[], Log] | None:
    """None: nothing is kept, so there is no log."""
    if data_dir is None:
        return None
    folder = data_dir
    return lambda: FolderLog(folder)


def _listening_socket(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise StartupError(f"cannot listen for HTTP on {host}:{port}: {why}. {_advice(error)}") from error


def _advice(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return "Is another broker running? Choose another port with --http-port, or 0 for any."
    if number in (errno.EACCES, errno.EPERM):
        return "Ports below 1024 are for root: choose another one with --http-port."
    return "Choose an address of this machine with --http-host."
