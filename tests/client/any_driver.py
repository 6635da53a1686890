"""One session API over three drivers and two faces: where the tests of `test_any_driver_*` get their sessions from.

Tests are written as if there were only the synchronous face. The asynchronous one is driven through `Bridge`, which
runs its coroutines on a loop of its own, on a thread of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from penstock.client.aio.consumer import AsyncConsumer
from penstock.client.aio.producer import AsyncProducer
from penstock.client.aio.session import AsyncSession
from penstock.client.sync.session import Session
from penstock.pg.embedded import EmbeddedPostgres
from tests.postgres_server import new_database

DRIVERS = ("file", "postgresql", "amqp")
FACES = ("sync", "async")
# For what must happen: a test that fails waits so long for it.
PATIENCE_S = 60.0

_databases: dict[EmbeddedPostgres, str] = {}
_RUN = secrets.token_hex(3)
_numbers = itertools.count(1)


def new_name(stem: str) -> str:
    return f"{stem}-{_RUN}-{next(_numbers)}"


class Loop:
    """An event loop on a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def call(self, function: Callable[[], Any]) -> Any:
        async def inside() -> Any:
            return function()

        return self.run(inside())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Bridge:
    """An object of the asynchronous face, used like one of the synchronous face."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(value):
            return value

        def call(*args: Any, **named: Any) -> Any:
            result = self._loop.run(value(*[self._there(arg) for arg in args], **named))
            is_member = isinstance(result, (AsyncProducer, AsyncConsumer))
            return Bridge(result, self._loop) if is_member else result

        return call

    def _there(self, argument: Any) -> Any:
        """What the asynchronous face takes in place of it."""
        if isinstance(argument, Bridge):
            return argument._inner
        if isinstance(argument, list):
            return [self._there(one) for one in argument]
        if inspect.isfunction(argument) or inspect.ismethod(argument):

            async def handle(message: Any) -> Any:
                return argument(message)

            return handle
        return argument

    def __enter__(self) -> Bridge:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Place:
    """Something with queues in it, and the face through which a test sees it."""

    def __init__(self, url: str, face: str) -> None:
        self.url = url
        self.face = face
        self._loop = Loop() if face == "async" else None
        self._sessions: list[Any] = []

    def session(self) -> Any:
        """A new session; closed when the test is over."""
        session: Any
        if self._loop is None:
            session = Session(self.url)
        else:
            session = Bridge(self._loop.call(lambda: AsyncSession(self.url)), self._loop)
        self._sessions.append(session)
        return session

    def queue(self, name: str = "queue") -> str:
        """A name that nobody else has: tests, and processes that run tests, may share what is behind the URL."""
        return new_name(name)

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        if self._loop is not None:
            self._loop.stop()


@contextmanager
def opened(url: str, face: str) -> Iterator[Place]:
    place = Place(url, face)
    try:
        yield place
    finally:
        place.close()


def url_of(driver: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """A URL for each driver. What is behind it is started when the first test asks."""
    if driver == "file":
        return folder.as_uri()
    if driver == "amqp":
        url: str = request.getfixturevalue("broker_url")
        return url
    # One database for all of them: making one takes longer than most of the tests.
    server: EmbeddedPostgres = request.getfixturevalue("postgres_server")
    if server not in _databases:
        _databases[server] = new_database(server, request.getfixturevalue("template_database"))
    return server.url_for(_databases[server])


@pytest.fixture(params=[f"{driver}-{face}" for driver in DRIVERS for face in FACES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Every driver, through both faces. Test modules take it over with `place = any_driver.place`."""
    driver, _, face = request.param.partition("-")
    folder = tmp_path / "folder"
    with opened(url_of(driver, request, folder), face) as place:
        yield place
    # Some megabytes each, and pytest keeps the last ones.
    rmtree(folder, ignore_errors=True)


def payloads(messages: list[Any]) -> list[bytes]:
    return [message.payload for message in messages]


def drain(consumer: Any, count: int) -> list[Any]:
    """So many messages, one after the other, all of them reserved."""
    found = []
    for _ in range(count):
        message = consumer.reserve(wait=PATIENCE_S)
        assert message is not None, f"only {len(found)} of {count} messages came"
        found.append(message)
    return found
