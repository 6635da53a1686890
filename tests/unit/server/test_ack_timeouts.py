"""Consumer timeouts: what a client does not settle in time goes back, and what it says too late does no harm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands
from tests.effort import examples
from wire_bench import Bench, Client

from penstock.clock import ManualClock
from penstock.fields import Table

Basic = commands.Basic
TIMEOUT_MS = 10_000


class TimedBench(Bench):
    """A server whose broker has a clock that the test moves, and a queue `q`."""

    def __init__(self, queue_arguments: Table | None = None) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.server.broker.clock = self.clock
        self.q = self.vhost.declare_queue("q", False, False, None, queue_arguments or {})

    def pass_ms(self, milliseconds: int) -> None:
        """Time passes, and the server's timer fires if it is due."""
        self.clock.advance(milliseconds / 1000)
        self.server.broker.expiries.run_due(self.clock.wall_ms())

    def next_wake_ms(self) -> int:
        """From now; -1 when nothing is scheduled."""
        due_ms = self.server.broker.expiries.next_due_ms()
        return due_ms if due_ms < 0 else due_ms - self.clock.wall_ms()

    def publish(self, count: int) -> None:
        self.client().publish("", "q", *[b"%d" % number for number in range(count)])


@pytest.fixture
def bench() -> TimedBench:
    return TimedBench({"x-consumer-timeout": ("I", TIMEOUT_MS)})


def consume(client: Client, tag: str = "c", prefetch: int = 0, no_ack: bool = False, **arguments: Any) -> list[Any]:
    client.send(Basic.Qos(0, prefetch, False))
    return deliveries(client.call(Basic.Consume(0, "q", tag, no_ack=no_ack, arguments=arguments)))


def deliveries(frames: list[Any]) -> list[Any]:
    return [(frame.delivery_tag, frame.redelivered) for frame in frames if isinstance(frame, Basic.Deliver)]


def refusals(frames: list[Any]) -> list[str]:
    return [frame.reply_text for frame in frames if isinstance(frame, commands.Channel.Close)]


def test_an_unacknowledged_delivery_goes_back_and_is_redelivered(bench: TimedBench) -> None:
    client, other = bench.client(), bench.client()
    bench.publish(1)
    assert consume(client, prefetch=1) == [(1, False)]
    client.send(Basic.Cancel("c"))
    assert consume(other) == []
    bench.pass_ms(TIMEOUT_MS - 1)
    assert deliveries(other.read()) == []
    bench.pass_ms(1)
    assert deliveries(other.read()) == [(1, True)]
    assert len(client.channel().unacked) == 0


def test_the_channel_stays_open_and_a_late_ack_does_not_touch_the_next_delivery(bench: TimedBench) -> None:
    client, other = bench.client(), bench.client()
    bench.publish(1)
    consume(client, prefetch=1)
    client.send(Basic.Cancel("c"))
    consume(other)
    bench.pass_ms(TIMEOUT_MS)
    assert deliveries(other.read()) == [(1, True)]
    assert refusals(client.call(Basic.Ack(1))) == []
    assert bench.q.backing.depth() == 1
    assert refusals(client.call(Basic.Ack(1))) == ["PRECONDITION_FAILED - unknown delivery tag 1"]
    other.call(Basic.Ack(1))
    assert bench.q.backing.depth() == 0


@pytest.mark.parametrize(
    "late",
    [Basic.Nack(1, False, False), Basic.Nack(1, False, True), Basic.Reject(1, False), Basic.Ack(1, True)],
    ids=["nack", "requeue", "reject", "multiple"],
)
def test_whatever_a_client_says_late_is_ignored_once(late: Any, bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(1)
    client.call(Basic.Get(0, "q", False))
    bench.pass_ms(TIMEOUT_MS)
    assert refusals(client.call(late)) == []
    assert len(bench.q) == 1
    assert refusals(client.call(late)) == ["PRECONDITION_FAILED - unknown delivery tag 1"]


def test_a_run_of_late_acks_is_ignored_and_the_ones_in_time_count(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(3)
    consume(client, prefetch=3)
    client.send(Basic.Cancel("c"))
    bench.pass_ms(TIMEOUT_MS)
    # The same messages again, with new tags.
    assert consume(client, "d") == [(4, True), (5, True), (6, True)]
    client.send(*[Basic.Ack(tag) for tag in range(1, 7)])
    assert refusals(client.read()) == []
    assert bench.q.backing.depth() == 0


def test_credit_is_given_back(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(3)
    assert consume(client, prefetch=2) == [(1, False), (2, False)]
    bench.pass_ms(TIMEOUT_MS)
    assert deliveries(client.read()) == [(3, True), (4, True)]
    assert deliveries(client.call(Basic.Ack(4, True))) == [(5, False)]


def test_the_credit_of_the_whole_channel_is_given_back(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(2)
    client.send(Basic.Qos(0, 1, True))
    assert deliveries(client.call(Basic.Consume(0, "q", "c"))) == [(1, False)]
    bench.pass_ms(TIMEOUT_MS)
    assert deliveries(client.read()) == [(2, True)]


def test_what_is_acknowledged_in_time_never_comes_back(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(100)
    consume(client)
    client.call(Basic.Ack(99, True))
    bench.pass_ms(TIMEOUT_MS)
    assert deliveries(client.read()) == [(101, True)]


def test_each_delivery_has_its_own_time(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(1)
    consume(client, prefetch=2)
    client.call(Basic.Cancel("c"))
    bench.pass_ms(TIMEOUT_MS // 2)
    bench.publish(1)
    client.call(Basic.Get(0, "q", False))
    bench.pass_ms(TIMEOUT_MS // 2)
    assert len(bench.q) == 1
    assert len(client.channel().unacked) == 1
    bench.pass_ms(TIMEOUT_MS // 2)
    assert len(bench.q) == 2


def test_the_consumers_own_timeout_comes_before_that_of_the_queue(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(1)
    consume(client, prefetch=1, **{"x-consumer-timeout": 50})
    client.call(Basic.Cancel("c"))
    bench.pass_ms(50)
    assert len(bench.q) == 1


def test_a_consumer_can_ask_for_it_where_the_queue_does_not() -> None:
    bench = TimedBench()
    client, other = bench.client(), bench.client()
    bench.publish(2)
    consume(client, prefetch=1, **{"x-consumer-timeout": 50})
    consume(other, prefetch=1)
    client.call(Basic.Cancel("c"))
    bench.pass_ms(50)
    assert len(bench.q) == 1
    bench.pass_ms(10 * TIMEOUT_MS)
    assert len(other.channel().unacked) == 1


def test_without_the_argument_nothing_is_scheduled() -> None:
    bench = TimedBench()
    client = bench.client()
    bench.publish(3)
    client.call(Basic.Get(0, "q", False))
    consume(client)
    assert bench.next_wake_ms() == -1
    bench.pass_ms(10 * TIMEOUT_MS)
    assert len(client.channel().unacked) == 3


def test_a_consumer_without_acknowledgements_has_no_timeout(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(3)
    consume(client, no_ack=True)
    client.call(Basic.Get(0, "q", True))
    assert bench.next_wake_ms() == -1


def test_a_channel_that_is_gone_is_not_woken(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(3)
    consume(client)
    assert bench.next_wake_ms() == TIMEOUT_MS
    client.call(commands.Channel.Close(200, "", 0, 0))
    assert bench.next_wake_ms() == -1
    assert len(bench.q) == 3


def test_a_busy_channel_is_woken_a_few_times_per_timeout_and_not_for_each_delivery(bench: TimedBench) -> None:
    client = bench.client()
    consume(client)
    publisher = bench.client()
    wakes = 0
    for tag in range(1, 1001):
        publisher.publish("", "q", b"x")
        assert deliveries(client.read()) == [(tag, False)]
        client.call(Basic.Ack(tag))
        wakes += bench.next_wake_ms() <= 10
        bench.pass_ms(10)
    assert wakes == 1


def test_deliveries_that_lapse_one_after_the_other_are_taken_in_slices(bench: TimedBench) -> None:
    client = bench.client()
    for _ in range(1000):
        bench.publish(1)
        client.call(Basic.Get(0, "q", False))
        bench.clock.advance(0.001)
    wakes = 0
    while len(bench.q) < 1000:
        wakes += 1
        bench.pass_ms(bench.next_wake_ms())
    assert wakes < 20
    # Never before its time, and not much later.
    assert bench.clock.wall_ms() - ManualClock().wall_ms() < 1000 + TIMEOUT_MS + TIMEOUT_MS // 32


def test_an_ack_that_waits_for_its_commit_is_an_answer_and_a_rollback_takes_it_back(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(1)
    client.call(commands.Tx.Select())
    client.call(Basic.Get(0, "q", False))
    client.call(Basic.Ack(1))
    bench.pass_ms(TIMEOUT_MS)
    assert len(bench.q) == 0
    client.call(commands.Tx.Rollback())
    bench.pass_ms(TIMEOUT_MS)
    assert len(bench.q) == 1
    assert refusals(client.call(Basic.Ack(1))) == []


def test_the_queue_may_be_gone_when_the_time_comes(bench: TimedBench) -> None:
    client = bench.client()
    bench.publish(2)
    consume(client, prefetch=1)
    bench.vhost.delete_queue(bench.q, False, False)
    bench.pass_ms(TIMEOUT_MS)
    assert refusals(client.call(Basic.Ack(1))) == []
    assert bench.server.internal_errors == 0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("5", '"expected integer, got longstr"'),
        (True, '"expected integer, got bool"'),
        (0, "{value_zero,0}"),
        (-1, "{value_negative,-1}"),
    ],
)
def test_a_timeout_that_is_none_is_refused(value: object, reason: str, bench: TimedBench) -> None:
    arguments = {"x-consumer-timeout": value}
    prefix = "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue"
    by_consumer = bench.client().call(Basic.Consume(0, "q", arguments=arguments))
    assert refusals(by_consumer) == [f"{prefix} 'q' in vhost '/': {reason}"]
    by_queue = bench.client().call(commands.Queue.Declare(0, "new", arguments=arguments))
    assert refusals(by_queue) == [f"{prefix} 'new' in vhost '/': {reason}"]


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 5)),
    st.tuples(st.sampled_from(("ack", "nack", "requeue")), st.integers(0, 20)),
    st.tuples(st.just("ack through"), st.integers(0, 20)),
    st.tuples(st.just("pass"), st.sampled_from((1, 40, 100, 250))),
)


class SlowClient:
    """Says one word about each delivery, at any time, in any order."""

    def __init__(self) -> None:
        self.bench = TimedBench()
        self.client, self.publisher = self.bench.client(), self.bench.client()
        self.published = self.settled = 0
        # Tags about which it has said nothing yet.
        self.open: list[int] = []
        self.do("consume", 0)

    def do(self, step: str, number: int) -> None:
        client, unacked = self.client, self.client.channel().unacked
        before = len(unacked)
        if step == "consume":
            for tag, timeout_ms in (("a", 100), ("b", 250)):
                consume(client, tag, prefetch=3, **{"x-consumer-timeout": timeout_ms})
        elif step == "publish":
            self.publisher.publish("", "q", *[b"x"] * number)
            self.published += number
        elif step == "pass":
            self.bench.pass_ms(number)
        elif self.open:
            tag = self.open[number % len(self.open)]
            if step == "ack through":
                client.send(Basic.Ack(tag, True))
                self.open = [other for other in self.open if other > tag]
            else:
                client.send(Basic.Ack(tag) if step == "ack" else Basic.Nack(tag, False, step == "requeue"))
                self.open.remove(tag)
            if step != "requeue":
                self.settled += before - len(unacked)

    def check(self) -> None:
        frames = self.client.read()
        assert refusals(frames) == []
        self.open += [tag for tag, _ in deliveries(frames)]
        channel = self.client.channel()
        assert self.bench.q.backing.depth() == self.published - self.settled
        assert len(self.bench.q) + len(channel.unacked) == self.published - self.settled
        counted = [subscription.unacked_count for subscription in channel.subscriptions.values()]
        assert sum(counted) == channel.consumer_unacked_count == len(channel.unacked)
        assert max(counted) <= 3
        if len(self.bench.q):
            assert counted == [3, 3], "a consumer with credit was left beside a waiting message"
        if len(channel.unacked):
            assert 0 <= self.bench.next_wake_ms() <= 250 + 4


@settings(deadline=None, max_examples=examples(80))
@given(st.lists(STEPS, min_size=5, max_size=50))
def test_a_client_that_says_one_word_about_each_delivery_is_never_refused(steps: list[tuple[str, int]]) -> None:
    slow = SlowClient()
    for step, number in steps:
        slow.do(step, number)
        slow.check()
    assert slow.bench.server.internal_errors == 0
