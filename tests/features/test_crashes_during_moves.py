"""Kill -9 while messages move: a dead letter, a released, a retried message is at one place, never at two or none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.features.stage import Stage, declare, drain, headed, persistent, ready
from tests.interop.deadline import wait_until

COUNT = 3000
BODIES = [b"%04d" % number for number in range(COUNT)]
TO_TARGET = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "target"}


def arrange_expiry(channel: BlockingChannel) -> Callable[[bytes], None]:
    """With a body of its own size each, and envelopes that change: moved in many small runs."""
    declare(channel, "source", **TO_TARGET)
    return lambda body: channel.basic_publish(
        "", "source", body, persistent(expiration="2000", message_id=str(int(body) // 7))
    )


def arrange_at_least_once(channel: BlockingChannel) -> Callable[[bytes], None]:
    declare(channel, "source", x_message_ttl=2000, x_dead_letter_strategy="at-least-once", **TO_TARGET)
    return lambda body: channel.basic_publish("", "source", body, persistent())


def arrange_delay(channel: BlockingChannel) -> Callable[[bytes], None]:
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.queue_bind("target", "later")
    return lambda body: channel.basic_publish("later", "", body, headed(x_delay=2000))


def arrange_chain(channel: BlockingChannel) -> Callable[[bytes], None]:
    """Three moves in one turn: what is dropped by the first full queue is dropped by the next."""
    declare(channel, "second", x_max_length=0, **TO_TARGET)
    declare(channel, "first", x_max_length=0, x_dead_letter_exchange="", x_dead_letter_routing_key="second")
    declare(channel, "source", x_message_ttl=2000, x_dead_letter_exchange="", x_dead_letter_routing_key="first")
    return lambda body: channel.basic_publish("", "source", body, persistent())


def total(stage: Stage) -> int:
    """Messages in all queues, companions too; moved ones that are not acknowledged yet would count twice."""
    return int(
        stage.look(lambda server: sum(queue.backing.depth() for queue in server.broker.vhosts["/"].all_queues()))
    )


@pytest.mark.parametrize("arrange", [arrange_expiry, arrange_at_least_once, arrange_delay, arrange_chain])
def test_nothing_is_lost_or_doubled_when_the_broker_dies_between_two_slices(
    durable: Stage, arrange: Callable[[BlockingChannel], Callable[[bytes], None]]
) -> None:
    channel = durable.channel(confirms=False)
    declare(channel, "target")
    publish = arrange(channel)
    channel.tx_select()
    for body in BODIES:
        publish(body)
    channel.tx_commit()
    for least in (1, 1001, 2001):
        asker = durable.channel()
        wait_until(
            lambda asker=asker, least=least: ready(asker, "target") >= least, f"{least} have moved", lambda: None
        )
        durable.kill_and_start()
        assert total(durable) == COUNT, f"after the kill behind {least}"
    channel = durable.channel()
    wait_until(lambda: ready(channel, "target") == COUNT, "all have moved")
    assert sorted(drain(channel, "target")) == BODIES


def test_letters_that_nobody_takes_are_kept_over_a_crash_and_arrive_once(durable: Stage) -> None:
    channel = durable.channel()
    declare(channel, "target", x_max_length=10, x_overflow="reject-publish")
    declare(channel, "source", x_message_ttl=1, x_dead_letter_strategy="at-least-once", **TO_TARGET)
    for body in BODIES[:25]:
        channel.basic_publish("", "source", body, persistent())
    wait_until(lambda: ready(channel, "target") == 10, "the target is full")
    for _ in range(2):
        durable.kill_and_start()
        assert total(durable) == 25
    channel = durable.channel()
    bodies: list[bytes] = []
    wait_until(lambda: bodies.extend(drain(channel, "target")) or len(bodies) >= 25, "all have arrived")
    assert sorted(bodies) == BODIES[:25]
    wait_until(lambda: total(durable) == 0, "the source has let go")


def test_rejected_messages_are_at_one_place_after_a_crash(durable: Stage) -> None:
    channel = durable.channel(confirms=False)
    declare(channel, "target")
    declare(channel, "source", **TO_TARGET)
    channel.tx_select()
    for body in BODIES[:200]:
        channel.basic_publish("", "source", body, persistent())
    channel.tx_commit()
    for stop in (50, 100, 150):
        channel = durable.channel(confirms=False)
        while ready(channel, "target") < stop:
            method, _, _ = channel.basic_get("source")
            channel.basic_reject(method.delivery_tag, requeue=False)
        durable.kill_and_start()
        assert total(durable) == 200
    channel = durable.channel()
    assert sorted(drain(channel, "target") + drain(channel, "source")) == BODIES[:200]


def test_retried_messages_are_at_one_place_after_a_crash(durable: Stage) -> None:
    channel = durable.channel(confirms=False)
    declare(channel, "target")
    declare(channel, "source", x_delayed_retry_min=1, x_delivery_limit=3, **TO_TARGET)
    channel.tx_select()
    for body in BODIES[:100]:
        channel.basic_publish("", "source", body, persistent())
    channel.tx_commit()
    for stop in (1, 30, 60):
        channel = durable.channel(confirms=False)
        while ready(channel, "target") < stop:
            method, _, _ = channel.basic_get("source")
            if method is not None:
                channel.basic_nack(method.delivery_tag, requeue=True)
        durable.kill_and_start()
        assert total(durable) == 100
    channel = durable.channel()

    def empty_source() -> bool:
        bodies.extend(drain(channel, "source"))
        return len(bodies) + ready(channel, "target") == 100

    bodies: list[bytes] = []
    wait_until(empty_source, "all are back")
    assert sorted(drain(channel, "target") + bodies) == BODIES[:100]


def test_a_message_and_its_key_are_both_there_after_a_crash_or_neither_is(durable: Stage) -> None:
    """Without waiting for confirms: whatever was on its way is lost or kept, with its key."""
    sent = 0
    for _ in range(4):
        channel = durable.channel(confirms=False)
        declare(channel, "q", x_message_deduplication=True, x_cache_size=100_000)
        for _ in range(1500):
            channel.basic_publish("", "q", b"%d" % sent, headed(x_deduplication_header=sent))
            sent += 1
        durable.kill_and_start()
        assert durable.held_count("dedup", "q") == durable.queue("q", lambda queue: queue.backing.depth())
    channel = durable.channel()
    for number in range(sent):
        channel.basic_publish("", "q", b"%d" % number, headed(x_deduplication_header=number))
    assert sorted(map(int, drain(channel, "q"))) == list(range(sent))
