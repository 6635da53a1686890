"""Publisher confirms: which numbers are reported, by how few answers."""

from __future__ import annotations

import pytest

from penstock.server.channel.confirms import ConfirmLedger

ACK, NACK = True, False


class Sink:
    """Counts how often it is told that there is something to flush."""

    def __init__(self) -> None:
        self.told = 0

    def confirms_ready(self) -> None:
        self.told += 1


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def ledger(sink: Sink) -> ConfirmLedger:
    return ConfirmLedger(sink.confirms_ready)


def unsettled_count(ledger: ConfirmLedger) -> int:
    return sum(run.count for run in ledger._open if not run.settled)


def test_nothing_is_reported_before_anything_is_settled(ledger: ConfirmLedger, sink: Sink) -> None:
    ledger.open_run(3, 1)
    assert ledger.flush() == []
    assert unsettled_count(ledger) == 3
    assert sink.told == 0


def test_a_single_publish_is_acknowledged_singly(ledger: ConfirmLedger) -> None:
    ledger.open_run(1, 1).settle()
    assert ledger.flush() == [(1, False, ACK)]
    assert ledger.flush() == []


def test_everything_below_the_oldest_open_publish_is_one_answer(ledger: ConfirmLedger) -> None:
    ledger.open_run(5, 1).settle()
    ledger.open_run(2, 1).settle()
    ledger.open_run(1, 1)
    assert ledger.flush() == [(7, True, ACK)]


def test_what_is_settled_above_an_open_publish_is_acknowledged_one_by_one(ledger: ConfirmLedger) -> None:
    ledger.open_run(1, 1).settle()
    waiting = ledger.open_run(2, 1)
    ledger.open_run(2, 1).settle()
    assert ledger.flush() == [(1, False, ACK), (4, False, ACK), (5, False, ACK)]
    waiting.settle()
    assert ledger.flush() == [(3, True, ACK)]


def test_a_run_is_settled_when_its_last_queue_has_it(ledger: ConfirmLedger, sink: Sink) -> None:
    run = ledger.open_run(2, 2)
    run.settle()
    assert (ledger.flush(), sink.told) == ([], 0)
    run.settle()
    assert ledger.flush() == [(2, True, ACK)]
    assert unsettled_count(ledger) == 0


def test_a_run_for_no_queue_is_completed_by_the_caller(ledger: ConfirmLedger) -> None:
    ledger.open_run(1, 0).complete()
    assert ledger.flush() == [(1, False, ACK)]


def test_a_refused_run_is_nacked_number_by_number(ledger: ConfirmLedger) -> None:
    ledger.open_run(2, 1).refuse()
    assert ledger.flush() == [(1, False, NACK), (2, False, NACK)]


def test_no_multiple_answer_covers_a_refused_publish_that_is_reported_with_it(ledger: ConfirmLedger) -> None:
    ledger.open_run(2, 1).settle()
    ledger.open_run(1, 1).refuse()
    ledger.open_run(2, 1).settle()
    assert ledger.flush() == [
        (1, False, ACK),
        (2, False, ACK),
        (3, False, NACK),
        (4, False, ACK),
        (5, False, ACK),
    ]


def test_a_refusal_by_one_queue_counts_whatever_the_others_say(ledger: ConfirmLedger) -> None:
    run = ledger.open_run(1, 2)
    run.refuse()
    run.settle()
    run.settle()
    assert ledger.flush() == [(1, False, NACK)]
    assert ledger.flush() == []


def test_a_settled_run_is_not_reported_twice(ledger: ConfirmLedger) -> None:
    run = ledger.open_run(1, 1)
    run.settle()
    ledger.flush()
    run.complete()
    run.refuse()
    assert ledger.flush() == []


def test_the_sink_is_told_once_until_it_flushes(ledger: ConfirmLedger, sink: Sink) -> None:
    ledger.open_run(1, 1).settle()
    ledger.open_run(1, 1).settle()
    assert sink.told == 1
    ledger.flush()
    ledger.open_run(1, 1).settle()
    assert sink.told == 2


def test_a_settled_token_does_not_keep_its_ledger(ledger: ConfirmLedger) -> None:
    settled, refused, waiting = ledger.open_run(1, 1), ledger.open_run(1, 1), ledger.open_run(1, 1)
    settled.settle()
    refused.refuse()
    assert (settled.ledger, refused.ledger, waiting.ledger) == (None, None, ledger)
