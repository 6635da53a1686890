"""Stands for the transport of a connection while its TLS handshake goes on: it can be dropped, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from typing import Any


class PendingTls(asyncio.Transport):
    def __init__(self, peer: socket.socket) -> None:
        super().__init__({"peername": _name(peer.getpeername), "sockname": _name(peer.getsockname), "socket": peer})
        self._task: asyncio.Task[None] | None = None
        self._is_aborted = False

    def begin(self, task: asyncio.Task[None] | None) -> None:
        """The handshake has begun in this task, which `abort` cancels."""
        self._task = task

    def is_closing(self) -> bool:
        return self._is_aborted

    def abort(self) -> None:
        self._is_aborted = True
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        self.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False


def _name(ask: Any) -> Any:
    """None when the peer is gone already."""
    try:
        return ask()
    except OSError:
        return None
