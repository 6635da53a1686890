"""Waits on a connection that listens, between two looks at the queues.

A wait ends with a notification, when it is time for the next look, when a message falls due, or at the deadline. Due
messages are made ready here, too: scheduled ones, and those whose lease has run out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock.client.aio.postgres.link import AsyncPgLink
from penstock.client.aio.waiting import monotonic
from penstock.pg.participant import LATER_LOOKS_S, soon_s

# What is due but locked: another session is about to make it ready.
SECONDS_FOR_OTHERS: Final = 0.05
# Notifications can come by the thousand; one of them may be about a message that falls due soon.
SECONDS_BETWEEN_QUESTIONS: Final = 0.05


class AsyncPgListener:
    def __init__(self, link: AsyncPgLink, queues: list[str], since_s: float) -> None:
        self._link = link
        self._queues = queues
        self._since_s = since_s
        # When a message falls due, and until when we believe that: a notification may be about an earlier one.
        self._due_at_s: float | None = None
        self._asked_at_s = 0.0
        self._ask_at_s = 0.0

    async def wait(self, deadline_s: float, names: Collection[str]) -> bool:
        """Wait once; return whether messages became ready. `names`: the waiting consumers, as in pause."""
        now_s = monotonic()
        if now_s >= self._ask_at_s:
            due_s = await self._link.value("due", (self._queues,))
            now_s = monotonic()
            self._due_at_s = None if due_s is None else now_s + due_s
            self._asked_at_s = now_s
            self._ask_at_s = now_s + LATER_LOOKS_S
        pause_s = min(soon_s(self._since_s, now_s), self._ask_at_s - now_s, deadline_s - now_s)
        if self._due_at_s is not None:
            if self._due_at_s <= now_s:
                self._ask_at_s = 0.0
                if await self._link.value("return_due", (self._queues,)):
                    return True
                pause_s = min(pause_s, SECONDS_FOR_OTHERS)
            else:
                pause_s = min(pause_s, self._due_at_s - now_s)
        if await self._link.pause(max(0.0, pause_s), names):
            self._ask_at_s = min(self._ask_at_s, self._asked_at_s + SECONDS_BETWEEN_QUESTIONS)
        return False
