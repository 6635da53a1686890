"""Random use of an engine, with crashes and restarts at any time, against a plain model of where each message is."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

from engine_house import QUEUE, House
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tests.effort import examples

from penstock.client.message import Message

CHOICE = st.integers(0, 1_000)
LEASE_S = 30.0
CONSUMERS = 3


class Known:
    """What the model knows of one message."""

    def __init__(self, payload: bytes, ready_s: float) -> None:
        self.payload = payload
        self.state = "ready"
        # By the manual clock; ready from then on.
        self.ready_s = ready_s
        self.holder = 0
        self.until_s = 0.0
        self.deliveries = 0
        self.note: str | None = None


class EngineUse(RuleBasedStateMachine):
    """One queue and three consumers with leases."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-model-")
        self.house = House(Path(self._folder.name))
        self.messages: dict[str, Known] = {}
        self.put_count = 0
        self.finalized: list[bytes] = []
        # After a crash nobody knows whether a message was handed out before.
        self.counts_exactly = True
        self.attach()

    def attach(self) -> None:
        self.numbers = [self.house.engine.attach(QUEUE, LEASE_S) for _ in range(CONSUMERS)]

    def teardown(self) -> None:
        self.house.engine.close()
        self._folder.cleanup()
        super().teardown()

    def now_s(self) -> float:
        return self.house.clock.monotonic_s()

    def pass_time(self) -> None:
        """What the engine does at the beginning of each call."""
        for known in self.messages.values():
            if known.state == "reserved" and known.until_s <= self.now_s():
                known.state, known.ready_s = "ready", 0.0

    def ready(self) -> dict[str, Known]:
        self.pass_time()
        return {
            one: known
            for one, known in self.messages.items()
            if known.state == "ready" and known.ready_s <= self.now_s()
        }

    def reserved(self, number: int | None = None) -> list[str]:
        self.pass_time()
        return [
            one for one, known in self.messages.items() if known.state == "reserved" and number in (None, known.holder)
        ]

    def note_handed_out(self, number: int, messages: list[Message]) -> None:
        for message in messages:
            known = self.ready().get(message.id)
            assert known is not None, f"{message.payload!r} is not ready"
            assert message.payload == known.payload
            if self.counts_exactly:
                assert (message.deliveries, message.note) == (known.deliveries + 1, known.note)
            assert message.deliveries > 0
            known.deliveries = message.deliveries
            known.note = message.note
            known.state, known.holder, known.until_s = "reserved", number, self.now_s() + LEASE_S

    # --- rules --------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), delay_s=st.sampled_from([0, 0, 5, 40]))
    def put(self, count: int, delay_s: int) -> None:
        payloads = [b"%05d" % (self.put_count + index) for index in range(count)]
        self.put_count += count
        ready_at = self.house.now() + timedelta(seconds=delay_s) if delay_s else None
        ids = self.house.engine.put(QUEUE, payloads, ready_at, None)
        for one, payload in zip(ids, payloads, strict=True):
            self.messages[one] = Known(payload, self.now_s() + delay_s)

    @rule(choice=CHOICE, count=st.integers(1, 5))
    def reserve(self, choice: int, count: int) -> None:
        number = self.numbers[choice % CONSUMERS]
        expected = min(count, len(self.ready()))
        messages, _ = self.house.engine.reserve(number, count)
        assert len(messages) == expected
        self.note_handed_out(number, messages)

    @rule(choice=CHOICE, count=st.integers(1, 5))
    def finalize(self, choice: int, count: int) -> None:
        number = self.numbers[choice % CONSUMERS]
        # With some of other consumers among them.
        ids = self.reserved()[:count]
        mine = [one for one in ids if one in self.reserved(number)]
        assert self.house.engine.finalize(number, ids, f"note {choice}") == mine
        for one in mine:
            self.finalized.append(self.messages.pop(one).payload)

    @rule(choice=CHOICE, delay_s=st.sampled_from([None, 5.0, 40.0]), note=st.sampled_from([None, "why"]))
    def requeue(self, choice: int, delay_s: float | None, note: str | None) -> None:
        number = self.numbers[choice % CONSUMERS]
        mine = self.reserved(number)[:2]
        assert self.house.engine.requeue(number, mine, delay_s, note) == mine
        for one in mine:
            known = self.messages[one]
            known.state, known.ready_s = "ready", self.now_s() + (delay_s or 0.0)
            known.note = note or known.note

    @rule(choice=CHOICE, note=st.sampled_from([None, "broken"]))
    def bury(self, choice: int, note: str | None) -> None:
        number = self.numbers[choice % CONSUMERS]
        mine = self.reserved(number)[:2]
        assert self.house.engine.bury(number, mine, note) == mine
        for one in mine:
            self.messages[one].state = "buried"
            self.messages[one].note = note or self.messages[one].note

    @rule()
    def kick(self) -> None:
        buried = [known for known in self.messages.values() if known.state == "buried"]
        assert self.house.engine.kick(QUEUE, 100) == len(buried)
        for known in buried:
            known.state, known.ready_s = "ready", 0.0

    @rule(choice=CHOICE)
    def replace_consumer(self, choice: int) -> None:
        index = choice % CONSUMERS
        gone = self.reserved(self.numbers[index])
        self.house.engine.detach(self.numbers[index])
        for one in gone:
            self.messages[one].state, self.messages[one].ready_s = "ready", 0.0
        self.numbers[index] = self.house.engine.attach(QUEUE, LEASE_S)

    @rule(seconds=st.sampled_from([0.5, 6.0, 35.0]))
    def wait(self, seconds: float) -> None:
        self.house.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        self.pass_time()
        self.house.reopen()
        self.come_back()

    @rule()
    def crash(self) -> None:
        self.pass_time()
        self.house.crash()
        self.come_back()

    def come_back(self) -> None:
        # What came back to its place is only known to have been handed out; what waited elsewhere knows more.
        self.counts_exactly = False
        for known in self.messages.values():
            if known.state == "reserved":
                known.state, known.ready_s = "ready", 0.0
        self.attach()

    @rule()
    def look(self) -> None:
        ready, reserved = self.ready(), self.reserved()
        scheduled = [
            known for known in self.messages.values() if known.state == "ready" and known.ready_s > self.now_s()
        ]
        buried = [known for known in self.messages.values() if known.state == "buried"]
        stats = self.house.engine.stats(QUEUE)
        assert (stats.ready_count, stats.reserved_count) == (len(ready), len(reserved))
        assert (stats.scheduled_count, stats.buried_count) == (len(scheduled), len(buried))
        assert stats.finalized_count == len(self.finalized)
        assert [message.payload for message in self.house.engine.history(QUEUE, 1_000)] == self.finalized[::-1]
        for queue in self.house.engine._vhost.all_queues():
            queue.backing.check_invariants()


def test_an_engine_agrees_with_the_model_through_crashes_and_restarts() -> None:
    run_state_machine_as_test(
        EngineUse, settings=settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
    )
