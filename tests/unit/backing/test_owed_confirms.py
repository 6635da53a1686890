"""Confirms that wait for a batch: one question per batch, each token once, refused when the disk fails."""

from __future__ import annotations

import errno

import pytest
from backing_house import Parts, envelope

from penstock.backing.variable.owed_confirms import OwedConfirms
from penstock.message import ConfirmToken, Incoming


class Token(ConfirmToken):
    def __init__(self) -> None:
        super().__init__(1)
        self.outcomes: list[str] = []

    def complete(self) -> None:
        self.outcomes.append("ack")

    def refuse(self) -> None:
        self.outcomes.append("nack")


class Bench:
    def __init__(self) -> None:
        self.parts = Parts()
        self.owed = OwedConfirms(self.parts.node.journal)

    def add(self, persistent: bool = True, token: Token | None = None) -> Token:
        token = token or Token()
        if persistent:
            self.parts.node.journal.publish(self.parts.queue_no, 0, Incoming(envelope(), [b"x\xce"]), -1)
        self.owed.add(token, persistent)
        return token


def outcomes(tokens: list[Token]) -> list[str]:
    return [outcome for token in tokens for outcome in token.outcomes]


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
    assert len(bench.parts.node.journal._waiters) == 1
    assert outcomes(tokens) == []
    bench.parts.commit()
    assert outcomes(tokens) == ["ack"] * 50
    assert (bench.owed.drain(), bench.owed.is_waiting()) == ([], False)


def test_batches_are_answered_one_by_one() -> None:
    bench = Bench()
    first = bench.add()
    bench.parts.commit()
    second = bench.add()
    assert outcomes([first, second]) == ["ack"]
    assert bench.owed.is_waiting()
    bench.parts.commit()
    assert outcomes([first, second]) == ["ack", "ack"]
    assert not bench.owed.is_waiting()


class FailingToken(Token):
    def complete(self) -> None:
        raise ValueError("a bug")


def test_a_token_that_raises_keeps_no_other_one_from_its_answer() -> None:
    bench = Bench()
    before, _, behind = bench.add(), bench.add(token=FailingToken()), bench.add()
    with pytest.raises(ValueError, match="a bug"):
        bench.parts.commit()
    assert outcomes([before, behind]) == ["ack", "ack"]
    assert not bench.owed.is_waiting()


def test_what_was_taken_back_is_told_nothing() -> None:
    bench = Bench()
    written, gathered, transient = bench.add(), bench.add(), bench.add(persistent=False)
    assert sorted(map(id, bench.owed.take())) == sorted(map(id, [written, gathered, transient]))
    assert not bench.owed.is_waiting()
    bench.parts.commit()
    assert (outcomes([written, gathered, transient]), bench.owed.take()) == ([], [])


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
    assert (bench.owed.drain(), token.outcomes) == ([], [])


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_when_the_journal_fails_tokens_are_refused_once_and_later_ones_at_once(call: str) -> None:
    bench = Bench()
    token = bench.add()
    bench.parts.disk.plan.fail(errno.EIO, call, "journal/")
    bench.parts.commit()
    assert (token.outcomes, bench.owed.drain(), bench.owed.is_waiting()) == (["nack"], [], False)
    late = bench.add()
    assert (late.outcomes, bench.owed.drain(), bench.owed.is_waiting()) == (["nack"], [], False)
