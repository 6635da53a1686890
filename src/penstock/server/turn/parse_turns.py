"""Connections that have sent more than is handled in one go: they take turns with the rest of it.

A read brings up to some hundred kilobytes, and so thousands of methods. Each connection handles what it can in
`limits.PARSE_TURN_S` and is then not read until its turn has come, behind all connections whose data has arrived
meanwhile. All turns of one iteration of the loop together take about as long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from penstock import limits
from penstock.clock import Clock

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection


class ParseTurns:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        # In the order of their turn; each once.
        self._waiting: deque[Connection] = deque()
        self._is_scheduled = False

    def add(self, connection: Connection) -> None:
        self._waiting.append(connection)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        until_s = self._clock.monotonic_s() + limits.PARSE_TURN_S
        # A connection with still more is added again behind the others, for the next time.
        for _ in range(len(self._waiting)):
            self._waiting.popleft().parse_on()
            if self._clock.monotonic_s() >= until_s:
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._turn)
