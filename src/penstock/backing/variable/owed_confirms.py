"""Confirms that a queue owes: tokens of runs that are not durable yet, and those that were safe as soon as they came.

The journal is asked once per batch, however many runs of this queue it has, and its answer settles the tokens; nobody
stands in between. When the disk fails, they are refused. When the queue is deleted, they are due: nothing can be lost
any more. When it is given up, or the broker stops, they are taken back, and the answer finds none.

Invariants
  1. A token is settled, comes out of `drain`, is refused or is taken back; one of these, and once.
  2. It is settled only when the batch that was open when it was added is durable.
"""

from __future__ import annotations

from typing import final

from penstock.journal.journal import Journal
from penstock.journal.place import BatchPlace
from penstock.message import ConfirmToken, refuse_all, settle_all


@final
class WaitingTokens:
    """The tokens of one queue in one batch; called by the journal when the batch's fate is known."""

    def __init__(self, waiting: list[WaitingTokens], place: BatchPlace) -> None:
        self.place = place
        self.tokens: list[ConfirmToken] = []
        # Where it stands until then, the oldest first.
        self._waiting = waiting

    def answer(self, durable: bool) -> None:
        tokens, self.tokens = self.tokens, []
        if not tokens:
            return
        self._waiting.remove(self)
        if durable:
            settle_all(tokens)
        else:
            refuse_all(tokens)


@final
class OwedConfirms:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
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
            tokens = WaitingTokens(waiting, place)
            waiting.append(tokens)
            tokens.tokens.append(token)
            self._journal.when_durable(tokens.answer)
        else:
            waiting[-1].tokens.append(token)

    def give_up(self) -> None:
        """The queue is deleted: what waits is due."""
        self._due.extend(self._take_waiting())

    def _take_waiting(self) -> list[ConfirmToken]:
        found: list[ConfirmToken] = []
        for waiting in self._waiting:
            found.extend(waiting.tokens)
            # The answer is still to come.
            waiting.tokens = []
        self._waiting.clear()
        return found

    def take(self) -> list[ConfirmToken]:
        """Return all that were not told anything, and forget them."""
        return self.drain() + self._take_waiting()

    def drain(self) -> list[ConfirmToken]:
        due = self._due
        if not due:
            # Never the inner list: tokens of later runs would appear in the caller's hands.
            return []
        self._due = []
        return due

    def is_waiting(self) -> bool:
        return bool(self._waiting)
