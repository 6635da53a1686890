"""What a node does when it hears that a message was put: at once if it is named, a moment later if another is."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.pg.participant import Participant
from penstock.server.postgres.listen_connection import PgListenConnection


class QueueLink:
    """As much of a link as the connection touches."""

    def __init__(self) -> None:
        self.participant = Participant("q", "consumer")
        self.participant.attached(7)
        self.is_closed = False
        self.is_look_planned = False
        self.looks = 0
        self.looked = asyncio.Event()

    def look_now(self) -> None:
        self.looks += 1
        self.looked.set()


def listening_to(queue_link: Any) -> PgListenConnection:
    listening = PgListenConnection("", Any, Any, lambda: [queue_link], lambda: 0.0)  # type: ignore[arg-type]
    listening._by_channel = {"q": queue_link}
    return listening


def test_a_node_that_is_named_or_meant_with_all_others_looks_at_once() -> None:
    async def run() -> None:
        queue_link = QueueLink()
        listening = listening_to(queue_link)
        listening._heard("q", "7")
        listening._heard("q", "")
        listening._heard("elsewhere", "7")
        assert queue_link.looks == 2

    asyncio.run(run())


def test_a_node_that_is_not_named_looks_once_and_a_moment_later_however_often_another_is() -> None:
    async def run() -> None:
        queue_link = QueueLink()
        listening = listening_to(queue_link)
        for _ in range(5):
            listening._heard("q", "8")
        assert queue_link.looks == 0
        await asyncio.wait_for(queue_link.looked.wait(), 10)
        assert queue_link.looks == 1
        queue_link.looked.clear()
        listening._heard("q", "8")
        await asyncio.wait_for(queue_link.looked.wait(), 10)
        assert queue_link.looks == 2

    asyncio.run(run())


def test_a_queue_that_was_closed_meanwhile_is_left_alone() -> None:
    async def run() -> None:
        queue_link, other = QueueLink(), QueueLink()
        listening = listening_to(queue_link)
        listening._by_channel["other"] = other  # type: ignore[assignment]
        listening._heard("q", "8")
        queue_link.is_closed = True
        # By the second time the moment of the first one is over.
        for _ in range(2):
            other.looked.clear()
            listening._heard("other", "8")
            await asyncio.wait_for(other.looked.wait(), 10)
        assert queue_link.looks == 0

    asyncio.run(run())
