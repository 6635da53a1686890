"""Tasks of the asynchronous face that are cancelled: no message stays with somebody who does not know of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from penstock.client.aio.consumer import AsyncConsumer
from penstock.client.aio.session import AsyncSession
from penstock.client.errors import ClientError
from tests.client.any_driver import DRIVERS, PATIENCE_S, new_name, url_of

ROUNDS = 12


@pytest.fixture(params=DRIVERS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield url_of(request.param, request, tmp_path / "folder")
    rmtree(tmp_path / "folder", ignore_errors=True)


async def cancelled(task: asyncio.Task[object]) -> bool:
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


async def take(consumer: AsyncConsumer) -> str:
    message = await consumer.reserve(wait=PATIENCE_S)
    assert message is not None
    await consumer.finalize(message)
    return message.text


def test_a_consumer_whose_wait_was_cancelled_can_go_on(url: str) -> None:
    queue = new_name("cancelled")

    async def scenario() -> list[str]:
        async with AsyncSession(url) as session:
            consumer = await session.consumer_for(queue)
            producer = await session.producer_for(queue)
            found = []
            for number in range(3):
                waiting: asyncio.Task[object] = asyncio.create_task(consumer.reserve(wait=None))
                await asyncio.wait([waiting], timeout=0.1)
                assert await cancelled(waiting)
                await producer.put(str(number))
                found.append(await take(consumer))
            return found

    assert asyncio.run(scenario()) == ["0", "1", "2"]


def test_what_comes_while_a_wait_is_cancelled_is_not_lost(url: str) -> None:
    queue = new_name("cancelled")

    async def scenario() -> None:
        async with AsyncSession(url) as session, AsyncSession(url) as others:
            producer = await others.producer_for(queue)
            for number in range(ROUNDS):
                consumer = await session.consumer_for(queue)
                waiting: asyncio.Task[object] = asyncio.create_task(consumer.reserve(wait=None))
                # At another point of its way each time.
                for _ in range(number):
                    await asyncio.sleep(0)
                await producer.put(str(number))
                for _ in range(number):
                    await asyncio.sleep(0)
                was_cancelled = await cancelled(waiting)
                if not was_cancelled:
                    assert waiting.result() is not None
                # Whatever it had goes back, whether it knew of it or not.
                await consumer.close()
                assert await take(await others.consumer_for(queue)) == str(number)

    asyncio.run(scenario())


def test_a_session_is_usable_after_any_call_was_cancelled(url: str) -> None:
    queue = new_name("cancelled")

    async def scenario() -> None:
        async with AsyncSession(url) as session:
            producer = await session.producer_for(queue)
            consumer = await session.consumer_for(queue)
            for number in range(ROUNDS):
                calls = (
                    producer.put(f"maybe {number}"),
                    session.stats(queue),
                    consumer.kick(),
                    session.history(queue),
                )
                for call in calls:
                    task: asyncio.Task[object] = asyncio.create_task(call)  # type: ignore[arg-type]
                    for _ in range(number):
                        await asyncio.sleep(0)
                    await cancelled(task)
                    # It may have to connect again; but not more than once.
                    try:
                        await session.stats(queue)
                    except ClientError:
                        await session.stats(queue)
            await producer.put("the last")
            found = []
            while not found or found[-1] != "the last":
                found.append(await take(consumer))
            assert len(found) == len(set(found))

    asyncio.run(scenario())
