"""An answer that waits for the disk.

Until it is given, what the client has sent behind the method is not looked at: whatever comes next on the channel, and
on the others of its connection, happens after the answer. Deliveries, confirms and heartbeats go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import internal_error
from penstock.wire.methods import Method

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel

# Why the connection is not parsed meanwhile.
DISK = "disk"


class AwaitedAnswer:
    def __init__(
        self, channel: Channel, answer: Method, failure: str = "the broker could not write to its disk"
    ) -> None:
        self._channel = channel
        self._answer = answer
        self._failure = failure
        self._answered = False

    def wait_with(self, when_durable: Callable[[Callable[[bool], None]], None]) -> None:
        """Have the answer sent when everything so far is durable; that may be at once."""
        when_durable(self._durable)
        if not self._answered:
            self._channel.connection.stop_parsing(DISK)

    def _durable(self, is_durable: bool) -> None:
        self._answered = True
        channel = self._channel
        connection = channel.connection
        # The broker may have closed either while the disk was busy.
        if connection.closing:
            return
        if not is_durable:
            connection.close_with(internal_error(self._failure), 0)
            return
        if not channel.closing:
            channel.send(self._answer)
        connection.resume_parsing(DISK)
