"""How clients see faults that penstock's test broker can produce: cuts, refused confirms, a stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import aio_pika
import pika
import pytest
from aio_pika.exceptions import DeliveryError
from pika.exceptions import NackError

if TYPE_CHECKING:
    from penstock.testing import Broker


@pytest.fixture
def faulty_broker() -> Iterator[Broker]:
    if os.environ.get("PENSTOCK_TEST_BROKER_URL"):
        pytest.skip("faults are a feature of penstock's test broker, and another broker is under test")
    from penstock.testing import Broker

    with Broker() as broker:
        yield broker


def test_a_robust_connection_comes_back_with_its_queue_binding_and_consumer(faulty_broker: Broker) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with message.process():
            received.put_nowait(message.body)

    async def scenario() -> None:
        connection = await aio_pika.connect_robust(faulty_broker.url, reconnect_interval=0.05)
        reconnected = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: reconnected.set())
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=5)
            exchange = await channel.declare_exchange("events", aio_pika.ExchangeType.TOPIC)
            queue = await channel.declare_queue("robust", exclusive=True)
            await queue.bind(exchange, "a.#")
            await queue.consume(on_message)
            await exchange.publish(aio_pika.Message(b"before"), "a.b")
            assert await received.get() == b"before"
            cut = await asyncio.to_thread(faulty_broker.faults.cut_connections)
            assert cut == 1
            await reconnected.wait()
            await exchange.publish(aio_pika.Message(b"after"), "a.c")
            assert await received.get() == b"after"

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_an_unacked_message_is_redelivered_after_a_cut(faulty_broker: Broker) -> None:
    lost = pika.BlockingConnection(pika.URLParameters(faulty_broker.url))
    channel = lost.channel()
    channel.queue_declare("work")
    channel.confirm_delivery()
    channel.basic_publish("", "work", b"job")
    assert channel.basic_get("work")[2] == b"job"
    faulty_broker.faults.cut_connections()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        lost.process_data_events(time_limit=10)
    back = pika.BlockingConnection(pika.URLParameters(faulty_broker.url))
    method, _, body = back.channel().basic_get("work")
    assert (method.redelivered, body) == (True, b"job")
    back.close()


def test_a_refused_confirm_is_a_nack_error_in_pika_and_a_delivery_error_in_aio_pika(
    faulty_broker: Broker,
) -> None:
    async def publish() -> None:
        async with await aio_pika.connect(faulty_broker.url) as connection:
            channel = await connection.channel()
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(aio_pika.Message(b"no"), "work")

    connection = pika.BlockingConnection(pika.URLParameters(faulty_broker.url))
    channel = connection.channel()
    channel.queue_declare("work")
    channel.confirm_delivery()
    with faulty_broker.faults.refused_confirms():
        with pytest.raises(NackError):
            channel.basic_publish("", "work", b"no")
        asyncio.run(asyncio.wait_for(publish(), 30))
    channel.basic_publish("", "work", b"yes")
    assert channel.basic_get("work", auto_ack=True)[2] == b"yes"
    assert channel.queue_declare("work", passive=True).method.message_count == 0
    connection.close()


def test_a_broker_that_stops_tells_its_clients_connection_forced(faulty_broker: Broker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(faulty_broker.url))
    faulty_broker.stop()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=10)
    assert closed.value.reply_code == 320
    assert closed.value.reply_text.startswith("CONNECTION_FORCED")
