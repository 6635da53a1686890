"""How fast one connection may open, close and declare things: a bucket of tokens that fills with time.

A connection without tokens is not read for a moment; it gets no error, since what it asks for is not wrong. What it has
sent waits in its socket, and other connections are served meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from penstock import limits

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection

log = logging.getLogger("penstock.connection")

# Why the connection is not read.
CHURN: Final = "churn"


class ChurnPace:
    __slots__ = ("_connection", "_is_said", "_since_s", "_timer", "_tokens")
    __deletable__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tokens: float = connection.broker.config.churn_burst
        # When the tokens were counted last; they are counted when there are none.
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_said = False

    def spend(self) -> None:
        """Take a token for a method; without one the methods behind it wait."""
        self._tokens -= 1
        if self._tokens < 0 and self._timer is None:
            self._refill()

    def _refill(self) -> None:
        connection = self._connection
        config = connection.broker.config
        loop = connection.server.loop
        now_s = loop.time()
        # The first time the bucket was full, and nobody has counted since when.
        passed_s = now_s - self._since_s if self._since_s else 0.0
        self._since_s = now_s
        self._tokens = min(self._tokens + passed_s * config.churn_per_s_max, config.churn_burst)
        if self._tokens < 0:
            if not self._is_said:
                self._is_said = True
                log.warning("connection %s opens and declares too fast, and is read more slowly", connection.peer)
            pause_s = max(limits.CHURN_PAUSE_S, -self._tokens / config.churn_per_s_max)
            connection.stop_parsing(CHURN)
            self._timer = loop.call_later(pause_s, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._connection.resume_parsing(CHURN)

    def close(self) -> None:
        """The connection is gone, and is not led to any more: it is freed by reference counting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        del self._connection
