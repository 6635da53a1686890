"""The answers of one connection that wait for changes of the definitions to be on disk.

A declaration, a binding or a deletion of something durable is answered when it is synced. Clients send many of them
without waiting, so those that stand behind one another in what was read are all handled at once and share one sync.
Their answers are given in the order of the methods: whatever such a method is answered with, an error included, waits
behind the answers before it. Any other method is not looked at until all of them are given. Deliveries, confirms and
heartbeats go on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.definitions.definition_log import DefinitionLog
from penstock.errors import internal_error
from penstock.wire import frames, methods

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection

# Why the connection is not parsed meanwhile.
DEFINITIONS = "definitions"
METHOD_KIND = bytes((frames.METHOD,))
# Class and method of those that may be handled while the answer to another one of them waits.
FOLLOWERS = frozenset(
    each.INDEX.to_bytes(4, "big")
    for each in (
        *(methods.ExchangeDeclare, methods.ExchangeDelete, methods.ExchangeBind, methods.ExchangeUnbind),
        *(methods.QueueDeclare, methods.QueueDelete, methods.QueueBind, methods.QueueUnbind),
    )
)


class DefinitionAnswers:
    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._count = 0
        # Whether the last one is an error: nothing is handled behind that.
        self._is_error_last = False

    def __len__(self) -> int:
        return self._count

    def wait(self, log: DefinitionLog, give: Callable[[], None], is_error: bool = False) -> None:
        """Call `give` when every change so far is on disk, behind all that wait already."""
        assert self._connection is not None
        self._count += 1
        self._is_error_last = is_error
        self._connection.stop_parsing(DEFINITIONS)
        log.when_durable(partial(self._durable, give))

    def may_be_followed(self, data: bytes, pos: int) -> bool:
        """Return whether the frame at `pos` can be handled although answers wait."""
        connection = self._connection
        if connection is None or self._is_error_last or not connection.is_parsing_stopped_only_by(DEFINITIONS):
            return False
        return data[pos : pos + 1] == METHOD_KIND and data[pos + 7 : pos + 11] in FOLLOWERS

    def close(self) -> None:
        self._connection = None

    def _durable(self, give: Callable[[], None], is_durable: bool) -> None:
        self._count -= 1
        connection = self._connection
        # It may have been closed while the disk was busy.
        if connection is None or connection.closing:
            return
        if not is_durable:
            connection.close_with(internal_error("the broker could not write to its disk"), 0)
            return
        try:
            give()
        finally:
            if not self._count:
                self._is_error_last = False
                connection.resume_parsing(DEFINITIONS)
