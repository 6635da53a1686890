"""A real broker on a thread of its own, for tests.

    with Broker() as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))

It is the same code that `penstock serve` runs, on a free port of the loopback interface, with its own event loop. Any
number of them can live in one process. Nothing is written to disk and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote

from penstock.config import Config, UserConfig
from penstock.server.server import Server
from penstock.testing.faults import BrokerFaults

T = TypeVar("T")

START_S = 10.0
STOP_S = 10.0


class Broker:
    """A broker that runs while the `with` block does; or between `start` and `stop`."""

    def __init__(self, config: Config | None = None) -> None:
        # A refused login is answered at once: tests do not guess passwords.
        self._config = config or Config(port=0, login_refused_delay_s=0.0)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._stopping: asyncio.Event | None = None
        self._started: Future[int] = Future()
        self.host = self._config.host
        self.port = 0
        self.faults = BrokerFaults(self)

    @property
    def url(self) -> str:
        """For any AMQP client: amqp://user:password@host:port/vhost."""
        user: UserConfig = self._config.users[0]
        vhost = quote(self._config.vhosts[0], safe="")
        login = f"{quote(user.name, safe='')}:{quote(user.password, safe='')}"
        return f"amqp://{login}@{self.host}:{self.port}/{vhost}"

    def start(self) -> Broker:
        """Start and return when connections are accepted."""
        assert self._thread is None, "this broker was started already"
        self._thread = threading.Thread(target=self._run, name="penstock-broker", daemon=True)
        self._thread.start()
        self.port = self._started.result(START_S)
        return self

    def stop(self) -> None:
        """Tell the clients, close everything, wait for the thread."""
        if self._thread is None:
            return
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker on port {self.port} did not stop within {STOP_S} s")
        self._thread = None

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def queue_depth(self, name: str, vhost: str = "/") -> int:
        """How many messages are ready in a queue; raises KeyError when there is no such queue."""
        return self.call(lambda server: len(server.broker.vhosts[vhost].queues[name]))

    def call(self, function: Callable[[Server], T]) -> T:
        """Run a function on the broker's thread and return what it returns."""
        assert self._loop is not None, "the broker is not running"
        result: Future[T] = Future()

        def work() -> None:
            assert self._server is not None
            try:
                result.set_result(function(self._server))
            except BaseException as error:  # handed to the caller, whatever it is
                result.set_exception(error)

        self._loop.call_soon_threadsafe(work)
        return result.result(START_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # handed to the thread that waits in start()
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._server = Server(self._config)
        await self._server.start()
        self._started.set_result(self._server.port)
        await self._stopping.wait()
        await self._server.stop(timeout_s=1.0)
