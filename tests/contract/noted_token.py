"""A confirm token that says when it was settled, whoever did it."""

from __future__ import annotations

from typing import ClassVar

from penstock.backing.backing_queue import BackingQueue
from penstock.message import ConfirmToken


class NotedToken(ConfirmToken):
    """Of one queue. It stands in `told` from its settling until a test has asked."""

    told: ClassVar[list[ConfirmToken]] = []

    def __init__(self) -> None:
        super().__init__(1)

    def complete(self) -> None:
        self.told.append(self)


def confirmed(queue: BackingQueue) -> list[ConfirmToken]:
    """Do the queue's part, and return the tokens that were settled since the last call, each once, in order."""
    for token in queue.drain_confirmed():
        assert token.waiting == 1, "a token that is handed out was not settled before"
        token.settle()
    told = NotedToken.told[:]
    NotedToken.told.clear()
    return told
