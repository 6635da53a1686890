"""Jobs in the worker's own process: for debugging, and where there is no fork.

A job that hangs or crashes takes the worker along.
"""

from __future__ import annotations

import contextlib
import select
import socket

from penstock.worker.jobs.allow_list import AllowList
from penstock.worker.jobs.formats import Call
from penstock.worker.runners.child import run_call
from penstock.worker.runners.runner import Ended, Runner


class InlineRunner(Runner):
    def __init__(self, allow_list: AllowList) -> None:
        self.concurrency = 1
        self.has_children = False
        self._allow_list = allow_list
        self._ended: list[Ended] = []
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)

    def start(self, key: int, name: str, call: Call) -> None:
        answer = run_call(self._allow_list, {"name": name, "args": call.args, "kwargs": call.kwargs})
        self._ended.append(Ended(key, answer["done"], answer["note"]))

    def kill(self, key: int) -> None:
        # What was started has ended.
        return

    def wait(self, timeout_s: float) -> list[Ended]:
        if not self._ended:
            select.select([self._wake_in], [], [], max(0.0, timeout_s))
            with contextlib.suppress(BlockingIOError):
                self._wake_in.recv(4096)
        ended, self._ended = self._ended, []
        return ended

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"w")

    def close(self) -> None:
        self._wake_in.close()
        self._wake_out.close()
