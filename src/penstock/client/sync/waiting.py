# unasync: written by hand in each face.
"""Where the two faces differ: clocks, pauses, locks and handlers. `client/aio/waiting.py` is the other one.

What waits for sockets is in the drivers' libraries or in modules that are written by hand like this one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import ParamSpec, TypeVar

from penstock.client.message import Message

__all__ = ["Handler", "Lock", "in_thread", "monotonic", "sleep", "to_the_end"]

T = TypeVar("T")
P = ParamSpec("P")

# What `each_message` calls; the note it returns goes with the message.
Handler = Callable[[Message], str | None]
Lock = threading.Lock


def to_the_end(result: T) -> T:
    """The asynchronous face keeps work from being cancelled here; a call that has returned needs no such care."""
    return result


def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The asynchronous face has this done by a thread; here the caller waits anyway."""
    return function(*args, **kwargs)
