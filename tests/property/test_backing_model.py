"""Any sequence of calls leaves a backing queue where the list model says it must be.

HYPOTHESIS_PROFILE=deep searches much longer.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.backing.backing_queue import BackingQueue
from penstock.message import Entry, Envelope, Incoming, MessageProps, unlike
from tests.contract.backings import BACKING_PARAMETERS, Backing, OpenBacking, expired_at
from tests.contract.model import GONE, PENDING, READY, BackingModel, content
from tests.contract.noted_token import NotedToken, confirmed
from tests.effort import DEEP, examples

EXAMPLES, STEPS = examples(200, deep=5_000), 100 if DEEP else 50
# A restart of what keeps nothing leaves an empty queue: not too often.
RESTART_AFTER_STEPS = 20
PURGE_FROM = 12

# Few values, so that bodies often fit exactly, or miss by one; and so that several at the head expire together.
SIZES = st.lists(st.sampled_from([0, 0, 1, 3, 12]), min_size=1, max_size=10)
BYTES = st.sampled_from([0, 1, 2, 3, 4, 12, 13, 15, 24, 60])
EXPIRIES_MS = st.sampled_from([-1, 10, 20, 30])
NOWS_MS = st.sampled_from([10, 20, 30])
COUNTS = st.integers(1, 12)
ACK_REQUIRED = st.sampled_from([True, True, True, False])
# Which of the candidates a verb gets, and whether these are pending messages or any numbers.
PICKS = st.lists(st.integers(0, 99), max_size=8)


# Most calls do nothing on an empty queue, and a purge makes it empty: without these most steps would be wasted.
some_ready = precondition(lambda self: self.model.in_state(READY))
some_pending = precondition(lambda self: self.model.in_state(PENDING))
many_held = precondition(lambda self: len(self.model.contents()) >= PURGE_FROM)


class BackingMachine(RuleBasedStateMachine):
    def __init__(self, spec: Backing) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-model-")
        self.backing = OpenBacking(spec, Path(self.folder.name), persistent=True)
        self.model = BackingModel(spec.keeps_transient)
        self.steps = 0

    @property
    def bq(self) -> BackingQueue:
        return self.backing.queue

    def chosen(self, picks: Sequence[int], known: bool) -> list[int]:
        pool = [held.seq_id for held in self.model.in_state(PENDING)] if known else []
        # Known ones in any state, and some that were never used.
        pool = pool or [-1, *self.model.messages, *range(self.model.next_seq_id, self.model.next_seq_id + 3)]
        return [pool[pick % len(pool)] for pick in picks]

    def run_of(
        self, sizes: Sequence[int], expiry_ms: int, confirm: bool, persistent: bool
    ) -> tuple[Envelope, list[bytes], MessageProps | None]:
        first = self.model.next_seq_id
        envelope = Envelope("exchange", f"key.{first}", b"\x00\x00", persistent=persistent)
        bodies = [b"%c" % (97 + (first + index) % 26) * size + b"\xce" for index, size in enumerate(sizes)]
        if expiry_ms < 0 and not confirm:
            return envelope, bodies, None
        return envelope, bodies, MessageProps(expiry_ms, NotedToken() if confirm else None)

    # --- publishing -------------------------------------------------------------------------------

    @rule(sizes=SIZES, expiry_ms=EXPIRIES_MS, confirm=st.booleans(), persistent=st.booleans(), delivered=st.booleans())
    def publish(self, sizes: list[int], expiry_ms: int, confirm: bool, persistent: bool, delivered: bool) -> None:
        envelope, bodies, props = self.run_of(sizes, expiry_ms, confirm, persistent)
        first = self.bq.publish(Incoming(envelope, bodies), props, delivered)
        self.model.publish(first, envelope, bodies, props, READY, delivered)

    @initialize(runs=st.lists(SIZES, min_size=1, max_size=4), expiry_ms=EXPIRIES_MS, taken=st.integers(0, 20))
    def begin(self, runs: list[list[int]], expiry_ms: int, taken: int) -> None:
        for sizes in runs:
            self.publish_plain(sizes, expiry_ms)
        self.consume(taken + 1)

    @rule(sizes=SIZES, expiry_ms=EXPIRIES_MS)
    def publish_plain(self, sizes: list[int], expiry_ms: int) -> None:
        """Most messages were never seen and are not confirmed; without this rule long fresh runs would be rare."""
        self.publish(sizes, expiry_ms, confirm=False, persistent=True, delivered=False)

    @rule(sizes=SIZES, expiry_ms=EXPIRIES_MS)
    def publish_entries(self, sizes: list[int], expiry_ms: int) -> None:
        envelope, bodies, props = self.run_of(sizes, expiry_ms, False, True)
        first = self.bq.publish(unlike([(envelope, body, None) for body in bodies]), props)
        self.model.publish(first, envelope, bodies, props, READY, False)

    @rule(sizes=SIZES)
    def discard(self, sizes: list[int]) -> None:
        envelope, bodies, _ = self.run_of(sizes, -1, True, True)
        self.bq.discard(Incoming(envelope, bodies))

    @rule()
    def drain_confirmed(self) -> None:
        self.model.confirm(confirmed(self.bq))
        late = [run for run in self.model.owed if not run.persistent]
        assert not late, "a transient run is confirmed as soon as it is held"

    @rule()
    def settle(self) -> None:
        self.model.confirm(self.backing.settle())
        assert not self.model.owed, "the backing asks for nothing more, but owes confirms"

    # --- fetching ---------------------------------------------------------------------------------

    @rule(count_max=COUNTS, bytes_max=BYTES, ack_required=ACK_REQUIRED)
    def fetch(self, count_max: int, bytes_max: int, ack_required: bool) -> None:
        run = self.bq.fetch(count_max, bytes_max, ack_required)
        self.model.take(self.model.check_run(run, self.model.in_state(READY), count_max, bytes_max), ack_required)

    @rule(count_max=COUNTS)
    def consume(self, count_max: int) -> None:
        self.fetch(count_max, 1_000, ack_required=True)

    @some_ready
    @rule(picks=PICKS, known=st.booleans())
    def fetch_at(self, picks: list[int], known: bool) -> None:
        ready = {held.seq_id: held for held in self.model.in_state(READY)}
        pool = list(ready)
        seq_ids = [pool[pick % len(pool)] for pick in picks] if known else self.chosen(picks, known=False)
        expected = [ready[seq_id] for seq_id in dict.fromkeys(seq_ids) if seq_id in ready]
        found = [(seq_id, content(entry)) for seq_id, entry in self.bq.fetch_at(seq_ids)]
        assert found == [(held.seq_id, content(held.entry)) for held in expected]
        self.model.take(expected, ack_required=True)

    @some_ready
    @rule(pick=st.integers(0, 99), count=st.integers(1, 20), stride=st.integers(1, 3), then=st.sampled_from("kab"))
    def fetch_a_range_at(self, pick: int, count: int, stride: int, then: str) -> None:
        """Neighbours from the middle: keep them, acknowledge them, or give them back."""
        ready = [held.seq_id for held in self.model.in_state(READY)]
        first = pick % len(ready)
        seq_ids = ready[first : first + count : stride]
        assert [seq_id for seq_id, _ in self.bq.fetch_at(seq_ids)] == seq_ids
        self.model.take([self.model.messages[seq_id] for seq_id in seq_ids], ack_required=True)
        if then == "a":
            assert self.bq.ack(seq_ids) == self.model.settle(seq_ids, GONE)
        elif then == "b":
            assert self.bq.requeue(seq_ids) == self.model.settle(seq_ids, READY)

    @some_ready
    @rule()
    def get_without_ack(self) -> None:
        self.fetch(1, 0, ack_required=False)

    @some_ready
    @rule(ack_required=ACK_REQUIRED)
    def drop(self, ack_required: bool) -> None:
        head = self.model.in_state(READY)[:1]
        dropped = self.bq.drop(ack_required)
        assert [held.seq_id for held in head] == ([] if dropped is None else [dropped])
        self.model.take(head, ack_required)

    @some_ready
    @rule(now_ms=NOWS_MS)
    def dropwhile(self, now_ms: int) -> None:
        expired = self.model.head_while(expired_at(now_ms))
        assert self.bq.dropwhile(expired_at(now_ms)) == len(expired)
        self.model.take(expired, ack_required=False)

    @some_ready
    @rule(now_ms=NOWS_MS)
    def fetchwhile(self, now_ms: int) -> None:
        expired = self.model.head_while(expired_at(now_ms))
        shown: list[tuple[int, tuple[object, ...]]] = []
        count = self.bq.fetchwhile(expired_at(now_ms), lambda seq_id, entry: shown.append((seq_id, content(entry))))
        assert count == len(expired)
        assert shown == [(held.seq_id, content(held.entry)) for held in expired]
        self.model.take(expired, ack_required=True)

    @some_ready
    @rule(pick=st.integers(0, 99), count_max=COUNTS, bytes_max=BYTES)
    def browse(self, pick: int, count_max: int, bytes_max: int) -> None:
        """To the end, as a browser does, from any position."""
        from_seq_id = self.chosen([pick], known=False)[0]
        ready = [held for held in self.model.in_state(READY) if held.seq_id >= from_seq_id]
        while ready:
            shown = self.bq.browse(from_seq_id, count_max, bytes_max)
            count = len(self.model.check_run(shown, ready, count_max, bytes_max))
            from_seq_id = ready[count - 1].seq_id + 1
            ready = ready[count:]
        assert self.bq.browse(from_seq_id, count_max, bytes_max) is None

    # --- settling ---------------------------------------------------------------------------------

    @some_pending
    @rule(picks=PICKS, known=st.booleans())
    def ack(self, picks: list[int], known: bool) -> None:
        seq_ids = self.chosen(picks, known)
        assert self.bq.ack(seq_ids) == self.model.settle(seq_ids, GONE)

    @some_pending
    @rule(picks=PICKS, known=st.booleans())
    def requeue(self, picks: list[int], known: bool) -> None:
        seq_ids = self.chosen(picks, known)
        assert self.bq.requeue(seq_ids) == self.model.settle(seq_ids, READY)

    @some_pending
    @rule(pick=st.integers(0, 99), count=st.integers(0, 20), back=st.booleans())
    def settle_a_range(self, pick: int, count: int, back: bool) -> None:
        first = self.chosen([pick], known=True)[0]
        seq_ids = range(first, first + count)
        verb, state = (self.bq.requeue, READY) if back else (self.bq.ack, GONE)
        assert verb(seq_ids) == self.model.settle(seq_ids, state)

    @rule(count_max=COUNTS, stride=st.integers(1, 3), backwards=st.booleans())
    def take_and_return(self, count_max: int, stride: int, backwards: bool) -> None:
        """As when a channel closes with messages on their way; a stride leaves holes."""
        self.consume(count_max)
        seq_ids = [held.seq_id for held in self.model.in_state(PENDING)][::stride]
        if backwards:
            seq_ids.reverse()
        assert self.bq.requeue(seq_ids) == self.model.settle(seq_ids, READY)

    @some_pending
    @rule(picks=PICKS, known=st.booleans())
    def ackfold(self, picks: list[int], known: bool) -> None:
        seq_ids = list(dict.fromkeys(self.chosen(picks, known)))
        shown: list[tuple[int, tuple[object, ...]]] = []
        self.bq.ackfold(lambda seq_id, entry: shown.append((seq_id, content(entry))), seq_ids)
        pending = {held.seq_id: content(held.entry) for held in self.model.in_state(PENDING)}
        assert shown == [(seq_id, pending[seq_id]) for seq_id in seq_ids if seq_id in pending]

    # --- all messages -----------------------------------------------------------------------------

    @many_held
    @rule()
    def purge(self) -> None:
        assert self.bq.purge() == self.model.forget(READY)

    @rule(stop_after=st.integers(1, 12))
    def fold_in_part(self, stop_after: int) -> None:
        shown: list[tuple[int, tuple[object, ...], bool]] = []

        def visit(seq_id: int, entry: Entry, pending: bool) -> bool:
            shown.append((seq_id, content(entry), pending))
            return len(shown) < stop_after

        self.bq.fold(visit)
        assert shown == self.model.contents()[:stop_after]

    # --- life -------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 1.0, math.inf]), lazy=st.booleans())
    def hint(self, seconds: float, lazy: bool) -> None:
        """None of these may change a message."""
        self.bq.set_ram_duration_target(seconds)
        self.bq.set_queue_mode(lazy)
        self.bq.resume()
        self.bq.timeout()
        self.bq.invoke("another", lambda inner: inner.delete_and_terminate())

    @precondition(lambda self: self.backing.spec.survives or self.steps >= RESTART_AFTER_STEPS)
    @rule(clean=st.booleans(), drained=st.booleans())
    def restart(self, clean: bool, drained: bool) -> None:
        self.steps = 0
        if drained:
            self.drain_confirmed()
        if clean:
            self.backing.restart()
        else:
            self.backing.crash()
        # What was told until the end of that life counts: it has to be there.
        self.model.confirm(NotedToken.told)
        NotedToken.told.clear()
        found = self.backing.folded()
        assert not any(pending for _, _, pending in found)
        self.model.recover([(seq_id, entry) for seq_id, entry, _ in found], clean, self.backing.spec.survives)

    @invariant()
    def equals_the_model(self) -> None:
        self.steps += 1
        ready, pending = self.model.in_state(READY), self.model.in_state(PENDING)
        assert (len(self.bq), self.bq.is_empty()) == (len(ready), not ready)
        assert self.bq.depth() == len(ready) + len(pending)
        assert self.bq.ready_bytes() == self.model.bytes_in(READY)
        assert self.bq.pending_bytes() == self.model.bytes_in(PENDING)
        assert [
            (seq_id, content(entry), held) for seq_id, entry, held in self.backing.folded()
        ] == self.model.contents()
        head = self.bq.head_props()
        expected = ready[0].entry[2] if ready else None
        assert (-1 if head is None else head.expiry_ms) == (-1 if expected is None else expected.expiry_ms)
        self.bq.check_invariants()

    def teardown(self) -> None:
        try:
            self.model.confirm(self.backing.settle())
            assert not self.model.owed
            self.bq.delete_and_terminate()
            self.backing.open_queues.stop()
        finally:
            self.folder.cleanup()


# Passes in seconds; but a failure is shrunk first, and a timeout meanwhile would be taken for a second, flaky failure.
@pytest.mark.timeout(3_600 if DEEP else 600)
@pytest.mark.parametrize("spec", BACKING_PARAMETERS)
def test_every_sequence_of_calls_leaves_what_the_model_holds(spec: Backing) -> None:
    run_state_machine_as_test(
        lambda: BackingMachine(spec),
        settings=settings(
            max_examples=EXAMPLES // spec.cost,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
