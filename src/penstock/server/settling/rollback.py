"""A rollback under way: in slices when the transaction was large."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import limits
from penstock.clock import Clock
from penstock.queues.settling import Settling
from penstock.server.settling.transaction import Transaction
from penstock.wire import methods

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel


class Rollback(Settling):
    """One tx.rollback. No queue can tell how far it is: what the client had settled is pending there all the time.

    What is left of it stays in the transaction. A channel that is closed meanwhile gives all of it back.
    """

    def __init__(self, channel: Channel, transaction: Transaction) -> None:
        self._channel = channel
        self._transaction = transaction
        self._is_begun = False
        self._when_over: list[Callable[[], None]] = []

    def is_over(self) -> bool:
        return self._transaction.is_empty()

    def begin(self) -> None:
        self._is_begun = True
        self._channel.connection.settling_begun()

    def settle_some(self, clock: Clock) -> None:
        """Undo a slice of it: at least one run."""
        until_s = clock.monotonic_s() + limits.SETTLE_TURN_S
        while not self.is_over():
            self._transaction.undo_last()
            if clock.monotonic_s() >= until_s:
                break

    def finish(self) -> None:
        while not self.is_over():
            self._transaction.undo_last()
        self.end()

    def end(self) -> None:
        if not self._channel.closing:
            self._channel.send(methods.TxRollbackOk())
        if self._is_begun:
            self._is_begun = False
            self._channel.connection.settling_over()
        when_over, self._when_over = self._when_over, []
        for call in when_over:
            call()

    def when_over(self, call: Callable[[], None]) -> None:
        self._when_over.append(call)
