# unasync: written by hand in each face.
"""Where the two faces differ: clocks, pauses, locks and handlers. `client/sync/waiting.py` is the other one.

What waits for sockets is in the drivers' libraries or in modules that are written by hand like this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

from penstock.client.message import Message

__all__ = ["Handler", "Lock", "in_thread", "monotonic", "sleep", "to_the_end"]

T = TypeVar("T")

# What `each_message` calls; the note it returns goes with the message.
Handler = Callable[[Message], Awaitable[str | None]]
Lock = asyncio.Lock
sleep = asyncio.sleep
in_thread = asyncio.to_thread


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Have the work done even if the caller is cancelled meanwhile: what it took is then kept by who did it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            await asyncio.wait([task])
        raise
