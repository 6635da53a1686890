"""Any sequence of calls with any priorities leaves a priority queue where a list for each level says it must be.

HYPOTHESIS_PROFILE=deep searches much longer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.backing.priority.priority import PriorityBackingQueues
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, MessageProps, Run, body_bytes, unlike
from tests.contract.backings import expired_at
from tests.contract.inner_backings import NotingQueues
from tests.effort import DEEP, examples

EXAMPLES, STEPS = examples(200, deep=5_000), 100 if DEEP else 50

MAX = 3
PRIORITIES = st.integers(0, MAX + 1)
EXPIRIES_MS = st.sampled_from([-1, 10, 20, 30])
COUNTS = st.integers(1, 12)
BYTES = st.sampled_from([0, 3, 8, 1_000])
PICKS = st.lists(st.integers(0, 99), max_size=8)


@dataclass(eq=False)
class Message:
    payload: bytes
    expiry_ms: int
    seq_id: int = -1
    pending: bool = False
    redelivered: bool = False


class PriorityMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.inner = NotingQueues()
        self.bq = PriorityBackingQueues(self.inner, MAX).open("0f", True, None, lambda kind, work: None)
        # The model: the messages of each level in the order of publishing, until they are gone.
        self.levels: list[list[Message]] = [[] for _ in range(MAX + 1)]
        self.published = 0
        # Tokens that are not due yet, with the levels that must be safe first.
        self.owed: list[tuple[ConfirmToken, set[int]]] = []

    def held(self) -> list[Message]:
        """Everything in the order of fetching."""
        return [message for level in reversed(self.levels) for message in level]

    def ready(self) -> list[Message]:
        return [message for message in self.held() if not message.pending]

    def entry(self, priority: int, expiry_ms: int) -> tuple[Message, Entry]:
        self.published += 1
        message = Message(b"%d" % self.published, expiry_ms)
        props = None if expiry_ms < 0 else MessageProps(expiry_ms)
        self.levels[min(priority, MAX)].append(message)
        return message, (Envelope("", "key", b"", priority=priority), message.payload + b"\xce", props)

    def remove(self, gone: list[Message]) -> None:
        self.levels = [[message for message in level if message not in gone] for level in self.levels]

    # --- publishing -------------------------------------------------------------------------------

    @rule(priority=PRIORITIES, count=st.integers(1, 5), expiry_ms=EXPIRIES_MS, delivered=st.booleans())
    def publish(self, priority: int, count: int, expiry_ms: int, delivered: bool) -> None:
        made = [self.entry(priority, expiry_ms) for _ in range(count)]
        envelope, _, props = made[0][1]
        self.bq.publish(Incoming(envelope, [entry[1] for _, entry in made]), props, delivered)
        for message, _ in made:
            message.redelivered = delivered

    @rule(runs=st.lists(st.tuples(PRIORITIES, EXPIRIES_MS), min_size=1, max_size=8), confirm=st.booleans())
    def publish_entries(self, runs: list[tuple[int, int]], confirm: bool) -> None:
        entries = [self.entry(priority, expiry_ms)[1] for priority, expiry_ms in runs]
        token = ConfirmToken(1) if confirm else None
        self.bq.publish(unlike(entries), MessageProps(confirm=token))
        if token is not None:
            self.owed.append((token, {min(priority, MAX) for priority, _ in runs}))

    @rule(level=st.integers(0, MAX), is_safe=st.booleans())
    def level_becomes_safe(self, level: int, is_safe: bool) -> None:
        opened = self.inner.opened.get(f"0f-{level:03d}")
        if opened is not None:
            opened.is_safe = is_safe

    @rule()
    def drain_confirmed(self) -> None:
        safe = {int(queue_id[-3:]) for queue_id, opened in self.inner.opened.items() if opened.is_safe}
        for _, levels in self.owed:
            levels -= safe
        due = [token for token, levels in self.owed if not levels]
        self.owed = [(token, levels) for token, levels in self.owed if levels]
        assert sorted(map(id, self.bq.drain_confirmed())) == sorted(map(id, due))

    # --- fetching ---------------------------------------------------------------------------------

    @rule(count_max=COUNTS, bytes_max=BYTES, ack_required=st.sampled_from([True, True, False]))
    def fetch(self, count_max: int, bytes_max: int, ack_required: bool) -> None:
        taken = self.check_run(self.bq.fetch(count_max, bytes_max, ack_required), self.ready(), count_max)
        self.take(taken, ack_required)

    def check_run(self, run: Run | None, ready: list[Message], count_max: int) -> list[Message]:
        if run is None:
            assert not ready
            return []
        taken = ready[: len(run.entries)]
        assert 1 <= len(run.entries) <= count_max
        assert [message.payload for message in taken] == [body_bytes(entry[1]) for entry in run.entries]
        assert {message.redelivered for message in taken} == {run.redelivered}
        assert len([level for level in self.levels if set(map(id, level)) & set(map(id, taken))]) == 1, "levels mixed"
        assert [message.seq_id for message in taken] == list(range(run.first_seq_id, run.first_seq_id + len(taken)))
        return taken

    def take(self, taken: list[Message], ack_required: bool) -> None:
        for message in taken:
            message.pending = message.redelivered = True
        if not ack_required:
            self.remove(taken)

    @rule(ack_required=st.booleans())
    def drop(self, ack_required: bool) -> None:
        dropped = self.bq.drop(ack_required)
        head = self.ready()[:1]
        assert [message.seq_id for message in head] == ([] if dropped is None else [dropped])
        self.take(head, ack_required)

    @rule(now_ms=st.sampled_from([10, 20, 30]), fetching=st.booleans())
    def expire(self, now_ms: int, fetching: bool) -> None:
        expired: list[Message] = []
        for message in self.ready():
            if not 0 <= message.expiry_ms <= now_ms:
                break
            expired.append(message)
        if fetching:
            shown: list[int] = []
            assert self.bq.fetchwhile(expired_at(now_ms), lambda seq_id, _: shown.append(seq_id)) == len(expired)
            assert shown == [message.seq_id for message in expired]
        else:
            assert self.bq.dropwhile(expired_at(now_ms)) == len(expired)
        self.take(expired, fetching)

    @rule(count_max=COUNTS, bytes_max=BYTES)
    def browse(self, count_max: int, bytes_max: int) -> None:
        ready, position = self.ready(), 0
        while ready:
            count = len(self.check_run(self.bq.browse(position, count_max, bytes_max), ready, count_max))
            position = ready[count - 1].seq_id + 1
            ready = ready[count:]
        assert self.bq.browse(position, count_max, bytes_max) is None

    # --- settling ---------------------------------------------------------------------------------

    def settle(self, picks: list[int], verb: Callable[[list[int]], int]) -> list[Message]:
        held = self.held()
        chosen = [held[pick % len(held)] for pick in picks] if held else []
        known = [message for message in dict.fromkeys(chosen) if message.pending]
        assert verb([-1, *[message.seq_id for message in chosen], 1 << 60]) == len(known)
        return known

    @rule(picks=PICKS)
    def ack(self, picks: list[int]) -> None:
        self.remove(self.settle(picks, self.bq.ack))

    @rule(picks=PICKS)
    def requeue(self, picks: list[int]) -> None:
        for message in self.settle(picks, self.bq.requeue):
            message.pending = False

    @rule()
    def purge(self) -> None:
        gone = [message for message in self.held() if not message.pending]
        if len(gone) >= 8:
            assert self.bq.purge() == len(gone)
            self.remove(gone)

    @invariant()
    def equals_the_model(self) -> None:
        folded: list[tuple[int, bytes, bool]] = []
        self.bq.fold(lambda seq_id, entry, pending: folded.append((seq_id, body_bytes(entry[1]), pending)) or True)  # type: ignore[func-returns-value]
        held = self.held()
        assert [(payload, pending) for _, payload, pending in folded] == [(one.payload, one.pending) for one in held]
        for message, (seq_id, _, _) in zip(held, folded, strict=True):
            assert message.seq_id in (-1, seq_id), "the seq_id of a message never changes"
            message.seq_id = seq_id
        assert [one.seq_id for one in held] == sorted({one.seq_id for one in held})
        ready = self.ready()
        assert (len(self.bq), self.bq.is_empty(), self.bq.depth()) == (len(ready), not ready, len(held))
        assert self.bq.ready_bytes() == sum(len(one.payload) for one in ready)
        head = self.bq.head_props()
        assert (-1 if head is None else head.expiry_ms) == (ready[0].expiry_ms if ready else -1)
        self.bq.check_invariants()


# Passes in seconds; but a failure is shrunk first, and a timeout meanwhile would be taken for a second, flaky failure.
@pytest.mark.timeout(3_600 if DEEP else 600)
def test_every_sequence_of_calls_leaves_what_the_lists_of_levels_hold() -> None:
    run_state_machine_as_test(
        PriorityMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
