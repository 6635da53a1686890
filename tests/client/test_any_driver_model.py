"""Random use by several consumers against a plain model: where every message is, and who has it.

The model does not know positions of messages that came back, since drivers put them back in different places. It does
know that what was never handed out comes in its order.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from penstock.client.errors import Closed, NotReserved
from penstock.client.message import Message
from tests.client import any_driver
from tests.client.any_driver import PATIENCE_S, Place

CONSUMERS_MAX = 3
CHOICE = st.integers(0, 1_000)

place = any_driver.place


class Use(RuleBasedStateMachine):
    """One queue, one producer, up to three consumers in two sessions."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.queue = place.queue("model")
        self.sessions: list[Any] = []
        self.consumers: list[Any] = []
        self.put_count = 0
        # Payloads; what is in none of these is finalized.
        self.ready: set[bytes] = set()
        self.buried: set[bytes] = set()
        self.held: dict[bytes, tuple[Any, Message]] = {}
        self.finalized: list[bytes] = []
        self.handed_out: set[bytes] = set()
        # Messages that are not anybody's any more.
        self.stale: list[Message] = []

    @initialize()
    def open(self) -> None:
        self.sessions = [self.place.session(), self.place.session()]
        self.sessions[0].use_queue(self.queue, "strict")
        self.producer = self.sessions[0].producer_for(self.queue)
        self.consumers = [self.sessions[1].consumer_for(self.queue)]

    def teardown(self) -> None:
        for session in self.sessions:
            session.close()
        super().teardown()

    def new_payloads(self, count: int) -> list[bytes]:
        first = self.put_count
        self.put_count += count
        return [b"%06d" % number for number in range(first, first + count)]

    def consumer(self, choice: int) -> Any:
        return self.consumers[choice % len(self.consumers)]

    def held_one(self, choice: int) -> tuple[bytes, Any, Message] | None:
        if not self.held:
            return None
        payload = sorted(self.held)[choice % len(self.held)]
        return payload, *self.held[payload]

    def note_reserved(self, consumer: Any, messages: list[Message]) -> None:
        for message in messages:
            payload = message.payload
            assert payload in self.ready, f"{payload!r} was handed out, and is not ready"
            if payload in self.handed_out:
                assert message.deliveries >= 2
            else:
                unseen = self.ready - self.handed_out
                assert payload == min(unseen), f"{payload!r} came before {min(unseen)!r}"
            self.ready.remove(payload)
            self.handed_out.add(payload)
            self.held[payload] = (consumer, message)

    # --- rules --------------------------------------------------------------------------------------------

    @rule()
    def put(self) -> None:
        (payload,) = self.new_payloads(1)
        self.producer.put(payload)
        self.ready.add(payload)

    @rule(count=st.integers(1, 5))
    def put_many(self, count: int) -> None:
        payloads = self.new_payloads(count)
        ids = self.producer.put_many(payloads)
        assert len(set(ids)) == count
        self.ready.update(payloads)

    @rule(choice=CHOICE)
    def reserve(self, choice: int) -> None:
        consumer = self.consumer(choice)
        message = consumer.reserve(wait=PATIENCE_S if self.ready else 0)
        assert (message is not None) == bool(self.ready)
        if message is not None:
            self.note_reserved(consumer, [message])

    @rule(choice=CHOICE, count=st.integers(1, 4))
    def reserve_many(self, choice: int, count: int) -> None:
        consumer = self.consumer(choice)
        messages = consumer.reserve_many(count, wait=PATIENCE_S if self.ready else 0)
        assert bool(messages) == bool(self.ready)
        assert len(messages) <= count
        self.note_reserved(consumer, messages)

    @rule(choice=CHOICE, note=st.sampled_from([None, "a note"]))
    def finalize(self, choice: int, note: str | None) -> None:
        if (found := self.held_one(choice)) is not None:
            payload, consumer, message = found
            consumer.finalize(message, note)
            del self.held[payload]
            self.finalized.append(payload)
            self.stale.append(message)

    @rule(choice=CHOICE)
    def finalize_all(self, choice: int) -> None:
        consumer = self.consumer(choice)
        mine = {payload: held[1] for payload, held in self.held.items() if held[0] is consumer}
        others = [held[1] for held in self.held.values() if held[0] is not consumer]
        done = consumer.finalize_many([*others, *mine.values()])
        assert sorted([message.payload for message in done]) == sorted(mine)
        for payload, message in mine.items():
            del self.held[payload]
            self.finalized.append(payload)
            self.stale.append(message)

    @rule(choice=CHOICE)
    def finalize_and_reserve(self, choice: int) -> None:
        if (found := self.held_one(choice)) is not None:
            payload, consumer, message = found
            following = consumer.finalize_and_reserve(message)
            del self.held[payload]
            self.finalized.append(payload)
            self.stale.append(message)
            if following is not None:
                self.note_reserved(consumer, [following])

    @rule(choice=CHOICE, note=st.sampled_from([None, "again"]))
    def requeue(self, choice: int, note: str | None) -> None:
        if (found := self.held_one(choice)) is not None:
            payload, consumer, message = found
            consumer.requeue(message, note=note)
            del self.held[payload]
            self.ready.add(payload)

    @rule(choice=CHOICE, note=st.sampled_from([None, "broken"]))
    def bury(self, choice: int, note: str | None) -> None:
        if (found := self.held_one(choice)) is not None:
            payload, consumer, message = found
            consumer.bury(message, note)
            del self.held[payload]
            self.buried.add(payload)

    @rule(choice=CHOICE, count=st.integers(1, 3))
    def kick(self, choice: int, count: int) -> None:
        consumer = self.consumer(choice)
        kicked = consumer.kick(count)
        assert kicked == min(count, len(self.buried))
        if kicked == len(self.buried):
            self.ready.update(self.buried)
            self.buried.clear()
            return
        # Which ones the oldest are is the driver's business. The others are found by kicking them too.
        assert consumer.kick(100) == len(self.buried) - kicked
        self.ready.update(self.buried)
        self.buried.clear()

    @rule(choice=CHOICE)
    def touch(self, choice: int) -> None:
        if (found := self.held_one(choice)) is not None:
            _, consumer, message = found
            consumer.touch(message, 600)

    @rule(choice=CHOICE)
    def touch_what_is_not_ours(self, choice: int) -> None:
        consumer = self.consumer(choice)
        others = [held[1] for held in self.held.values() if held[0] is not consumer]
        for message in [*others, *self.stale[-3:]]:
            for settle in (consumer.finalize, consumer.requeue, consumer.bury, consumer.finalize_and_reserve):
                with pytest.raises(NotReserved):
                    settle(message)

    @rule(choice=CHOICE)
    def open_consumer(self, choice: int) -> None:
        if len(self.consumers) < CONSUMERS_MAX:
            self.consumers.append(self.sessions[choice % 2].consumer_for(self.queue))

    @rule(choice=CHOICE)
    def close_consumer(self, choice: int) -> None:
        consumer = self.consumer(choice)
        consumer.close()
        self.consumers.remove(consumer)
        for payload in [payload for payload, held in self.held.items() if held[0] is consumer]:
            with contextlib.suppress(Closed):
                consumer.finalize(self.held[payload][1])
                pytest.fail("a closed consumer has finalized a message")
            del self.held[payload]
            self.ready.add(payload)
        if not self.consumers:
            self.consumers.append(self.sessions[1].consumer_for(self.queue))

    @rule()
    def start_over(self) -> None:
        """All sessions are closed, and new ones opened."""
        for session in self.sessions:
            session.close()
        self.ready.update(self.held)
        self.held.clear()
        self.open()

    @rule()
    def count(self) -> None:
        stats = self.sessions[0].stats(self.queue)
        # Where messages are sent ahead, some of the ready ones are under way.
        assert stats.ready_count == len(self.ready)
        assert stats.reserved_count in (None, len(self.held))
        assert stats.buried_count in (None, len(self.buried))
        assert stats.finalized_count in (None, len(self.finalized))
        assert stats.consumer_count in (None, len(self.consumers))

    @rule()
    def look_at_the_history(self) -> None:
        found = [message.payload for message in self.sessions[0].history(self.queue, 1_000)]
        if self.sessions[0].has_history:
            assert sorted(found) == sorted(self.finalized)
        else:
            assert found == []

    @invariant()
    def nothing_is_twice(self) -> None:
        places = [*self.ready, *self.buried, *self.held, *self.finalized]
        assert len(places) == len(set(places)) == self.put_count


def test_any_use_by_several_consumers_agrees_with_the_model(place: Place) -> None:
    run_state_machine_as_test(
        lambda: Use(place),
        settings=settings(
            max_examples=12,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
