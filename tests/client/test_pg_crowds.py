"""Many producers and consumers on one queue in PostgreSQL: every message once."""

from __future__ import annotations

from collections import Counter

import pytest

import penstock
from penstock.client.message import Message
from tests.client.any_driver import PATIENCE_S
from tests.client.calls import Call

PRODUCERS = 2
CONSUMERS = 4
EACH = 150
ALL = PRODUCERS * EACH


class Crowd:
    """Threads with sessions of their own, and what they have handled."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.handled: Counter[str] = Counter()

    def produce(self, name: str) -> None:
        with penstock.Session(self.url) as session:
            producer = session.producer_for("q")
            for number in range(0, EACH, 3):
                producer.put(f"{name}-{number}")
                producer.put_many([f"{name}-{number + 1}", f"{name}-{number + 2}"])

    def consume_each(self) -> None:
        with penstock.Session(self.url) as session:
            consumer = session.consumer_for("q")
            while sum(self.handled.values()) < ALL:
                consumer.each_message(self.handle, wait=0.2)

    def consume_batches(self) -> None:
        with penstock.Session(self.url) as session:
            consumer = session.consumer_for("q")
            while sum(self.handled.values()) < ALL:
                messages = consumer.reserve_many(7, wait=0.2)
                for message in messages:
                    self.handle(message)
                assert consumer.finalize_many(messages) == messages

    def handle(self, message: Message) -> str:
        self.handled[message.text] += 1
        return message.text


@pytest.mark.parametrize("ordering", ["fuzzy", "strict"])
def test_four_consumers_and_two_producers_handle_every_message_once(penstock_url: str, ordering: str) -> None:
    crowd = Crowd(penstock_url)
    with penstock.Session(penstock_url) as session:
        session.use_queue("q", ordering)
        calls = [Call(crowd.consume_each if number % 2 else crowd.consume_batches) for number in range(CONSUMERS)]
        calls += [Call(lambda name=name: crowd.produce(name)) for name in ("a", "b")]
        for call in calls:
            call.result()
        assert crowd.handled == Counter(f"{name}-{number}" for name in ("a", "b") for number in range(EACH))
        stats = session.stats("q")
        assert (stats.ready_count, stats.reserved_count, stats.finalized_count) == (0, 0, ALL)
        assert (stats.producer_count, stats.consumer_count) == (0, 0)


def test_with_one_consumer_the_order_is_that_of_the_puts(penstock_url: str) -> None:
    with penstock.Session(penstock_url) as session:
        session.producer_for("q").put_many([str(number) for number in range(100)])
        consumer = session.consumer_for("q")
        texts: list[str] = []
        assert consumer.each_message(lambda message: texts.append(message.text)) == 100
        assert texts == [str(number) for number in range(100)]


def test_the_oldest_message_is_not_left_behind_by_many_consumers(penstock_url: str) -> None:
    with penstock.Session(penstock_url) as session:
        session.producer_for("q").put_many([str(number) for number in range(200)])
        consumers = [session.consumer_for("q") for _ in range(3)]
        for number in range(150):
            consumer = consumers[number % 3]
            message = consumer.reserve(wait=PATIENCE_S)
            assert message is not None
            consumer.finalize(message)
        # Fuzzy, but not that fuzzy: the head is always among those that may be chosen.
        first = session.history("q", 200)
        assert {"0", "1", "2", "3"} <= {message.text for message in first}


def test_a_message_that_comes_back_from_far_below_is_found_without_waiting(penstock_url: str) -> None:
    with penstock.Session(penstock_url) as session:
        session.producer_for("q").put_many([str(number) for number in range(100)])
        slow, quick = session.consumer_for("q"), session.consumer_for("q")
        old = [slow.reserve(wait=PATIENCE_S) for _ in range(3)]
        taken = [quick.reserve(wait=PATIENCE_S) for _ in range(60)]
        for message in old:
            assert message is not None
            slow.requeue(message)
        while message := quick.reserve():
            taken.append(message)
        assert sorted(int(message.text) for message in taken if message) == list(range(100))


def test_what_one_consumer_has_another_cannot_finalize_and_gets_nothing_for_it(penstock_url: str) -> None:
    with penstock.Session(penstock_url) as session:
        session.producer_for("q").put_many(["one", "two"])
        one, other = session.consumer_for("q"), session.consumer_for("q")
        message = one.reserve(wait=PATIENCE_S)
        assert message is not None
        with pytest.raises(penstock.NotReserved):
            other.finalize_and_reserve(message)
        assert (session.stats("q").ready_count, session.stats("q").reserved_count) == (1, 1)
        assert other.finalize_many([message]) == []
        following = one.finalize_and_reserve(message)
        assert following is not None
        assert {message.text, following.text} == {"one", "two"}
