"""Consumers of channels: credit is never exceeded, and whoever has credit is never left beside a waiting message."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import base, commands
from tests.effort import examples
from wire_bench import Bench, Client

from penstock import limits

Basic = commands.Basic


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.queue("q")
    return bench


def consume(client: Client, tag: str, prefetch: int = 0, no_ack: bool = False, **arguments: Any) -> list[int]:
    client.send(Basic.Qos(0, prefetch, False))
    return tags_of(client.call(Basic.Consume(0, "q", tag, no_ack=no_ack, arguments=arguments)))


def tags_of(frames: list[Any]) -> list[int]:
    return [frame.delivery_tag for frame in frames if isinstance(frame, Basic.Deliver)]


def publish(bench: Bench, count: int) -> None:
    bench.client().publish("", "q", *[b"x"] * count)


def test_a_consumer_gets_as_many_as_its_prefetch_and_more_as_it_settles(bench: Bench) -> None:
    client = bench.client()
    publish(bench, 10)
    assert consume(client, "c", prefetch=3) == [1, 2, 3]
    assert tags_of(client.call(Basic.Ack(1))) == [4]
    assert tags_of(client.call(Basic.Ack(3, True))) == [5, 6]
    assert tags_of(client.call(Basic.Nack(5, False, False))) == [7]
    assert tags_of(client.call(Basic.Reject(6, False))) == [8]


def test_prefetch_does_not_hold_a_consumer_without_acknowledgements(bench: Bench) -> None:
    client = bench.client()
    publish(bench, 10)
    assert consume(client, "c", prefetch=1, no_ack=True) == list(range(1, 11))


def test_each_consumer_has_a_prefetch_of_its_own(bench: Bench) -> None:
    client = bench.client()
    publish(bench, 10)
    assert consume(client, "a", prefetch=2) == [1, 2]
    assert consume(client, "b", prefetch=3) == [3, 4, 5]


def test_consumers_that_share_the_prefetch_of_a_channel_take_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No turn is cut short because the machine is slow.
    for name in ("PARSE_TURN_S", "DELIVER_TURN_S", "SETTLE_TURN_S"):
        monkeypatch.setattr(limits, name, math.inf)
    client, queue_names = bench.client(), ["q", "other"]
    bench.queue("other")
    for name in queue_names:
        bench.client().publish("", name, *[b"x"] * 20)
    client.send(Basic.Qos(0, 2, True))
    served = []
    client.send(*[Basic.Consume(0, name, name) for name in queue_names])
    for _ in range(6):
        deliveries = [frame for frame in client.read() if isinstance(frame, Basic.Deliver)]
        served.append([frame.consumer_tag for frame in deliveries])
        client.send(Basic.Ack(deliveries[-1].delivery_tag, True))
    assert served == [["q", "q"], ["other", "other"]] * 3


def test_a_connection_with_many_channels_delivers_no_more_than_a_turn_allows(bench: Bench) -> None:
    client, channels = bench.client(), range(2, 42)
    for number in channels:
        queue = bench.queue(f"q{number}")
        bench.client().publish("", queue.name, *[b"x"] * 256)
        client.call(commands.Channel.Open(), channel=number)
    for number in channels:
        client.send(Basic.Consume(0, f"q{number}", no_ack=True), channel=number)
    queues = [bench.vhost.queues[f"q{number}"] for number in channels]
    left = [sum(map(len, queues))]
    while left[-1]:
        assert bench.loop.turn()
        left.append(sum(map(len, queues)))
    taken = [before - after for before, after in pairwise(left)]
    assert max(taken) < limits.TURN_MESSAGES_MAX + limits.PULL_MESSAGES_MAX


def test_the_prefetch_of_a_channel_is_shared_by_its_consumers(bench: Bench) -> None:
    client = bench.client()
    publish(bench, 10)
    client.send(Basic.Qos(0, 3, True))
    client.send(Basic.Consume(0, "q", "a"), Basic.Consume(0, "q", "b"))
    assert len(tags_of(client.read())) == 3
    assert len(tags_of(client.call(Basic.Ack(2)))) == 1
    assert len(tags_of(client.call(Basic.Qos(0, 5, True)))) == 2
    assert len(tags_of(client.call(Basic.Qos(0, 0, True)))) == 4


def test_get_does_not_use_up_credit(bench: Bench) -> None:
    client = bench.client()
    publish(bench, 5)
    for _ in range(2):
        client.call(Basic.Get(0, "q", False))
    assert consume(client, "c", prefetch=1) == [3]
    assert tags_of(client.call(Basic.Ack(3))) == [4]


def test_what_a_cancelled_consumer_has_not_settled_stays_with_the_channel(bench: Bench) -> None:
    client = bench.client()
    publish(bench, 3)
    assert consume(client, "c", prefetch=2) == [1, 2]
    client.call(Basic.Cancel("c"))
    assert consume(client, "c", prefetch=2) == [3]
    assert client.call(Basic.Ack(3, True)) == []
    assert bench.vhost.queues["q"].backing.depth() == 0


def test_a_consumer_of_a_deleted_queue_is_cancelled_and_its_acknowledgements_are_accepted(bench: Bench) -> None:
    client = bench.client()
    publish(bench, 3)
    consume(client, "c", prefetch=2)
    bench.vhost.delete_queue(bench.vhost.queues["q"], False, False)
    [cancel] = client.read()
    assert (cancel.consumer_tag, cancel.nowait) == ("c", True)
    assert client.call(Basic.Ack(1)) == []
    assert client.channel().subscriptions == {}


def test_a_closed_channel_hands_its_messages_to_the_next_consumer_in_their_order(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    publish(bench, 4)
    consume(first, "c", prefetch=3)
    assert consume(second, "c") == [1]
    first.send(commands.Channel.Close(200, "", 0, 0))
    frames = second.read()
    assert [frame.redelivered for frame in frames if isinstance(frame, Basic.Deliver)] == [True] * 3


STEPS = st.one_of(
    st.tuples(st.sampled_from(("publish", "publish elsewhere")), st.integers(1, 6)),
    st.tuples(st.sampled_from(("ack", "nack", "requeue", "reject")), st.integers(0, 5)),
    st.tuples(
        st.sampled_from(("ack all", "requeue all", "recover", "cancel", "consume", "consume both", "pause", "resume")),
        st.just(0),
    ),
    st.tuples(st.sampled_from(("delete elsewhere", "flow off", "flow on")), st.just(0)),
    st.tuples(st.sampled_from(("channel prefetch", "consumer prefetch")), st.integers(0, 4)),
)


SETTLEMENTS: dict[str, Callable[[int], base.Frame]] = {
    "ack": lambda tag: Basic.Ack(tag),
    "nack": lambda tag: Basic.Nack(tag, False, False),
    "requeue": lambda tag: Basic.Nack(tag, False, True),
    "reject": lambda tag: Basic.Reject(tag, True),
    "ack all": lambda tag: Basic.Ack(tag, True),
    "requeue all": lambda tag: Basic.Nack(tag, True, True),
}


class AnyClient:
    """A client that does anything with what it was sent. Two consumers on one channel, one on another connection.

    Some of the client's consumers have two queues.
    """

    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.queue("q")
        self.bench.queue("elsewhere")
        self.publisher = self.bench.client()
        self.client, self.other = self.bench.client(), self.bench.client()
        self.unsettled: list[int] = []
        self.tag_number = 0
        self.do("consume", 0)
        self.do("consume", 0)
        self.other.send(Basic.Qos(0, 2, False), Basic.Consume(0, "q", "other", arguments={"x-priority": 1}))

    def do(self, step: str, number: int) -> None:
        client = self.client
        if step == "publish":
            self.publisher.publish("", "q", *[b"x"] * number)
        elif step == "publish elsewhere":
            self.publisher.publish("", "elsewhere", *[b"y"] * number)
        elif step in ("consume", "consume both") and self.tag_number < 6:
            self.tag_number += 1
            if "elsewhere" not in self.bench.vhost.queues:
                self.bench.queue("elsewhere")
            both = {"x-multiqueue": ["elsewhere", "q"]} if step == "consume both" else {}
            client.send(Basic.Consume(0, "q", f"c{self.tag_number}", arguments=both))
        elif step == "delete elsewhere":
            self.publisher.call(commands.Queue.Delete(0, "elsewhere"))
        elif step in ("flow off", "flow on"):
            client.send(commands.Channel.Flow(step == "flow on"))
        elif step == "cancel" and client.channel().subscriptions:
            client.send(Basic.Cancel(next(iter(client.channel().subscriptions))))
        elif step == "recover":
            client.send(Basic.Recover(True))
            self.unsettled.clear()
        elif step == "pause":
            client.connection.pause_writing()
        elif step == "resume":
            client.connection.resume_writing()
        elif step in ("channel prefetch", "consumer prefetch"):
            client.send(Basic.Qos(0, number, step == "channel prefetch"))
        elif step in SETTLEMENTS and self.unsettled:
            tag = self.unsettled[-1] if step.endswith("all") else self.unsettled[number % len(self.unsettled)]
            client.send(SETTLEMENTS[step](tag))
            self.unsettled = [] if step.endswith("all") else [other for other in self.unsettled if other != tag]

    def check(self) -> None:
        frames = self.client.read()
        self.other.read()
        assert not [frame for frame in frames if isinstance(frame, commands.Channel.Close | commands.Connection.Close)]
        self.unsettled += tags_of(frames)
        channel = self.client.channel()
        assert len(channel.unacked) == len(self.unsettled)
        subscriptions = [*channel.subscriptions.values(), *self.other.channel().subscriptions.values()]
        for subscription in subscriptions:
            assert 0 <= subscription.unacked_count <= (subscription.prefetch_count or len(self.unsettled) + 2)
            for consumer in subscription.consumers:
                assert not consumer.queue.deleted
                if len(consumer.queue):
                    assert not subscription.wants_work(), "a consumer with credit was left beside a waiting message"
        for queue in self.bench.vhost.queues.values():
            queue.consumers.check_invariants()


@settings(deadline=None, max_examples=examples(120))
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_no_consumer_with_credit_is_left_beside_a_waiting_message(steps: list[tuple[str, int]]) -> None:
    anyone = AnyClient()
    anyone.check()
    for step, number in steps:
        anyone.do(step, number)
        anyone.check()
    assert anyone.bench.server.internal_errors == 0
