"""Consumers over several queues (x-multiqueue): one tag and one credit, in fair turns."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from penstock import limits
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client
from tests.server.brokers import consumer_states, has_queue
from tests.server.conftest import Connect

THREE = ["a", "b", "c"]


def over(*names: str, **arguments: Any) -> dict[str, Any]:
    return {"x-multiqueue": list(names), **arguments}


def declare(client: Client, *names: str, **attributes: Any) -> None:
    for name in names:
        client.declare(1, name, **attributes)


def fill(client: Client, names: list[str], count: int) -> None:
    for name in names:
        client.publish(1, name, *[name.encode()] * count)
    client.barrier(1)


def test_one_tag_gets_what_is_in_any_of_its_queues_and_what_comes(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    declare(client, *THREE)
    fill(client, THREE, 2)
    assert client.consume(1, "", "t", arguments=over(*THREE)) == "t"
    first = client.messages(6)
    assert sorted(message.body for message in first) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    assert {message.method.consumer_tag for message in first} == {"t"}
    assert sorted(message.method.delivery_tag for message in first) == list(range(1, 7))
    for name in THREE:
        client.publish(1, name, b"later " + name.encode())
        assert client.message().body == b"later " + name.encode()
    client.ack(1, 9, multiple=True)
    client.barrier(1)
    assert [broker.queue_depth(name) for name in THREE] == [0, 0, 0]


@pytest.mark.parametrize("whole_channel", [False, True])
def test_it_has_one_credit_and_its_queues_take_turns(broker: Broker, connect: Connect, whole_channel: bool) -> None:
    client = connect(broker)
    declare(client, *THREE)
    fill(client, THREE, 4)
    client.qos(1, 1, whole_channel)
    client.consume(1, "", arguments=over(*THREE))
    served = []
    for tag in range(1, 13):
        served.append(client.message().body.decode())
        client.barrier(1)
        assert not client.waiting_messages(), "more than its credit"
        client.ack(1, tag)
    assert served == THREE * 4


def test_without_a_limit_a_long_queue_does_not_keep_the_others_waiting(broker: Broker, connect: Connect) -> None:
    publisher, client = connect(broker), connect(broker)
    declare(publisher, *THREE)
    fill(publisher, ["a"], 5_000)
    fill(publisher, ["b", "c"], 1)
    client.consume(1, "", no_ack=True, arguments=over(*THREE))
    bodies = client.bodies(5_002)
    assert bodies.index(b"b") <= limits.PULL_MESSAGES_MAX
    assert bodies.index(b"c") <= limits.PULL_MESSAGES_MAX + 1


def test_its_queues_know_when_it_is_out_of_credit_and_serve_others(broker: Broker, connect: Connect) -> None:
    client, other = connect(broker), connect(broker)
    declare(client, "a", "b")
    client.qos(1, 1)
    client.consume(1, "", arguments=over("a", "b"))
    client.publish(1, "a", b"1")
    client.message()
    wait_until(lambda: consumer_states(broker, "b")["not_interested"] == 1, "the other queue knows")
    assert consumer_states(broker, "a")["not_interested"] == 1
    other.consume(1, "b")
    client.publish(1, "b", b"2")
    assert other.message().body == b"2"
    client.ack(1, 1)
    wait_until(lambda: consumer_states(broker, "a")["interested"] == 1, "it has credit again")
    assert consumer_states(broker, "b")["interested"] == 2


def test_a_cancelled_one_leaves_all_queues_and_keeps_what_it_has_not_acknowledged(
    broker: Broker, connect: Connect
) -> None:
    client = connect(broker)
    declare(client, *THREE)
    client.declare(1, "gone", auto_delete=True)
    fill(client, THREE, 1)
    client.consume(1, "", "t", arguments=over(*THREE, "gone"))
    client.messages(3)
    client.call(1, commands.Basic.Cancel("t"), commands.Basic.CancelOk)
    assert [sum(consumer_states(broker, name).values()) for name in THREE] == [0, 0, 0]
    assert not has_queue(broker, "gone")
    fill(client, THREE, 1)
    assert [broker.queue_depth(name) for name in THREE] == [1, 1, 1]
    client.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    assert [broker.queue_depth(name) for name in THREE] == [2, 2, 2]


def test_it_goes_on_when_a_queue_is_deleted_and_is_cancelled_with_the_last_one(
    broker: Broker, connect: Connect
) -> None:
    client, other = connect(broker), connect(broker)
    declare(client, *THREE)
    client.qos(1, 2)
    client.consume(1, "", "t", arguments=over(*THREE))
    fill(client, ["a"], 2)
    client.messages(2)
    # With one of its deliveries from a queue that is gone.
    for name in ("a", "b"):
        other.call(1, commands.Queue.Delete(0, name), commands.Queue.DeleteOk)
    client.ack(1, 1)
    client.publish(1, "c", b"still there")
    assert client.message().body == b"still there"
    client.barrier(1)
    assert not client.seen(commands.Basic.Cancel)
    other.call(1, commands.Queue.Delete(0, "c"), commands.Queue.DeleteOk)
    assert client.expect(commands.Basic.Cancel).consumer_tag == "t"
    declare(client, "c")
    assert client.consume(1, "c", "t") == "t"


def test_an_exclusive_one_is_alone_at_all_its_queues_or_at_none(broker: Broker, connect: Connect) -> None:
    client, other = connect(broker), connect(broker)
    client.declare(1, "a", auto_delete=True)
    declare(client, "b")
    other.consume(1, "b", "there")
    client.send(1, commands.Basic.Consume(0, "", "t", exclusive=True, arguments=over("a", "b")))
    close = client.expect(commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (
        403,
        "ACCESS_REFUSED - queue 'b' in vhost '/' in exclusive use",
    )
    assert sum(consumer_states(broker, "a").values()) == 0, "and it is not deleted either"
    other.call(1, commands.Basic.Cancel("there"), commands.Basic.CancelOk)
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.consume(1, "", exclusive=True, arguments=over("a", "b"))
    for name in ("a", "b"):
        other.open_channel(2)
        other.send(2, commands.Basic.Consume(0, name))
        assert other.expect(commands.Channel.Close).reply_code == 403
        other.send(2, commands.Channel.CloseOk())


def test_its_priority_counts_at_each_of_its_queues(broker: Broker, connect: Connect) -> None:
    client, above, below = (connect(broker) for _ in range(3))
    declare(client, "a", "b")
    above.qos(1, 1)
    above.consume(1, "a", arguments={"x-priority": 2})
    below.consume(1, "b", arguments={"x-priority": 0})
    client.consume(1, "", arguments=over("a", "b", **{"x-priority": 1}))
    client.publish(1, "a", b"1", b"2")
    client.publish(1, "b", b"3")
    assert above.bodies(1) == [b"1"]
    assert sorted(client.bodies(2)) == [b"2", b"3"]
    below.barrier(1)
    assert not below.waiting_messages()


def test_a_browser_and_a_selector_reach_over_all_queues(broker: Broker, connect: Connect) -> None:
    client, browser, choosy = (connect(broker) for _ in range(3))
    declare(client, *THREE)
    for name in THREE:
        client.publish(1, name, name.encode(), headers={"size": THREE.index(name)})
    client.barrier(1)
    browser.consume(1, "", arguments=over(*THREE, **{"x-browse": True}))
    assert sorted(browser.bodies(3)) == [b"a", b"b", b"c"]
    choosy.consume(1, "", arguments=over(*THREE, **{"x-selector": "size > 0"}))
    assert sorted(choosy.bodies(2)) == [b"b", b"c"]
    assert broker.queue_depth("a") == 1


@pytest.mark.parametrize(
    ("queue", "value", "code", "text"),
    [
        ("", ["a", "nowhere"], 404, "NOT_FOUND - no queue 'nowhere' in vhost '/'"),
        ("", ["a", "locked"], 405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'locked'"),
        ("", "a", 406, "PRECONDITION_FAILED - invalid arg 'x-multiqueue': expected a list of queues, got longstr"),
        ("", [], 406, "PRECONDITION_FAILED - invalid arg 'x-multiqueue': expected 1 to 128 queues, got 0"),
        ("", ["a"] * 129, 406, "PRECONDITION_FAILED - invalid arg 'x-multiqueue': expected 1 to 128 queues, got 129"),
        ("", ["a", 5], 406, "PRECONDITION_FAILED - invalid arg 'x-multiqueue': expected names of queues, got "),
        ("", [""], 406, "PRECONDITION_FAILED - invalid arg 'x-multiqueue': a queue's name has 1 to 255 octets"),
        ("b", ["a"], 406, "PRECONDITION_FAILED - queue 'b' is not one of those in x-multiqueue"),
    ],
)
def test_a_list_of_queues_that_is_none_is_refused(
    broker: Broker, connect: Connect, queue: str, value: object, code: int, text: str
) -> None:
    client, other = connect(broker), connect(broker)
    declare(client, "a", "b")
    other.declare(1, "locked", exclusive=True)
    client.send(1, commands.Basic.Consume(0, queue, arguments={"x-multiqueue": value}))
    close = client.expect(commands.Channel.Close)
    assert close.reply_code == code
    assert close.reply_text.startswith(text)
    assert sum(consumer_states(broker, "a").values()) == 0


def test_a_queue_that_is_named_twice_is_consumed_from_once(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    declare(client, "a", "b")
    client.consume(1, "a", arguments=over("a", "b", "a"))
    assert sum(consumer_states(broker, "a").values()) == 1
