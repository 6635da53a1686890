"""A method that goes on later: when a database has answered, or a large body was read.

Meanwhile nothing more of the connection is parsed; other connections go on. Each wait has its end: a timer ends what
takes too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import AmqpError, ChannelException
from penstock.server.connection.awaited_answer import DISK

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel

GoOn = Callable[[], None]
# Makes the error of a method that has waited too long; it is told how long.
TooLate = Callable[[str], AmqpError]


class AwaitedMethod:
    def __init__(self, channel: Channel, index: int, go_on: GoOn, too_late: TooLate) -> None:
        """`index` is the method's, for the error that it may end with."""
        self._channel = channel
        self._index = index
        self._go_on = go_on
        self._too_late = too_late
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, bound_s: float, wait: Callable[[Callable[[ChannelException | None], None]], None]) -> None:
        """`wait` is given what to call; that may be at once."""
        wait(self.over)
        if not self._is_over:
            connection = self._channel.connection
            connection.stop_parsing(DISK)
            self._timer = connection.server.loop.call_later(bound_s, self._bound_reached, bound_s)

    def _bound_reached(self, bound_s: float) -> None:
        self.over(self._too_late(f"no answer within {bound_s:g} s"))

    def over(self, error: AmqpError | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer is None:
            # At once, within the method itself: errors are handled where those of methods are.
            if error is not None:
                raise error
            self._go_on()
            return
        self._timer.cancel()
        connection = self._channel.connection
        if connection.closing:
            return
        # First: going on may mean to wait for something else.
        connection.resume_parsing(DISK)
        try:
            if not self._channel.closing:
                if error is not None:
                    raise error
                self._go_on()
        except ChannelException as refusal:
            connection.close_channel(self._channel, refusal, self._index)
        except AmqpError as refusal:
            connection.close_with(refusal, self._index)
        except Exception:
            connection.failed()
