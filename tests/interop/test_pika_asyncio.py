"""pika's AsyncioConnection: the same broker seen through futures on an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError

from tests.interop.fixture_types import Name


async def answer(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the broker answers to a call that takes a callback."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    call(*args, callback=lambda *values: future.set_result(values[0] if len(values) == 1 else values), **kwargs)
    return await asyncio.wait_for(future, 20)


@asynccontextmanager
async def open_connection(url: str, **overrides: Any) -> AsyncIterator[AsyncioConnection]:
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[AsyncioConnection] = loop.create_future()
    closed: asyncio.Future[BaseException] = loop.create_future()
    params = pika.URLParameters(url)
    for key, value in overrides.items():
        setattr(params, key, value)
    connection = AsyncioConnection(
        params,
        on_open_callback=opened.set_result,
        on_open_error_callback=lambda _c, error: opened.set_exception(error),
        on_close_callback=lambda _c, reason: closed.set_result(reason),
        custom_ioloop=loop,
    )
    await asyncio.wait_for(opened, 20)
    yield connection
    if connection.is_open:
        connection.close()
    await asyncio.wait_for(closed, 20)


async def open_channel(connection: AsyncioConnection) -> Channel:
    opened: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()
    connection.channel(on_open_callback=opened.set_result)
    return await asyncio.wait_for(opened, 20)


def on_loop(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def test_messages_go_round_with_acks_nacks_and_redelivery(broker_url: str) -> None:
    async def scenario() -> None:
        async with open_connection(broker_url) as connection:
            channel = await open_channel(connection)
            queue = (await answer(channel.queue_declare, "", exclusive=True)).method.queue
            inbox: asyncio.Queue[tuple[Any, bytes]] = asyncio.Queue()
            channel.basic_consume(queue, lambda _c, method, _p, body: inbox.put_nowait((method, body)))
            for body in (b"keep", b"again"):
                channel.basic_publish("", queue, body)
            (first, one), (second, two) = await inbox.get(), await inbox.get()
            assert (one, two) == (b"keep", b"again")
            channel.basic_ack(first.delivery_tag)
            channel.basic_nack(second.delivery_tag, requeue=True)
            third, body = await inbox.get()
            assert (third.redelivered, body, third.delivery_tag) == (True, b"again", 3)
            channel.basic_reject(third.delivery_tag, requeue=False)
            left = await answer(channel.queue_declare, queue, passive=True)
            assert left.method.message_count == 0

    on_loop(scenario())


def test_ten_channels_of_one_connection_publish_with_confirms_at_once(broker_url: str) -> None:
    async def publish(connection: AsyncioConnection, queue: str) -> None:
        channel = await open_channel(connection)
        done = asyncio.Event()
        await answer(channel.confirm_delivery, lambda f: f.method.delivery_tag == 200 and done.set())
        for number in range(200):
            channel.basic_publish("", queue, b"%d" % number)
        await done.wait()

    async def scenario() -> None:
        async with open_connection(broker_url) as connection:
            channel = await open_channel(connection)
            queue = (await answer(channel.queue_declare, "", exclusive=True)).method.queue
            await asyncio.gather(*(publish(connection, queue) for _ in range(10)))
            left = await answer(channel.queue_declare, queue, passive=True)
            assert left.method.message_count == 2000

    on_loop(scenario())


def test_a_direct_reply_to_rpc_between_two_connections(broker_url: str, name: Name) -> None:
    async def scenario() -> None:
        async with open_connection(broker_url) as here, open_connection(broker_url) as there:
            queue = name("rpc")
            server, client = await open_channel(there), await open_channel(here)
            await answer(server.queue_declare, queue, exclusive=True)

            def serve(_ch: Channel, _method: Any, properties: pika.BasicProperties, body: bytes) -> None:
                back = pika.BasicProperties(correlation_id=properties.correlation_id)
                server.basic_publish("", properties.reply_to, body.upper(), back)

            server.basic_consume(queue, serve, auto_ack=True)
            replies: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
            client.basic_consume(
                "amq.rabbitmq.reply-to",
                lambda _c, _m, p, body: replies.put_nowait((p.correlation_id, body)),
                auto_ack=True,
            )
            asked = {f"c{n}": b"question %d" % n for n in range(50)}
            for correlation_id, body in asked.items():
                properties = pika.BasicProperties(correlation_id=correlation_id, reply_to="amq.rabbitmq.reply-to")
                client.basic_publish("", queue, body, properties)
            answered = dict([await replies.get() for _ in asked])
            assert answered == {key: body.upper() for key, body in asked.items()}

    on_loop(scenario())


def test_a_channel_error_leaves_the_other_channels_alone(broker_url: str, name: Name) -> None:
    async def scenario() -> None:
        async with open_connection(broker_url) as connection:
            broken, sound = await open_channel(connection), await open_channel(connection)
            reason: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
            broken.add_on_close_callback(lambda _ch, why: reason.set_result(why))
            broken.queue_declare(name("missing"), passive=True)
            why = await reason
            assert isinstance(why, ChannelClosedByBroker)
            assert why.reply_code == 404
            assert (await answer(sound.queue_declare, "", exclusive=True)).method.queue

    on_loop(scenario())


def test_update_secret_is_answered(broker_url: str) -> None:
    async def scenario() -> None:
        async with open_connection(broker_url) as connection:
            frame = await answer(connection.update_secret, "guest", "rotation")
            assert frame.method.NAME == "Connection.UpdateSecretOk"

    on_loop(scenario())


def test_an_unknown_vhost_is_a_probable_access_denied_error(broker_url: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ProbableAccessDeniedError):
            async with open_connection(broker_url, virtual_host="no-such-vhost"):
                pytest.fail("the connection opened")

    on_loop(scenario())
