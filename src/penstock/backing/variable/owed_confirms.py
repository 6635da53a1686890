"""Confirms that a queue owes: tokens of runs that are not durable yet, and those that are and wait to be collected.

The journal is asked once per batch, however many runs of this queue it has. The answer comes through the queue's async
callback, and is dropped with the queue. When the disk fails, a token is refused. When the queue is deleted, it is due:
nothing can be lost any more.

Invariants
  1. A token comes out of `drain` once, or is refused, never both.
  2. It comes out only when the batch that was open when it was added is durable, or the queue is deleted.
"""

from __future__ import annotations

from typing import final

from penstock.backing.backing_queue import AsyncCallback
from penstock.journal.journal import Journal
from penstock.journal.place import BatchPlace
from penstock.message import ConfirmToken, refuse_all


@final
class WaitingTokens:
    """The tokens of one queue in one batch; called by the journal when the batch's fate is known."""

    def __init__(self, owed: OwedConfirms, place: BatchPlace) -> None:
        self.place = place
        self.tokens: list[ConfirmToken] = []
        self._owed = owed

    def answer(self, durable: bool) -> None:
        self._owed.answered(self, durable)


@final
class OwedConfirms:
    def __init__(self, journal: Journal, kind: str, callback: AsyncCallback) -> None:
        self._journal = journal
        self._kind = kind
        self._callback = callback
        # Batches whose fate is not known, the open one last.
        self._waiting: list[WaitingTokens] = []
        self._due: list[ConfirmToken] = []

    def add(self, token: ConfirmToken, persistent: bool) -> None:
        """A run was published; a persistent one is in the batch that is open now."""
        if not persistent:
            self._due.append(token)
            return
        waiting = self._waiting
        place = self._journal.place
        if not waiting or waiting[-1].place is not place:
            tokens = WaitingTokens(self, place)
            waiting.append(tokens)
            tokens.tokens.append(token)
            self._journal.when_durable(tokens.answer)
        else:
            waiting[-1].tokens.append(token)

    def answered(self, waiting: WaitingTokens, durable: bool) -> None:
        """The journal has spoken; the queue hears it in its own context."""
        # Not a function with a name: compiled, that is a ring that only the garbage collector frees.
        self._callback(self._kind, lambda backing: self._settle(waiting, durable))

    def _settle(self, waiting: WaitingTokens, durable: bool) -> None:
        if waiting not in self._waiting:
            return
        self._waiting.remove(waiting)
        if durable:
            self._due.extend(waiting.tokens)
            return
        refuse_all(waiting.tokens)

    def give_up(self) -> None:
        """The queue is deleted: what waits is due."""
        for waiting in self._waiting:
            self._due.extend(waiting.tokens)
        self._waiting.clear()

    def drain(self) -> list[ConfirmToken]:
        due = self._due
        if not due:
            # Never the inner list: tokens of later runs would appear in the caller's hands.
            return []
        self._due = []
        return due

    def is_waiting(self) -> bool:
        return bool(self._waiting)
