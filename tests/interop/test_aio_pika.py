"""aio-pika: messages, confirms, transactions, errors, its RPC and worker patterns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import (
    AMQPError,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    MessageProcessError,
    ProbableAuthenticationError,
    PublishError,
)
from aio_pika.patterns import JsonMaster, JsonRPC
from aiormq.exceptions import ChannelLockedResource
from yarl import URL

from tests.interop.fixture_types import Name


def on_loop(test: Coroutine[Any, Any, None]) -> None:
    """Run the test on a loop of its own, and let aiormq finish its closing tasks before the loop ends."""

    async def run() -> None:
        own = asyncio.all_tasks()
        await test
        while asyncio.all_tasks() - own:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_the_queue_iterator_hands_out_messages_and_acks_them(broker_url: str) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=2)
            queue = await channel.declare_queue(exclusive=True)
            for number in range(10):
                await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), queue.name)
            received = []
            async with queue.iterator(timeout=60) as messages:
                async for message in messages:
                    async with message.process():
                        received.append(int(message.body))
                    if len(received) == 10:
                        break
            assert received == list(range(10))
            assert (await channel.declare_queue(queue.name, passive=True)).declaration_result.message_count == 0

    on_loop(scenario())


def test_every_property_and_header_comes_back_as_it_was_sent(broker_url: str) -> None:
    headers = {
        "text": "grün",
        "bytes": bytearray(b"\x00\xff"),
        "true": True,
        "small": 7,
        "negative": -300,
        "long": 2**40,
        "float": 1.5,
        "decimal": Decimal("3.14"),
        "time": datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
        "nothing": None,
        "table": {"inner": {"deeper": [1, {"x": "y"}]}},
        "array": ["a", 1, True, None, {"k": "v"}, []],
    }
    sent = aio_pika.Message(
        b"{}",
        headers=headers,
        content_type="application/json",
        content_encoding="utf-8",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        priority=5,
        correlation_id="corr",
        reply_to="reply.queue",
        expiration=timedelta(seconds=600),
        message_id="m-1",
        timestamp=datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
        type="greeting",
        user_id="guest",
        app_id="interop",
    )

    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(sent, queue.name)
            received = await queue.get(no_ack=True)
            assert received.headers == headers
            assert received.properties == sent.properties

    on_loop(scenario())


@pytest.mark.parametrize("size_bytes", [0, 1, 131072, 1 << 20, 20 << 20])
def test_bodies_of_any_size_arrive_whole(broker_url: str, size_bytes: int) -> None:
    body = os.urandom(size_bytes)

    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(body), queue.name)
            assert (await queue.get(no_ack=True, timeout=60)).body == body

    on_loop(scenario())


def test_a_thousand_publishes_at_once_are_all_confirmed(broker_url: str) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            publishes = [
                channel.default_exchange.publish(aio_pika.Message(b"%d" % number), queue.name) for number in range(1000)
            ]
            await asyncio.gather(*publishes)
            again = await channel.declare_queue(queue.name, passive=True)
            assert again.declaration_result.message_count == 1000

    on_loop(scenario())


def test_an_unroutable_mandatory_message_raises_or_is_returned(broker_url: str, name: Name) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            raising = await connection.channel(on_return_raises=True)
            with pytest.raises(PublishError):
                await raising.default_exchange.publish(aio_pika.Message(b"lost"), name("nowhere"))
            silent = await connection.channel()
            returned: list[AbstractIncomingMessage] = []
            silent.return_callbacks.add(lambda _channel, message: returned.append(message))
            await silent.default_exchange.publish(aio_pika.Message(b"back"), name("nowhere"))
            assert [message.body for message in returned] == [b"back"]

    on_loop(scenario())


def test_a_transaction_is_rolled_back_when_its_block_fails(broker_url: str) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(exclusive=True)

            async def fail_inside() -> None:
                async with channel.transaction():
                    await channel.default_exchange.publish(aio_pika.Message(b"no"), queue.name)
                    raise LookupError

            with pytest.raises(LookupError):
                await fail_inside()
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"yes"), queue.name)
            assert (await queue.get(no_ack=True, timeout=60)).body == b"yes"
            assert await queue.get(fail=False) is None

    on_loop(scenario())


def test_a_rejected_message_comes_back_and_an_ignored_one_does_not(broker_url: str) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)
            first = await queue.get()
            await first.reject(requeue=True)
            second = await queue.get(timeout=60)
            assert (second.redelivered, second.body) == (True, b"x")
            await second.nack(requeue=False)
            assert await queue.get(fail=False) is None

    on_loop(scenario())


def test_exchanges_bind_to_queues_and_to_each_other(broker_url: str, name: Name) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            topic = await channel.declare_exchange(name("t"), aio_pika.ExchangeType.TOPIC, auto_delete=True)
            headers = await channel.declare_exchange(name("h"), aio_pika.ExchangeType.HEADERS, auto_delete=True)
            queue = await channel.declare_queue(exclusive=True)
            await headers.bind(topic, "a.#")
            await queue.bind(headers, arguments={"x-match": "any", "colour": "red", "size": 1})
            for key, colour in (("a.b", "red"), ("a", "blue"), ("b", "red"), ("a.c.d", "red")):
                await topic.publish(aio_pika.Message(key.encode(), headers={"colour": colour}), key, mandatory=False)
            assert [(await queue.get(no_ack=True)).body for _ in range(2)] == [b"a.b", b"a.c.d"]
            assert await queue.get(fail=False) is None

    on_loop(scenario())


def test_broker_errors_become_the_matching_exceptions(broker_url: str, name: Name) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as one, await aio_pika.connect(broker_url) as two:
            channel = await one.channel()
            await channel.declare_queue(name(), exclusive=True)
            with pytest.raises(ChannelLockedResource):
                await (await two.channel()).declare_queue(name(), passive=True)
            with pytest.raises(ChannelNotFoundEntity):
                await (await two.channel()).declare_queue(name("missing"), passive=True)
            closed = await one.channel()
            with pytest.raises(ChannelPreconditionFailed):
                await closed.declare_queue(name(), exclusive=True, auto_delete=True)
            with pytest.raises(ChannelInvalidStateError):
                await closed.default_exchange.publish(aio_pika.Message(b""), "anywhere")

    on_loop(scenario())


def test_a_wrong_password_and_an_unknown_vhost_are_refused(broker_url: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ProbableAuthenticationError):
            await aio_pika.connect(broker_url.replace("guest:guest@", "guest:wrong@"))
        with pytest.raises(AMQPError):
            await aio_pika.connect(URL(broker_url).with_path("/no-such-vhost"))

    on_loop(scenario())


def test_a_deleted_queue_cancels_its_consumer(broker_url: str, name: Name) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as one, await aio_pika.connect(broker_url) as two:
            await (await one.channel()).declare_queue(name())
            underlay = await (await one.channel()).get_underlay_channel()
            await underlay.basic_consume(name(), lambda _message: asyncio.sleep(0), consumer_tag="watched")
            await (await two.channel()).queue_delete(name())
            while "watched" in underlay.consumers:
                await asyncio.sleep(0.01)
            assert not underlay.is_closed

    on_loop(scenario())


def test_update_secret_is_answered(broker_url: str) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            answer = await connection.update_secret("guest", reason="rotation")
            assert answer.name == "Connection.UpdateSecretOk"

    on_loop(scenario())


def test_the_rpc_pattern_returns_results_and_errors(broker_url: str, name: Name) -> None:
    async def multiply(*, x: int, y: int) -> int:
        return x * y

    async def broken() -> None:
        raise ValueError("no")

    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as server, await aio_pika.connect(broker_url) as client:
            serving = await JsonRPC.create(await server.channel())
            await serving.register(name("multiply"), multiply, auto_delete=True)
            await serving.register(name("broken"), broken, auto_delete=True)
            asking = await JsonRPC.create(await client.channel())
            calls = [asking.call(name("multiply"), {"x": n, "y": 3}) for n in range(50)]
            assert await asyncio.gather(*calls) == [n * 3 for n in range(50)]
            with pytest.raises(RuntimeError, match="no"):
                await asking.call(name("broken"))
            with pytest.raises(MessageProcessError, match="Message has been returned"):
                await asking.call(name("nobody serves this"), expiration=10)
            await asking.close()
            await serving.close()

    on_loop(scenario())


def test_the_worker_pattern_gives_every_task_to_one_worker(broker_url: str, name: Name) -> None:
    done: list[int] = []

    async def work(*, task_id: int) -> None:
        done.append(task_id)

    async def scenario() -> None:
        async with await aio_pika.connect(broker_url) as connection:
            master = JsonMaster(await connection.channel())
            workers = [await master.create_worker(name("work"), work, auto_delete=True) for _ in range(3)]
            for task_id in range(30):
                await master.create_task(name("work"), {"task_id": task_id})
            while len(done) < 30:
                await asyncio.sleep(0.01)
            for worker in workers:
                await worker.close()

    on_loop(scenario())
    assert sorted(done) == list(range(30))
