"""One session over AMQP used from several tasks, or from several threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.client.aio.session import AsyncSession
from penstock.client.errors import Closed, ConnectionLost
from penstock.client.sync.producer import Producer
from penstock.client.sync.session import Session
from penstock.server.server import Server
from penstock.testing import Broker
from tests.client.any_driver import PATIENCE_S
from tests.interop.deadline import wait_until
from tests.server.brokers import connection_count


def waiting_count(broker: Broker, queue: str) -> int:
    """How many consumers the broker has for the queue, which need not be there yet."""

    def count(server: Server) -> int:
        found = server.broker.vhosts["/"].queues.get(queue)
        return 0 if found is None else sum(found.consumers.counts().values())

    return broker.call(count)


async def until_waiting(broker: Broker, queue: str, count: int = 1) -> None:
    while waiting_count(broker, queue) != count:
        await asyncio.sleep(0.005)


def test_tasks_put_and_reserve_over_one_connection_at_the_same_time() -> None:
    async def work(broker: Broker) -> tuple[list[str], int]:
        found: list[str] = []
        async with AsyncSession(broker.url) as session:

            async def consume() -> None:
                consumer = await session.consumer_for("q", prefetch=3)
                while message := await consumer.reserve(wait=PATIENCE_S):
                    if message.payload == b"stop":
                        await consumer.finalize(message)
                        return
                    found.append(message.text)
                    await consumer.finalize(message)

            async def produce(name: str) -> None:
                producer = await session.producer_for("q")
                for number in range(50):
                    await producer.put(f"{name}{number}")
                await session.stats("q")

            consumers = [asyncio.create_task(consume()) for _ in range(3)]
            await asyncio.gather(produce("a"), produce("b"), produce("c"))
            await (await session.producer_for("q")).put_many(["stop"] * 3)
            await asyncio.gather(*consumers)
            return found, connection_count(broker)

    with Broker() as broker:
        found, connections = asyncio.run(work(broker))
        assert sorted(found) == sorted(f"{name}{number}" for name in "abc" for number in range(50))
        assert connections == 1
        assert broker.queue_depth("q") == 0


def test_a_reserve_that_is_cancelled_loses_nothing() -> None:
    async def work(broker: Broker) -> list[bytes]:
        async with AsyncSession(broker.url) as session, AsyncSession(broker.url) as other:
            consumer = await session.consumer_for("q")
            producer = await other.producer_for("q")
            reserving = asyncio.create_task(consumer.reserve(wait=PATIENCE_S))
            await until_waiting(broker, "q")
            reserving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reserving
            # It is a consumer still, and is sent the first.
            await producer.put_many([b"a", b"b"])
            found = [await consumer.reserve(wait=PATIENCE_S) for _ in range(2)]
            return [message.payload for message in found if message is not None]

    with Broker() as broker:
        assert asyncio.run(work(broker)) == [b"a", b"b"]


def test_a_reserve_that_is_cancelled_at_any_moment_loses_nothing() -> None:
    async def work(broker: Broker) -> set[bytes]:
        found: set[bytes] = set()
        async with AsyncSession(broker.url) as session:
            consumer = await session.consumer_for("q")
            await (await session.producer_for("q")).put_many([str(number) for number in range(20)])
            for steps in range(60):
                reserving = asyncio.create_task(consumer.reserve_many(3, wait=0.0))
                for _ in range(steps):
                    await asyncio.sleep(0)
                reserving.cancel()
                try:
                    messages = await reserving
                except asyncio.CancelledError:
                    continue
                found |= {message.payload for message in messages}
            found |= {message.payload for message in await consumer.reserve_many(20)}
        return found

    with Broker() as broker:
        assert asyncio.run(work(broker)) == {str(number).encode() for number in range(20)}


def test_a_cut_connection_is_heard_of_by_every_task_that_waits() -> None:
    async def work(broker: Broker) -> list[object]:
        async with AsyncSession(broker.url) as session:
            consumers = [await session.consumer_for(name) for name in "abc"]
            waiting = [asyncio.create_task(consumer.reserve(wait=PATIENCE_S)) for consumer in consumers]
            for name in "abc":
                await until_waiting(broker, name)
            broker.faults.cut_connections()
            heard = await asyncio.gather(*waiting, return_exceptions=True)
            # And then all of them share the next connection.
            assert await asyncio.gather(*[consumer.reserve() for consumer in consumers]) == [None, None, None]
            assert connection_count(broker) == 1
            return list(heard)

    with Broker() as broker:
        assert [type(one) for one in asyncio.run(work(broker))] == [ConnectionLost] * 3


def test_closing_a_session_ends_the_waits_of_its_tasks() -> None:
    async def work(broker: Broker) -> object:
        session = AsyncSession(broker.url)
        consumer = await session.consumer_for("q")
        waiting = asyncio.create_task(consumer.reserve(wait=PATIENCE_S))
        await until_waiting(broker, "q")
        await session.close()
        return (await asyncio.gather(waiting, return_exceptions=True))[0]

    with Broker() as broker:
        assert isinstance(asyncio.run(work(broker)), Closed)


def test_threads_put_and_reserve_over_one_connection_at_the_same_time() -> None:
    with Broker() as broker, Session(broker.url) as session:
        found: list[str] = []

        def consume(prefetch: int) -> None:
            consumer = session.consumer_for("q", prefetch=prefetch)
            while message := consumer.reserve(wait=PATIENCE_S):
                consumer.finalize(message)
                if message.payload == b"stop":
                    return
                found.append(message.text)

        def produce(name: str, producer: Producer) -> None:
            for number in range(60):
                producer.put(f"{name}{number}", delay=0.01 if number % 20 == 0 else None)
                producer.put(bytes(200_000) if number % 30 == 0 else b"")
            session.stats("q")

        shared = session.producer_for("q")
        consumers = [threading.Thread(target=consume, args=[prefetch]) for prefetch in (1, 1, 5)]
        producers = [threading.Thread(target=produce, args=[name, shared]) for name in "abc"]
        for thread in (*consumers, *producers):
            thread.start()
        for thread in producers:
            thread.join()
        wait_until(lambda: len(found) == 360, "everything has come")
        shared.put_many(["stop"] * 3)
        for thread in consumers:
            thread.join()
        assert sorted(filter(str.isalnum, found)) == sorted(f"{name}{number}" for name in "abc" for number in range(60))
        assert connection_count(broker) == 1


def test_a_thread_that_waits_does_not_hold_up_one_that_puts() -> None:
    with Broker() as broker, Session(broker.url) as session:
        consumer, producer = session.consumer_for("q"), session.producer_for("other")
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(consumer.reserve(wait=PATIENCE_S)))
        thread.start()
        wait_until(lambda: waiting_count(broker, "q") == 1, "the thread waits")
        for number in range(20):
            producer.put(str(number))
        assert found == []
        session.producer_for("q").put(b"enough")
        thread.join()
        assert len(found) == 1


def test_a_cut_connection_is_heard_of_by_every_thread_that_waits() -> None:
    with Broker() as broker, Session(broker.url) as session:
        heard: list[type[Exception]] = []

        def wait(name: str) -> None:
            consumer = session.consumer_for(name)
            try:
                consumer.reserve(wait=PATIENCE_S)
            except ConnectionLost as error:
                heard.append(type(error))

        threads = [threading.Thread(target=wait, args=[name]) for name in "abc"]
        for thread in threads:
            thread.start()
        for name in "abc":
            wait_until(lambda name=name: waiting_count(broker, name) == 1, "the thread waits")
        broker.faults.cut_connections()
        for thread in threads:
            thread.join()
        assert heard == [ConnectionLost] * 3
