"""What only the asynchronous face has: several tasks on one consumer, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import penstock
from penstock.client.aio.consumer import AsyncConsumer
from penstock.client.message import Message
from tests.client.any_driver import PATIENCE_S

MESSAGES = 60


def run(url: str, scene: Callable[[penstock.AsyncSession], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with penstock.AsyncSession(url) as session:
            await scene(session)

    asyncio.run(inside())


def test_a_reservation_that_is_cancelled_loses_no_message(penstock_url: str) -> None:
    async def cancelled(consumer: AsyncConsumer, steps: int) -> Message | None:
        """Let it run for some steps of the loop, then cancel it."""
        task = asyncio.create_task(consumer.reserve(wait=PATIENCE_S))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return None

    async def scene(session: penstock.AsyncSession) -> None:
        consumer = await session.consumer_for("q")
        producer = await session.producer_for("q")
        put = [(await producer.put(str(number))).id for number in range(MESSAGES)]
        got = []
        for steps in range(MESSAGES):
            message = await cancelled(consumer, steps)
            got += [message.id] if message else []
        while message := await consumer.reserve():
            got.append(message.id)
        assert got == put

    run(penstock_url, scene)


def test_one_task_finalizes_while_another_waits_on_the_same_consumer(penstock_url: str) -> None:
    async def scene(session: penstock.AsyncSession) -> None:
        consumer = await session.consumer_for("q")
        producer = await session.producer_for("q")
        await producer.put("x")
        message = await consumer.reserve(wait=PATIENCE_S)
        assert message is not None
        waiting = asyncio.create_task(consumer.reserve(wait=None))
        await consumer.touch(message)
        await consumer.finalize(message, "done")
        assert not waiting.done()
        await producer.put("y")
        found = await waiting
        assert found is not None
        assert found.text == "y"

    run(penstock_url, scene)


def test_tasks_share_a_session_from_its_first_use_on(penstock_url: str) -> None:
    async def scene(session: penstock.AsyncSession) -> None:
        producers = await asyncio.gather(*[session.producer_for("q") for _ in range(5)])
        put = await asyncio.gather(*[producer.put("x") for producer in producers for _ in range(10)])
        assert len({message.id for message in put}) == 50
        stats = await session.stats("q")
        assert (stats.ready_count, stats.producer_count) == (50, 5)

    run(penstock_url, scene)


def test_a_handler_is_awaited(penstock_url: str) -> None:
    async def scene(session: penstock.AsyncSession) -> None:
        await (await session.producer_for("q")).put_many(["a", "b"])

        async def handle(message: Message) -> str:
            await asyncio.sleep(0)
            if message.text == "b":
                raise LookupError("b")
            return f"did {message.text}"

        consumer = await session.consumer_for("q")
        with pytest.raises(LookupError):
            await consumer.each_message(handle)
        assert [message.finalized_note for message in await session.history("q")] == ["did a"]
        assert (await session.stats("q")).reserved_count == 1

    run(penstock_url, scene)
