"""Policies that are set while queues are in use: with messages in them, consumers, deliveries that are not settled."""

from __future__ import annotations

import threading
from typing import Any

from penstock.broker.operations.actor import owner
from penstock.broker.operations.perform import Answer, Performer
from penstock.broker.operations.table import OPERATIONS
from penstock.server.server import Server
from tests.features.conftest import Restart
from tests.features.stage import (
    FAR_MS,
    Stage,
    deaths,
    declare,
    drain,
    drain_until,
    headed,
    is_returned,
    is_taken,
    numbered,
    persistent,
    publish,
    ready,
    take,
    wait_for_ready,
)
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import Inbox


def ask(stage: Stage, operation: str, **arguments: Any) -> Any:
    """Perform an operation as the owner of the broker; returns its result, waited for."""
    answers: list[Answer] = []
    came = threading.Event()

    def answered(answer: Answer) -> None:
        answers.append(answer)
        came.set()

    def work(server: Server) -> None:
        Performer(server.broker, OPERATIONS).perform(owner("test"), operation, arguments, answered)

    stage.look(work)
    assert came.wait(30)
    if answers[0].error is not None:
        raise answers[0].error
    return answers[0].result


def set_policy(stage: Stage, name: str = "p", pattern: str = "^q$", **definition: Any) -> None:
    """Underscores for dashes: max_length is max-length."""
    named = {key.replace("_", "-"): value for key, value in definition.items()}
    ask(stage, "set_policy", name=name, pattern=pattern, definition=named)


def clear_policy(stage: Stage, name: str = "p") -> None:
    ask(stage, "clear_policy", name=name)


def test_a_limit_makes_room_at_once_and_the_dead_go_where_the_policy_says(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    declare(channel, "dead")
    publish(channel, "q", *numbered(0, 10))
    set_policy(either, max_length=3, dead_letter_exchange="", dead_letter_routing_key="dead")
    wait_for_ready(channel, "q", 3)
    wait_for_ready(channel, "dead", 7)
    publish(channel, "q", b"10")
    assert drain(channel, "q") == [b"8", b"9", b"10"]
    assert drain_until(channel, "dead", 8) == numbered(0, 8)
    clear_policy(either)
    publish(channel, "q", *numbered(0, 10))
    assert drain(channel, "q") == numbered(0, 10)


def test_very_many_messages_too_many_leave_in_slices(stage: Stage) -> None:
    channel = stage.channel()
    declare(channel, "q")
    publish(channel, "q", *numbered(0, 2000))
    set_policy(stage, max_length=10)
    wait_for_ready(channel, "q", 10)
    assert drain(channel, "q") == numbered(1990, 2000)


def test_deliveries_that_are_not_settled_stay_and_come_back_in_order(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    publish(channel, "q", *numbered(0, 6))
    tags = [take(channel, "q", ack=False)[0].delivery_tag for _ in range(3)]
    set_policy(either, max_length=100, message_ttl=FAR_MS, delivery_limit=5, expires=FAR_MS, queue_mode="lazy")
    channel.basic_nack(tags[-1], multiple=True, requeue=True)
    assert drain(channel, "q") == numbered(0, 6)


def test_a_time_to_live_counts_for_what_comes_from_then_on(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    publish(channel, "q", b"old")
    set_policy(either, message_ttl=1)
    publish(channel, "q", b"new")
    set_policy(either, "later", "^other$", max_length=1)
    assert take(channel, "q")[2] == b"old"
    wait_for_ready(channel, "q", 0)
    clear_policy(either)
    publish(channel, "q", b"lasting")
    assert either.queue("q", lambda queue: queue.expiry.may_expire) is False
    assert drain(channel, "q") == [b"lasting"]


def test_an_unused_queue_expires_and_a_used_one_does_not(stage: Stage) -> None:
    channel = stage.channel()
    declare(channel, "q")
    declare(channel, "q2")
    set_policy(stage, pattern="^q2?$", expires=FAR_MS)
    assert stage.queue("q", lambda queue: queue.lifetime is not None)
    set_policy(stage, pattern="^q$", expires=1)
    wait_until(lambda: not stage.look(lambda server: "q" in server.broker.vhosts["/"].queues), "q to expire")
    assert stage.queue("q2", lambda queue: queue.lifetime) is None
    assert stage.look(lambda server: server.broker.vhosts["/"].policies.of_queue("q").policy) is None


def test_overflow_changes_between_dropping_and_refusing(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    publish(channel, "q", b"0", b"1")
    set_policy(either, max_length=2, overflow="reject-publish")
    assert not is_taken(channel, "", "q", b"2")
    set_policy(either, max_length=2)
    assert is_taken(channel, "", "q", b"3")
    assert drain(channel, "q") == [b"1", b"3"]


def test_publishers_that_waited_for_room_go_on_when_the_rule_is_gone(stage: Stage) -> None:
    channel = stage.channel(confirms=False)
    declare(channel, "q")
    set_policy(stage, max_length=2, overflow="producer-flow-control")
    publish(channel, "q", *numbered(0, 5))
    wait_until(lambda: stage.queue("q", lambda queue: queue.congestion is not None), "publishers wait")
    clear_policy(stage)
    publish(channel, "q", *numbered(5, 8))
    wait_until(lambda: stage.queue("q", lambda queue: queue.ready_count()) == 8, "the publisher goes on")


def test_dead_letters_that_no_queue_took_go_where_a_later_policy_says(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    declare(channel, "dead")
    channel.exchange_declare("nowhere", "direct", durable=True)
    set_policy(either, dead_letter_exchange="nowhere", dead_letter_strategy="at-least-once")
    publish(channel, "q", b"stays")
    channel.basic_reject(take(channel, "q", ack=False)[0].delivery_tag, requeue=False)
    wait_until(lambda: either.queue("q", lambda queue: queue.leaving.kept_count()) == 1, "it is kept")
    set_policy(either, dead_letter_exchange="", dead_letter_routing_key="dead", dead_letter_strategy="at-least-once")
    _, properties, body = take(channel, "dead")
    assert (body, deaths(properties)) == (b"stays", [("q", "rejected", 1)])
    wait_until(lambda: either.queue("q", lambda queue: queue.backing.depth()) == 0, "it has left q")


def test_dead_letters_that_waited_are_dropped_when_there_is_no_exchange_any_more(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    set_policy(either, dead_letter_exchange="gone", dead_letter_strategy="at-least-once")
    publish(channel, "q", b"dies")
    channel.basic_reject(take(channel, "q", ack=False)[0].delivery_tag, requeue=False)
    wait_until(lambda: either.queue("q", lambda queue: queue.leaving.kept_count()) == 1, "it is kept")
    clear_policy(either)
    wait_until(lambda: either.queue("q", lambda queue: queue.backing.depth()) == 0, "it has left q")


def test_a_delivery_limit_counts_the_returns_that_were_before(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    publish(channel, "q", b"poison")
    for _ in range(3):
        channel.basic_nack(take(channel, "q", ack=False)[0].delivery_tag, requeue=True)
    set_policy(either, delivery_limit=3)
    method, properties, _ = take(channel, "q", ack=False)
    assert properties.headers["x-delivery-count"] == 3
    channel.basic_nack(method.delivery_tag, requeue=True)
    wait_until(lambda: either.queue("q", lambda queue: queue.backing.depth()) == 0, "it was delivered often enough")


def test_messages_wait_for_their_retry_also_when_the_policy_is_gone(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    publish(channel, "q", b"again")
    set_policy(either, delayed_retry_min=200)
    channel.basic_nack(take(channel, "q", ack=False)[0].delivery_tag, requeue=True)
    wait_until(lambda: either.held_count("held-queue", "q") == 1, "it waits")
    clear_policy(either)
    assert take(channel, "q")[2] == b"again"


def test_groups_order_what_is_there_and_bind_consumers(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    for number in range(4):
        channel.basic_publish("", "q", b"%d" % number, headed(g=number % 2))
    set_policy(either, group_header="g")
    first, second = either.channel(), either.channel()
    for each in (first, second):
        each.basic_qos(prefetch_count=1)
    inboxes = [Inbox(), Inbox()]
    for each, inbox in zip((first, second), inboxes, strict=True):
        each.basic_consume("q", inbox)
        inbox.wait_for(each, 1)
    assert [inbox.bodies for inbox in inboxes] == [[b"0"], [b"1"]]


def test_an_order_comes_and_goes_and_messages_keep_their_places(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    for number in (3, 1, 2, 0):
        channel.basic_publish("", "q", b"%d" % number, headed(k=number))
    unsettled = take(channel, "q", ack=False)[0].delivery_tag
    set_policy(either, sort_header="k")
    assert [take(channel, "q")[2] for _ in range(2)] == [b"0", b"1"]
    channel.basic_nack(unsettled, requeue=True)
    clear_policy(either)
    method, _, body = take(channel, "q")
    assert (method.redelivered, body) == (True, b"3")
    method, _, body = take(channel, "q")
    assert (method.redelivered, body) == (False, b"2")
    assert either.queue("q", lambda queue: queue.ready_count()) == 0


def test_last_values_are_found_among_what_is_there(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    for number, key in enumerate("abab"):
        channel.basic_publish("", "q", b"%d" % number, headed(k=key))
    set_policy(either, last_value_header="k")
    assert ready(channel, "q") == 2
    assert drain(channel, "q") == [b"2", b"3"]


def test_the_order_changes_from_one_to_another(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    for number, key in enumerate("bcab"):
        channel.basic_publish("", "q", b"%d" % number, headed(k=key))
    set_policy(either, group_header="k")
    assert ready(channel, "q") == 4
    set_policy(either, sort_header="k")
    assert take(channel, "q")[2] == b"2"
    set_policy(either, last_value_header="k")
    assert drain(channel, "q") == [b"1", b"3"]


def test_deduplication_remembers_from_then_on_and_forgets_at_its_end(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    key = {"x_deduplication_header": "k"}
    channel.basic_publish("", "q", b"before", headed(**key))
    set_policy(either, message_deduplication=True, cache_size=10)
    for body in (b"first", b"second"):
        channel.basic_publish("", "q", body, headed(**key))
    assert drain(channel, "q") == [b"before", b"first"]
    # It goes on with the keys that it has when something else changes, or its size does.
    set_policy(either, message_deduplication=True, cache_size=2, max_length=5)
    channel.basic_publish("", "q", b"third", headed(**key))
    assert drain(channel, "q") == []
    clear_policy(either)
    assert either.companion_names() == []
    channel.basic_publish("", "q", b"fourth", headed(**key))
    assert drain(channel, "q") == [b"fourth"]


def test_a_window_of_keys_becomes_smaller_in_slices(stage: Stage) -> None:
    channel = stage.channel(confirms=False)
    declare(channel, "q")
    set_policy(stage, message_deduplication=True, cache_size=5000)
    for number in range(3000):
        channel.basic_publish("", "q", b"", headed(False, x_deduplication_header=number))
    wait_until(lambda: stage.held_count("dedup", "q") == 3000, "all keys are known")
    set_policy(stage, message_deduplication=True, cache_size=7)
    wait_until(lambda: stage.held_count("dedup", "q") == 7, "seven keys are left")
    channel.basic_publish("", "q", b"dup", headed(False, x_deduplication_header=2999))
    channel.basic_publish("", "q", b"new", headed(False, x_deduplication_header=1))
    wait_until(lambda: stage.queue("q", lambda queue: queue.ready_count()) == 3001, "one of the two was known")


def test_the_alternate_exchange_reaches_publishers_that_know_their_routes(stage: Stage) -> None:
    channel = stage.channel()
    declare(channel, "q")
    channel.exchange_declare("x", "direct")
    channel.exchange_declare("other", "fanout")
    channel.queue_bind("q", "other")
    assert is_returned(channel, "x", "k")
    set_policy(stage, pattern="^x$", alternate_exchange="other")
    assert not is_returned(channel, "x", "k")
    clear_policy(stage)
    assert is_returned(channel, "x", "k")
    assert ready(channel, "q") == 1


def test_consumers_keep_their_filters(stage: Stage) -> None:
    channel = stage.channel()
    declare(channel, "q")
    set_policy(stage, max_length=100)
    inbox = Inbox()
    channel.basic_consume("q", inbox, auto_ack=True, arguments={"x-filter-jms-selector": "k = 'a'"})
    set_policy(stage, sort_header="n")
    for number, key in ((3, "a"), (2, "b"), (1, "a")):
        channel.basic_publish("", "q", b"%d" % number, headed(k=key, n=number))
    inbox.wait_for(channel, 2)
    clear_policy(stage)
    assert stage.queue("q", lambda queue: queue.ready_count()) == 1
    channel.basic_publish("", "q", b"4", headed(k="a"))
    inbox.wait_for(channel, 3)
    assert b"2" not in inbox.bodies


def test_policies_and_parameters_last_and_apply_before_the_first_message(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    declare(channel, "q")
    publish(channel, "q", *numbered(0, 5))
    set_policy(durable, max_length=3, message_deduplication=True, cache_size=10)
    ask(durable, "set_operator_policy", name="o", pattern="^q$", definition={"max-length": 2})
    ask(durable, "set_parameter", component="shovel", name="s", value='{"src-uri": "amqp://"}')
    ask(durable, "set_global_parameter", name="cluster_name", value='"here"')
    ask(durable, "set_policy", name="gone", pattern="x", definition={"max-length": 1})
    ask(durable, "clear_policy", name="gone")
    wait_for_ready(channel, "q", 2)
    channel.basic_publish("", "q", b"k", headed(x_deduplication_header="k"))
    for _ in range(2):
        restart(durable)
        channel = durable.channel()
        channel.basic_publish("", "q", b"again", headed(x_deduplication_header="k"))
        assert ready(channel, "q") == 2
        assert ask(durable, "queue_policies", name="q") == {
            "policy": "p",
            "operator_policy": "o",
            "effective_policy_definition": {"cache-size": 10, "max-length": 2, "message-deduplication": True},
        }
        assert [policy["name"] for policy in ask(durable, "list_policies")] == ["p"]
        assert ask(durable, "list_parameters") == [
            {"component": "shovel", "name": "s", "value": {"src-uri": "amqp://"}}
        ]
        assert ask(durable, "list_global_parameters") == [{"name": "cluster_name", "value": "here"}]
    channel.basic_publish("", "q", b"5", persistent())
    assert drain(channel, "q") == [b"k", b"5"]
