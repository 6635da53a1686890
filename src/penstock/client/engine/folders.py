"""The engines of this process: one for each folder, however many sessions use it.

A process that ends without closing its sessions leaves its folders cleanly all the same, unless it is killed. A child
that was forked has none of its parent's engines.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress

from penstock.client.engine.engine import Engine
from penstock.client.errors import ClientError

_lock = threading.Lock()
# By the real path: how many use it, and the engine.
_engines: dict[str, tuple[int, Engine]] = {}


def acquire(folder: str) -> Engine:
    """Return the engine of a folder; opened for the first who asks. Each `acquire` needs one `release`."""
    path = os.path.realpath(folder)
    with _lock:
        count, engine = _engines.get(path, (0, None))
        if engine is None or engine.has_ended:
            # What was given up is not counted any more: its users let go of that one, and not of this.
            count, engine = 0, Engine(path)
        _engines[path] = (count + 1, engine)
        return engine


def release(engine: Engine) -> None:
    """One user less; with the last one the folder is left cleanly."""
    with _lock:
        count, current = _engines.get(engine.folder, (0, None))
        if current is not engine:
            return
        if count > 1:
            _engines[engine.folder] = (count - 1, engine)
            return
        del _engines[engine.folder]
        engine.close()


def leave_all() -> None:
    """The process ends."""
    with _lock:
        for _, engine in _engines.values():
            # A folder that could not be left cleanly is recovered by the next opening.
            with suppress(ClientError):
                engine.close()
        _engines.clear()


def _forked() -> None:
    """Another thread of the parent may have had the lock."""
    global _lock
    _lock = threading.Lock()
    _engines.clear()


atexit.register(leave_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
