"""Whatever queues do, and in whatever order: a publisher hears of each of its publishes exactly once, and the truth.

HYPOTHESIS_PROFILE=deep searches much longer.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from penstock.server.channel.confirms import ConfirmLedger, PublishedRun
from tests.effort import DEEP, examples

EXAMPLES, STEPS = examples(60, deep=1_500), 60 if DEEP else 30
OPEN, SETTLED, REFUSED = "open", "settled", "refused"


class Client:
    """Keeps its unconfirmed publishes as client libraries do, and is told when there is something to hear."""

    def __init__(self) -> None:
        self.unconfirmed: set[int] = set()
        self.acked: set[int] = set()
        self.nacked: set[int] = set()
        self.told = False

    def confirms_ready(self) -> None:
        assert not self.told, "told twice before a flush"
        self.told = True

    def hear(self, number: int, multiple: bool, is_ack: bool) -> set[int]:
        """The publishes that an answer is about."""
        assert number in self.unconfirmed, f"{number} is confirmed and is not waited for"
        covered = {known for known in self.unconfirmed if known <= number} if multiple else {number}
        self.unconfirmed -= covered
        (self.acked if is_ack else self.nacked).update(covered)
        return covered


class ConfirmMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.client = Client()
        self.ledger = ConfirmLedger(self.client.confirms_ready)
        self.next_number = 1
        # Runs whose queues have not all spoken, and what is true of each publish.
        self.waiting: list[PublishedRun] = []
        self.truth: dict[int, str] = {}

    def numbers(self, run: PublishedRun) -> range:
        return range(run.first, run.first + run.count)

    def declare(self, run: PublishedRun, verdict: str) -> None:
        for number in self.numbers(run):
            if self.truth[number] == OPEN:
                self.truth[number] = verdict

    @rule(count=st.integers(1, 5), queues=st.integers(0, 3))
    def publish(self, count: int, queues: int) -> None:
        run = self.ledger.open_run(count, queues)
        assert run.first == self.next_number
        self.next_number += count
        self.truth.update(dict.fromkeys(self.numbers(run), OPEN))
        self.client.unconfirmed.update(self.numbers(run))
        if queues:
            self.waiting.append(run)
        else:
            run.complete()
            self.declare(run, SETTLED)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_queue_settles(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.waiting))
        run.settle()
        if run.waiting == 0:
            self.waiting.remove(run)
            self.declare(run, SETTLED)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_queue_refuses(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.waiting))
        run.refuse()
        self.declare(run, REFUSED)

    @rule()
    def flush(self) -> None:
        settled = {number for number, verdict in self.truth.items() if verdict != OPEN}
        due = settled & self.client.unconfirmed
        assert self.client.told == bool(due)
        self.client.told = False
        heard: set[int] = set()
        for number, multiple, is_ack in self.ledger.flush():
            covered = self.client.hear(number, multiple, is_ack)
            assert not heard & covered
            heard |= covered
            verdicts = {self.truth[covered_number] for covered_number in covered}
            assert verdicts == {SETTLED if is_ack else REFUSED}
        assert heard == due

    @invariant()
    def the_ledger_knows_what_is_open(self) -> None:
        unsettled = sum(run.count for run in self.ledger._open if not run.settled)
        assert unsettled == sum(verdict == OPEN for verdict in self.truth.values())

    def teardown(self) -> None:
        for run in self.waiting:
            while run.waiting:
                run.settle()
            self.declare(run, SETTLED)
        self.flush()
        assert self.client.unconfirmed == set()
        assert self.client.acked == {number for number, verdict in self.truth.items() if verdict == SETTLED}
        assert self.client.nacked == {number for number, verdict in self.truth.items() if verdict == REFUSED}


def test_each_publish_is_confirmed_exactly_once_and_as_it_was_settled() -> None:
    run_state_machine_as_test(
        ConfirmMachine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
    )
