"""A real broker on a thread of its own, for tests.

    with Broker() as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))

It is the same code that `penstock serve` runs, on a free port of the loopback interface, with its own event loop. Any
number of them can live in one process. Nothing is written to disk and nothing is left behind, unless it is given a
folder:

    with Broker(data_dir=tmp_path) as broker:

Then what is durable is there again after `stop` and `start`, or after `kill` and `start`, which is how a crash looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from os import PathLike, fspath
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote

from penstock.config import Config
from penstock.errors import ChannelException
from penstock.server.postgres.answers import count_anew
from penstock.server.server import Server
from penstock.server.sync.syncers import ThreadSyncer
from penstock.testing.faults import BrokerFaults

T = TypeVar("T")

START_S = 10.0
STOP_S = 10.0
# What clients are given to answer connection.close. One that sits idle in the test's own thread never answers, and
# every test that leaves one open pays this; the close is in its socket all the same.
CLOSE_OK_S = 0.2


class Broker:
    """A broker that runs while the `with` block does; or between `start` and `stop`, more than once if need be."""

    def __init__(
        self,
        config: Config | None = None,
        port: int = 0,
        data_dir: str | PathLike[str] | None = None,
        postgres_url: str | None = None,
    ) -> None:
        """`port` counts, not the configuration's: a test wants a free one (0), not the usual one.

        With `data_dir` the broker keeps what is durable in that folder; with `postgres_url` queues can be in that
        database (`x-backing: postgres`).
        """
        # A refused login is answered at once: tests do not guess passwords.
        self._config = config or Config(login_refused_delay_s=0.0)
        if data_dir is not None:
            self._config = replace(self._config, data_dir=fspath(data_dir))
        if postgres_url is not None:
            self._config = replace(self._config, postgres_url=postgres_url)
        self._is_killed = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._stopping: asyncio.Event | None = None
        self.host = self._config.host
        # The one it listens on, once it was started.
        self.port = port
        self.faults = BrokerFaults(self)

    @property
    def url(self) -> str:
        """For any AMQP client: amqp://user:password@host:port/vhost."""
        user = self._config.users[0]
        vhost = quote(self._config.vhosts[0], safe="")
        login = f"{quote(user.name, safe='')}:{quote(user.password, safe='')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"amqp://{login}@{host}:{self.port}/{vhost}"

    @property
    def is_running(self) -> bool:
        return self._server is not None

    def start(self) -> Broker:
        """Start and return when connections are accepted. After `stop`: on the same port, with what is on disk."""
        if self._thread is not None:
            raise RuntimeError("this broker is running already")
        self._is_killed = False
        started: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="penstock-broker", daemon=True)
        self._thread.start()
        try:
            self.port = started.result(START_S)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Tell the clients, close everything, wait for the thread. What was stopped can be stopped again."""
        thread = self._thread
        if thread is None:
            return
        if self._loop is not None and self._stopping is not None:
            # A loop that is closed already has nothing to be told.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(STOP_S)
        if thread.is_alive():
            raise RuntimeError(f"the broker on port {self.port} did not stop within {STOP_S} s")
        # The messages go now, not when the test lets go of this object.
        self._thread = self._loop = self._server = self._stopping = None

    def kill(self) -> None:
        """Let it end as if it had crashed: nothing is written any more, connections are cut without a word."""
        self._is_killed = True
        self.stop()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def queue_depth(self, name: str, vhost: str = "/") -> int:
        """Return how many messages are ready in a queue; raises KeyError when there is no such queue."""
        counted: Future[int] = Future()

        def count(server: Server) -> None:
            queue = server.broker.vhosts[vhost].queues[name]

            def done(error: ChannelException | None) -> None:
                if error is None:
                    counted.set_result(len(queue))
                else:
                    counted.set_exception(error)

            count_anew(queue, done)

        self.call(count)
        return counted.result(START_S)

    def call(self, function: Callable[[Server], T]) -> T:
        """Run a function on the broker's thread and return what it returns. Any thread may call."""
        loop, server = self._loop, self._server
        if loop is None or server is None:
            raise RuntimeError("the broker is not running")
        if threading.current_thread() is self._thread:
            return function(server)
        result: Future[T] = Future()

        def work() -> None:
            try:
                result.set_result(function(server))
            except BaseException as error:  # handed to the caller, whatever it is
                result.set_exception(error)

        loop.call_soon_threadsafe(work)
        return result.result(START_S)

    def _run(self, started: Future[int]) -> None:
        try:
            self._run_loop(started)
        except BaseException as error:  # handed to the thread that waits in start()
            if started.done():
                raise
            started.set_exception(error)

    def _run_loop(self, started: Future[int]) -> None:
        asyncio.run(self._serve(started))

    async def _serve(self, started: Future[int]) -> None:
        # A thread and not a process: a test's process is not ours to start others from.
        server = Server(replace(self._config, port=self.port), ThreadSyncer)
        stopping = asyncio.Event()
        server.disk_failed = stopping.set
        await server.start()
        self._loop = asyncio.get_running_loop()
        self._stopping = stopping
        self._server = server
        started.set_result(server.port)
        await stopping.wait()
        if self._is_killed:
            server.abandon()
        await server.stop(timeout_s=CLOSE_OK_S)
