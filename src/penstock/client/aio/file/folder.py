"""A session's hold on the engine of its folder.

All sessions of a process on one folder share the engine. One that was given up (a disk that failed, a call that was
interrupted) is opened anew by the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.client.aio.file.waiting import offload
from penstock.client.aio.waiting import Lock
from penstock.client.engine import folders
from penstock.client.engine.engine import Engine
from penstock.client.engine.opening import folder_of
from penstock.client.errors import Closed

T = TypeVar("T")


class AsyncFolder:
    def __init__(self, url: str) -> None:
        self._path = folder_of(url)
        self._engine: Engine | None = None
        self._lock = Lock()
        self._is_closed = False

    async def engine(self) -> Engine:
        """Return the engine, opened if need be."""
        async with self._lock:
            if self._is_closed:
                raise Closed("the session is closed")
            if self._engine is None or self._engine.has_ended:
                self._engine = None
                self._engine = await offload(partial(folders.acquire, self._path), folders.release)
            return self._engine

    async def call(self, verb: Callable[[Engine], T]) -> T:
        engine = await self.engine()
        return await offload(partial(verb, engine))

    async def close(self) -> None:
        async with self._lock:
            self._is_closed = True
            engine, self._engine = self._engine, None
        if engine is not None:
            await offload(partial(folders.release, engine))
