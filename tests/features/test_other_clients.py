"""The same features through kombu and aio-pika, whose tables have other types than pika's."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
import kombu
import pytest

from tests.features.stage import FAR_MS, Stage, take
from tests.interop.deadline import wait_until

HELD = "held-exchange"


@pytest.mark.parametrize("delay", [20.5, 1.0, 20])
def test_kombu_delays_with_any_number(stage: Stage, delay: float) -> None:
    with kombu.Connection(stage.broker.url) as connection:
        exchange = kombu.Exchange("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
        queue = kombu.Queue("q", exchange, "k")
        queue.maybe_bind(connection.default_channel)
        queue.declare()
        producer = connection.Producer()
        producer.publish({"n": 1}, exchange=exchange, routing_key="k", headers={"x-delay": delay})
        for far in (1e300, FAR_MS * 1.0):
            producer.publish({"n": 2}, exchange=exchange, routing_key="k", headers={"x-delay": far})
        got: list[Any] = []
        with connection.Consumer(queue, callbacks=[lambda body, message: got.append(body)], no_ack=True):
            wait_until(lambda: got, "the delayed message", lambda: connection.drain_events(timeout=60))
        assert got == [{"n": 1}]
        assert stage.held_count(HELD, "later") == 2


@pytest.mark.parametrize("delay", [0.0, -1.5, -1e300])
def test_kombu_does_not_wait_without_a_delay(stage: Stage, delay: float) -> None:
    with kombu.Connection(stage.broker.url) as connection:
        exchange = kombu.Exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
        queue = kombu.Queue("q", exchange)
        queue.maybe_bind(connection.default_channel)
        queue.declare()
        connection.Producer().publish("x", exchange=exchange, headers={"x-delay": delay})
        channel = stage.channel()
        assert take(channel, "q")[2] == b"x"


def test_kombu_retries_and_gives_up(stage: Stage) -> None:
    with kombu.Connection(stage.broker.url) as connection:
        dead = kombu.Queue("dead")
        arguments = {
            "x-delivery-limit": 2,
            "x-delayed-retry-min": 5,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
        queue = kombu.Queue("q", queue_arguments=arguments)
        for each in (dead, queue):
            each.maybe_bind(connection.default_channel)
            each.declare()
        connection.Producer().publish("poison", routing_key="q")
        counts: list[int] = []
        dead_ones: list[Any] = []

        def fail(body: Any, message: Any) -> None:
            counts.append(message.headers.get("x-delivery-count", 0))
            message.requeue()

        with (
            connection.Consumer(queue, callbacks=[fail]),
            connection.Consumer(dead, callbacks=[lambda body, message: dead_ones.append(message)], no_ack=True),
        ):
            wait_until(lambda: dead_ones, "a dead letter", lambda: connection.drain_events(timeout=60))
        assert counts == [0, 1, 2]
        assert dead_ones[0].headers["x-death"][0]["reason"] == "delivery_limit"


def test_aio_pika_gets_nacks_from_a_full_queue_and_deduplicates(stage: Stage) -> None:
    async def scenario() -> tuple[list[bool], int, int]:
        connection = await aio_pika.connect(stage.broker.url)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            full = await channel.declare_queue("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
            dedup = await channel.declare_queue("dedup", arguments={"x-message-deduplication": True, "x-cache-size": 9})

            async def is_taken(queue: str, headers: dict[str, Any]) -> bool:
                message = aio_pika.Message(b"x", headers=headers)
                try:
                    await channel.default_exchange.publish(message, queue)
                except aio_pika.exceptions.DeliveryError:
                    return False
                return True

            taken = list(await asyncio.gather(*[is_taken("full", {}) for _ in range(4)]))
            keys = [{"x-deduplication-header": key} for key in ("a", "b", "a", 1.5, 1.5)]
            taken += list(await asyncio.gather(*[is_taken("dedup", headers) for headers in keys]))
            counts = [(await channel.declare_queue(each.name, passive=True)) for each in (full, dedup)]
            return taken, *[each.declaration_result.message_count or 0 for each in counts]  # type: ignore[return-value]

    assert asyncio.run(scenario()) == ([True, False, False, False, *[True] * 5], 1, 3)
