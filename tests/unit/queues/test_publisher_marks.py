"""Who published what: marks are right while they are kept, and forgotten in time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backing.volatile import VolatileBackingQueue
from penstock.message import Envelope, Incoming
from penstock.queues.consumers.publisher_marks import NoLocal, PublisherMarks, attached, detached

ANNA, BERT = object(), object()
ENVELOPE = Envelope("", "q", b"\x00\x00")


def publish(backing: VolatileBackingQueue, marks: PublisherMarks | None, publisher: object, count: int = 1) -> int:
    first = backing.publish(Incoming(ENVELOPE, [b"x\xce"] * count), None)
    if marks is not None:
        marks.published(publisher, first, count)
        marks.check_invariants()
    return first


def test_each_message_is_its_publishers_and_nobody_elses() -> None:
    backing = VolatileBackingQueue()
    marks = PublisherMarks(backing)
    publish(backing, None, ANNA, 3)
    for publisher, count in ((ANNA, 2), (BERT, 3), (ANNA, 1)):
        publish(backing, marks, publisher, count)
    assert [seq_id for seq_id in range(-1, 12) if marks.is_by(ANNA, seq_id)] == [3, 4, 8]
    assert [seq_id for seq_id in range(-1, 12) if marks.is_by(BERT, seq_id)] == [5, 6, 7]


def test_runs_of_one_publisher_are_one_stretch() -> None:
    backing = VolatileBackingQueue()
    marks = PublisherMarks(backing)
    for _ in range(1000):
        publish(backing, marks, ANNA, 7)
    assert marks.stretch_count() == 1
    assert marks.is_by(ANNA, 6_999)
    assert not marks.is_by(ANNA, 7_000)


def test_numbers_that_do_not_grow_are_marked_all_the_same() -> None:
    marks = PublisherMarks(VolatileBackingQueue())
    marks.published(ANNA, 1000, 2)
    marks.published(BERT, 10, 1)
    marks.published(ANNA, 1002, 1)
    marks.published(ANNA, 11, 5)
    marks.check_invariants()
    assert [seq_id for seq_id in (9, 10, 11, 15, 16, 999, 1000, 1002, 1003) if marks.is_by(ANNA, seq_id)] == [
        *(11, 15, 1000, 1002)
    ]
    assert marks.is_by(BERT, 10)


def test_what_has_left_the_queue_is_forgotten_when_room_is_needed() -> None:
    backing = VolatileBackingQueue()
    marks = PublisherMarks(backing, stretches_max=10)
    for number in range(1000):
        publish(backing, marks, (ANNA, BERT)[number % 2])
        backing.fetch(1, 0, False)
    assert marks.stretch_count() <= 10
    last = publish(backing, marks, BERT)
    assert marks.is_by(BERT, last)


def test_an_unacknowledged_message_keeps_its_mark() -> None:
    backing = VolatileBackingQueue()
    marks = PublisherMarks(backing, stretches_max=10)
    for number in range(100):
        publish(backing, marks, (ANNA, BERT)[number % 2])
    run = backing.fetch(100, 10_000, True)
    assert run is not None
    backing.ack([seq_id for seq_id in range(100) if seq_id != 96])
    for number in range(6):
        publish(backing, marks, (ANNA, BERT)[number % 2])
        backing.fetch(1, 0, False)
    assert marks.is_by(ANNA, 96)


def test_of_too_many_stretches_the_oldest_are_nobodys() -> None:
    backing = VolatileBackingQueue()
    marks = PublisherMarks(backing, stretches_max=10)
    for number in range(11):
        publish(backing, marks, (ANNA, BERT)[number % 2])
    assert marks.stretch_count() == 5
    assert not marks.is_by(ANNA, 0)
    assert marks.is_by(ANNA, 10)


def test_marks_are_kept_while_a_consumer_needs_them() -> None:
    backing = VolatileBackingQueue()
    anna, bert = NoLocal(ANNA), NoLocal(BERT)
    marks = attached(None, anna, backing)
    assert attached(marks, bert, backing) is marks
    first = publish(backing, marks, ANNA)
    assert (anna.refuses(first), bert.refuses(first)) == (True, False)
    assert detached(marks, anna) is marks
    assert not anna.refuses(first)
    assert detached(marks, bert) is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=60))
def test_no_message_is_taken_for_anothers(runs: list[tuple[bool, int]]) -> None:
    backing = VolatileBackingQueue()
    marks = PublisherMarks(backing, stretches_max=8)
    truth: list[object] = []
    for by_anna, count in runs:
        publisher = ANNA if by_anna else BERT
        publish(backing, marks, publisher, count)
        truth += [publisher] * count
    for seq_id, publisher in enumerate(truth):
        assert not marks.is_by(BERT if publisher is ANNA else ANNA, seq_id)
    if truth:
        assert marks.is_by(truth[-1], len(truth) - 1)
