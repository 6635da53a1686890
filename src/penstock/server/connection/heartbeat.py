"""Heartbeats, both ways: one timer per connection at half the interval."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.wire import frames

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection

log = logging.getLogger("penstock.connection")


class Heartbeat:
    __deletable__ = ("_connection",)
    __slots__ = ("_connection", "_heard", "_interval_s", "_silent_checks", "_spoke", "_timer")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._interval_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._heard = False
        self._spoke = False
        self._silent_checks = 0

    def start(self, interval_s: float) -> None:
        """0 = the client wants none."""
        self._interval_s = interval_s
        if interval_s > 0:
            self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self.stop()
        del self._connection

    def heard(self) -> None:
        self._heard = True

    def spoke(self) -> None:
        self._spoke = True

    def _arm(self) -> None:
        self._timer = self._connection.server.loop.call_later(self._interval_s / 2, self._check)

    def _check(self) -> None:
        connection = self._connection
        if not self._spoke:
            connection.send_raw(frames.HEARTBEAT_FRAME)
        self._spoke = False
        if self._heard or connection.may_be_silent():
            self._silent_checks = 0
        else:
            self._silent_checks += 1
        self._heard = False
        if self._silent_checks >= 4:
            log.warning("connection %s closed: missed heartbeats, timeout %gs", connection.peer, self._interval_s)
            connection.drop()
            return
        self._arm()
