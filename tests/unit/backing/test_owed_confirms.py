"""Confirms that wait for a batch: one question per batch, each token once, refused when the disk fails."""

from __future__ import annotations

import errno

import pytest
from backing_house import Parts, envelope

from penstock.backing.backing_queue import BackingWork
from penstock.backing.variable.owed_confirms import OwedConfirms
from penstock.message import ConfirmToken, Incoming


class Token(ConfirmToken):
    def __init__(self) -> None:
        super().__init__(1)
        self.refusals = 0

    def refuse(self) -> None:
        self.refusals += 1


class Bench:
    def __init__(self) -> None:
        self.parts = Parts()
        self.posted: list[BackingWork] = []
        self.owed = OwedConfirms(self.parts.node.journal, "variable", self.post)

    def post(self, kind: str, work: BackingWork) -> None:
        assert kind == "variable"
        self.posted.append(work)

    def add(self, persistent: bool = True) -> Token:
        token = Token()
        if persistent:
            self.parts.node.journal.publish(self.parts.queue_no, 0, Incoming(envelope(), [b"x\xce"]), -1)
        self.owed.add(token, persistent)
        return token

    def run(self) -> None:
        posted, self.posted = self.posted, []
        for work in posted:
            # The work knows its owner; the backing that it is given is not asked.
            work(None)  # type: ignore[arg-type]


def test_a_transient_run_is_due_at_once() -> None:
    bench = Bench()
    token = bench.add(persistent=False)
    assert not bench.owed.is_waiting()
    assert bench.owed.drain() == [token]
    assert bench.owed.drain() == []


def test_all_runs_of_a_batch_are_answered_with_one_question() -> None:
    bench = Bench()
    tokens = [bench.add() for _ in range(50)]
    assert bench.owed.is_waiting()
    bench.parts.commit()
    assert (len(bench.posted), bench.owed.drain()) == (1, [])
    bench.run()
    assert bench.owed.drain() == tokens
    assert not bench.owed.is_waiting()


def test_batches_are_answered_one_by_one() -> None:
    bench = Bench()
    first = bench.add()
    bench.parts.commit()
    second = bench.add()
    bench.run()
    assert bench.owed.drain() == [first]
    assert bench.owed.is_waiting()
    bench.parts.commit()
    bench.run()
    assert bench.owed.drain() == [second]


def test_the_list_that_was_drained_does_not_grow() -> None:
    bench = Bench()
    empty = bench.owed.drain()
    first = bench.add(persistent=False)
    drained = bench.owed.drain()
    bench.add(persistent=False)
    assert (empty, drained) == ([], [first])


def test_a_deleted_queue_owes_everything_now_and_nothing_later() -> None:
    bench = Bench()
    token = bench.add()
    bench.owed.give_up()
    assert bench.owed.drain() == [token]
    bench.parts.commit()
    bench.run()
    assert (bench.owed.drain(), token.refusals) == ([], 0)


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_when_the_journal_fails_tokens_are_refused_once_and_later_ones_at_once(call: str) -> None:
    bench = Bench()
    token = bench.add()
    bench.parts.disk.plan.fail(errno.EIO, call, "journal/")
    bench.parts.commit()
    assert token.refusals == 0, "the owner has not run it yet"
    bench.run()
    assert (token.refusals, bench.owed.drain(), bench.owed.is_waiting()) == (1, [], False)
    late = bench.add()
    bench.run()
    assert (late.refusals, bench.owed.drain(), bench.owed.is_waiting()) == (1, [], False)
