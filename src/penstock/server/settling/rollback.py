"""A rollback under way: in slices when the transaction was large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server.settling.sliced import Sliced
from penstock.server.settling.transaction import Transaction
from penstock.wire import methods

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel


class Rollback(Sliced):
    """One tx.rollback. No queue can tell how far it is: what the client had settled is pending there all the time.

    What is left of it stays in the transaction. A channel that is closed meanwhile gives all of it back.
    """

    def __init__(self, channel: Channel, transaction: Transaction) -> None:
        super().__init__()
        self._channel = channel
        self._transaction = transaction
        self._is_begun = False

    def is_over(self) -> bool:
        return self._transaction.is_empty()

    def begin(self) -> None:
        self._is_begun = True
        self._channel.connection.settling_begun()

    def do_next(self) -> int:
        self._transaction.undo_last()
        return 0

    def end(self) -> None:
        if not self._channel.closing:
            self._channel.send(methods.TxRollbackOk())
        if self._is_begun:
            self._is_begun = False
            self._channel.connection.settling_over()
        for call in self.take_calls():
            call()
