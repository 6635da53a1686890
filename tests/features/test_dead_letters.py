"""Dead letters: every reason, full and missing targets, chains and rings, and many at once."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock.queues.leaving import dead_letter_retry as dead_letter_retry
from tests.features.stage import (
    FAR_MS,
    Stage,
    deaths,
    declare,
    drain,
    drain_until,
    is_taken,
    numbered,
    publish,
    ready,
    take,
    wait_for_ready,
)
from tests.interop.deadline import wait_until

TO_DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
AT_LEAST_ONCE = {**TO_DEAD, "x_dead_letter_strategy": "at-least-once"}
OFFER_MS = 100


@pytest.fixture(autouse=True)
def _offered_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a target refuses is offered again ten times as often: many tests here wait for that."""
    monkeypatch.setattr(dead_letter_retry, "RETRY_MS", OFFER_MS)


def test_a_message_dies_for_each_reason(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead")
    declare(channel, "expired", x_message_ttl=1, **TO_DEAD)
    declare(channel, "maxlen", x_max_length=0, **TO_DEAD)
    declare(channel, "rejected", **TO_DEAD)
    declare(channel, "delivery_limit", x_delivery_limit=0, **TO_DEAD)
    for queue in ("expired", "maxlen", "rejected", "delivery_limit"):
        publish(channel, queue, queue.encode())
    channel.basic_reject(take(channel, "rejected", ack=False)[0].delivery_tag, requeue=False)
    channel.basic_nack(take(channel, "delivery_limit", ack=False)[0].delivery_tag, requeue=True)
    wait_for_ready(channel, "dead", 4)
    found = [take(channel, "dead") for _ in range(4)]
    assert sorted(deaths(properties)[0] for _, properties, _ in found) == sorted(
        (body.decode(), body.decode(), 1) for _, _, body in found
    )


def test_a_whole_run_that_is_rejected_arrives_in_order(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead")
    declare(channel, "q", **TO_DEAD)
    publish(channel, "q", *numbered(0, 20))
    tags = [take(channel, "q", ack=False)[0].delivery_tag for _ in range(20)]
    channel.basic_nack(tags[-1], multiple=True, requeue=False)
    assert drain_until(channel, "dead", 20) == numbered(0, 20)


def test_without_the_exchange_a_dead_letter_is_dropped(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_message_ttl=1, x_dead_letter_exchange="nowhere")
    publish(channel, "q", b"gone")
    wait_until(lambda: either.queue("q", lambda queue: queue.backing.depth()) == 0, "it is gone")


def test_at_least_once_keeps_what_a_full_target_refuses_until_there_is_room(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead", x_max_length=2, x_overflow="reject-publish")
    declare(channel, "q", x_message_ttl=1, **AT_LEAST_ONCE)
    publish(channel, "q", *numbered(0, 5))
    wait_for_ready(channel, "dead", 2)
    # Neither ready nor lost.
    wait_until(lambda: ready(channel, "q") == 0, "all have died")
    assert either.queue("q", lambda queue: queue.backing.depth()) == 3
    bodies = drain_until(channel, "dead", 5)
    assert bodies == numbered(0, 5)
    wait_until(lambda: either.queue("q", lambda queue: queue.backing.depth()) == 0, "the source has let go")


def test_at_most_once_loses_what_a_full_target_refuses(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead", x_max_length=2, x_overflow="reject-publish")
    declare(channel, "q", x_message_ttl=1, **TO_DEAD)
    publish(channel, "q", *numbered(0, 5))
    wait_until(lambda: either.queue("q", lambda queue: queue.backing.depth()) == 0, "the source has let go")
    assert drain(channel, "dead") == numbered(0, 2)


def test_at_least_once_waits_for_an_exchange_that_is_not_there_yet(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_dead_letter_exchange="later", x_dead_letter_strategy="at-least-once")
    publish(channel, "q", b"rejected")
    channel.basic_reject(take(channel, "q", ack=False)[0].delivery_tag, requeue=False)
    publish(channel, "q", b"expired", expiration="1")
    wait_for_ready(channel, "q", 0)
    assert either.queue("q", lambda queue: queue.backing.depth()) == 2
    channel.exchange_declare("later", "fanout", durable=True)
    declare(channel, "dead")
    channel.queue_bind("dead", "later")
    wait_for_ready(channel, "dead", 2)
    found = [take(channel, "dead") for _ in range(2)]
    # Each has died once, however often it was offered.
    assert sorted(deaths(properties)[0] for _, properties, _ in found) == [("q", "expired", 1), ("q", "rejected", 1)]
    wait_until(lambda: either.queue("q", lambda queue: queue.backing.depth()) == 0, "the source has let go")


def test_at_least_once_waits_for_a_binding_and_does_not_let_others_wait(either: Stage) -> None:
    channel = either.channel()
    channel.exchange_declare("dlx", "direct", durable=True)
    declare(channel, "dead")
    channel.queue_bind("dead", "dlx", "has")
    for key in ("has", "not"):
        declare(
            channel,
            key,
            x_message_ttl=1,
            x_dead_letter_exchange="dlx",
            x_dead_letter_strategy="at-least-once",
            x_dead_letter_routing_key=key,
        )
    publish(channel, "not", b"waits")
    publish(channel, "has", b"passes")
    assert take(channel, "dead")[2] == b"passes"
    channel.queue_bind("dead", "dlx", "not")
    assert take(channel, "dead")[2] == b"waits"


def test_at_least_once_to_several_queues_gives_each_of_them_one_copy(either: Stage) -> None:
    """While one of them is full none gets it; offering again must not fill the others with copies."""
    channel = either.channel()
    declare(channel, "roomy")
    declare(channel, "full", x_max_length=1, x_overflow="reject-publish")
    for queue in ("roomy", "full"):
        channel.queue_bind(queue, "amq.fanout")
    declare(
        channel,
        "q",
        x_message_ttl=1,
        x_dead_letter_exchange="amq.fanout",
        x_dead_letter_strategy="at-least-once",
    )
    publish(channel, "q", *numbered(0, 3))
    wait_for_ready(channel, "full", 1)
    # Two offers later.
    declare(channel, "clock", x_expires=OFFER_MS * 5 // 2)
    wait_until(lambda: "clock" not in either.look(lambda server: server.broker.vhosts["/"].queues), "time has passed")
    assert ready(channel, "roomy") == 1
    assert drain_until(channel, "full", 3) == numbered(0, 3)
    assert drain_until(channel, "roomy", 3) == numbered(0, 3)


def test_at_most_once_to_several_queues_reaches_those_with_room(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "full", x_max_length=0, x_overflow="reject-publish")
    declare(channel, "roomy")
    for queue in ("full", "roomy"):
        channel.queue_bind(queue, "amq.fanout")
    declare(channel, "q", x_message_ttl=1, x_dead_letter_exchange="amq.fanout")
    publish(channel, "q", *numbered(0, 3))
    assert drain_until(channel, "roomy", 3) == numbered(0, 3)


def test_at_least_once_to_a_queue_that_sends_on_what_it_refuses_arrives_once(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "end")
    declare(
        channel,
        "dead",
        x_max_length=1,
        x_overflow="reject-publish-dlx",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="end",
    )
    declare(channel, "q", x_message_ttl=1, **AT_LEAST_ONCE)
    publish(channel, "q", *numbered(0, 4))
    declare(channel, "clock", x_expires=OFFER_MS * 5 // 2)
    wait_until(lambda: "clock" not in either.look(lambda server: server.broker.vhosts["/"].queues), "time has passed")
    assert (drain(channel, "dead"), drain(channel, "end")) == (numbered(0, 1), numbered(1, 4))
    assert either.queue("q", lambda queue: queue.backing.depth()) == 0


def test_at_least_once_into_a_full_queue_that_keeps_its_own_dead_letters_waits_at_its_source(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "end", x_max_length=1, x_overflow="reject-publish")
    declare(
        channel,
        "dead",
        x_max_length=1,
        x_overflow="reject-publish-dlx",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="end",
        x_dead_letter_strategy="at-least-once",
    )
    declare(channel, "q", x_message_ttl=1, **AT_LEAST_ONCE)
    publish(channel, "end", b"full")
    publish(channel, "q", *numbered(0, 4))
    wait_until(lambda: ready(channel, "q") == 0, "all have died")
    wait_for_ready(channel, "dead", 1)
    assert either.queue("q", lambda queue: queue.backing.depth()) == 3
    assert drain_until(channel, "dead", 4) == numbered(0, 4)
    assert drain(channel, "end") == [b"full"]


def test_what_waits_for_its_target_goes_with_its_queue(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_message_ttl=1, x_dead_letter_exchange="nowhere", x_dead_letter_strategy="at-least-once")
    publish(channel, "q", b"waits")
    wait_for_ready(channel, "q", 0)
    channel.queue_delete("q")
    declare(channel, "q")
    assert drain(channel, "q") == []


def chain(channel: BlockingChannel, length: int, is_ring: bool) -> None:
    for number in range(length):
        target = (number + 1) % length if is_ring else number + 1
        declare(
            channel,
            f"q{number}",
            x_message_ttl=1,
            x_dead_letter_exchange="",
            x_dead_letter_routing_key=f"q{target}",
        )


def test_a_message_goes_down_a_chain_of_fifty_queues(either: Stage) -> None:
    channel = either.channel()
    chain(channel, 50, is_ring=False)
    declare(channel, "q50")
    publish(channel, "q0", *numbered(0, 3))
    wait_for_ready(channel, "q50", 3)
    _, properties, body = take(channel, "q50")
    assert body == b"0"
    assert sorted(deaths(properties)) == sorted((f"q{number}", "expired", 1) for number in range(50))


def test_a_ring_of_fifty_queues_comes_to_an_end(either: Stage) -> None:
    channel = either.channel()
    chain(channel, 50, is_ring=True)
    publish(channel, "q0", *numbered(0, 3))

    def depth() -> int:
        return int(
            either.look(
                lambda server: sum(queue.backing.depth() for queue in server.broker.vhosts["/"].queues.values())
            )
        )

    wait_until(lambda: depth() == 0, "the ring is empty")


@pytest.mark.parametrize("overflow", ["drop-head", "ring", "reject-publish-dlx"])
def test_a_ring_of_fifty_full_queues_does_not_recurse(either: Stage, overflow: str) -> None:
    channel = either.channel()
    for number in range(50):
        declare(
            channel,
            f"q{number}",
            x_max_length=1,
            x_overflow=overflow,
            x_dead_letter_exchange="",
            x_dead_letter_routing_key=f"q{(number + 1) % 50}",
        )
    for body in numbered(0, 60):
        is_taken(channel, "", "q0", body)
    counts = [ready(channel, f"q{number}") for number in range(50)]
    assert set(counts) == {1}
    bodies = [drain(channel, f"q{number}")[0] for number in range(50)]
    assert len(set(bodies)) == 50


def test_a_queue_whose_dead_come_back_to_itself_drops_them(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    publish(channel, "q", b"round")
    wait_until(lambda: either.queue("q", lambda queue: queue.backing.depth()) == 0, "it is gone")


def expect_answers_while_many_expire(stage: Stage, strategy: str) -> None:
    """Twenty slices of what is moved at once (`head_expiry.DEAD_AT_ONCE`)."""
    count = 20_000
    # A transaction, so that all come in the same moment, and expire in the same: only slices stand between them.
    channel = stage.channel(confirms=False)
    declare(channel, "dead")
    # Long enough for the commit to be answered before.
    declare(channel, "q", x_message_ttl=2000, **{**TO_DEAD, "x_dead_letter_strategy": strategy})
    declare(channel, "other")
    asker = stage.channel()
    channel.tx_select()
    publish(channel, "q", *numbered(0, count))
    publish(channel, "other", b"x")
    seen: set[int] = set()

    def look() -> bool:
        """Each answer comes between two slices: it shows how far they have got."""
        seen.add(ready(asker, "dead"))
        return count in seen

    channel.tx_commit()
    wait_until(look, "all have died", lambda: None, timeout_s=120)
    assert len([number for number in seen if 0 < number < count]) >= 10
    assert drain(channel, "other") == [b"x"]
    assert stage.queue("q", lambda queue: queue.backing.depth()) == 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["at-most-once", "at-least-once"])
def test_the_broker_answers_while_twenty_thousand_messages_expire_at_once(stage: Stage, strategy: str) -> None:
    expect_answers_while_many_expire(stage, strategy)


@pytest.mark.slow
def test_the_broker_answers_while_as_many_messages_on_disk_expire_at_once(durable: Stage) -> None:
    expect_answers_while_many_expire(durable, "at-least-once")


def test_three_thousand_letters_that_nobody_takes_leave_in_slices_when_somebody_does(either: Stage) -> None:
    channel = either.channel(confirms=False)
    declare(channel, "q", x_message_ttl=1, x_dead_letter_exchange="later", x_dead_letter_strategy="at-least-once")
    bodies = [b"%04d" % number for number in range(3000)]
    publish(channel, "q", *bodies)
    wait_until(lambda: either.queue("q", lambda queue: len(queue.backing)) == 0, "all have died")
    channel.exchange_declare("later", "fanout", durable=True)
    declare(channel, "dead")
    channel.queue_bind("dead", "later")
    wait_for_ready(channel, "dead", 3000)
    assert sorted(drain(channel, "dead")) == bodies
    assert either.queue("q", lambda queue: queue.backing.depth()) == 0


def test_a_letter_keeps_its_properties_but_not_its_expiration(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead")
    declare(channel, "q", **TO_DEAD)
    sent = pika.BasicProperties(
        delivery_mode=2, expiration="5", priority=3, message_id="m", correlation_id="c", headers={"own": "h"}
    )
    channel.basic_publish("", "q", b"x", sent)
    _, got, _ = take(channel, "dead")
    assert (got.priority, got.message_id, got.correlation_id, got.delivery_mode) == (3, "m", "c", 2)
    assert got.expiration is None
    assert got.headers["own"] == "h"
    assert got.headers["x-death"][0]["original-expiration"] == "5"
    publish(channel, "q", b"far", expiration=str(FAR_MS))
    assert ready(channel, "q") == 1
