"""Which journal segments a queue's messages can be in."""

from __future__ import annotations

import random

import pytest

from penstock.backing.zones.journal_spans import JournalSpans


def test_without_messages_there_is_no_segment() -> None:
    spans = JournalSpans()
    assert spans.oldest_from(0) == -1
    assert spans.end_of(5, 100) == 100


def test_a_span_begins_with_the_first_message_in_a_segment_and_ends_with_the_next_one() -> None:
    spans = JournalSpans()
    for seq_id, segment in [(0, 3), (4, 3), (9, 5), (12, 5), (20, 6)]:
        spans.note(seq_id, segment)
    assert [spans.end_of(segment, 99) for segment in (2, 3, 4, 5, 6, 7)] == [0, 9, 9, 20, 99, 99]
    assert [spans.oldest_from(seq_id) for seq_id in (0, 8, 9, 19, 20, 1000)] == [3, 3, 5, 5, 6, 6]


def test_what_was_passed_is_forgotten() -> None:
    spans = JournalSpans()
    for number in range(1000):
        spans.note(number * 10, number)
        spans.oldest_from(number * 10)
    assert len(spans._segments) == 1


@pytest.mark.parametrize(
    ("seq_id", "segment", "expected"),
    [
        (15, 5, {10: 3, 14: 3, 15: 5, 29: 5, 30: 8}),
        (10, 5, {10: 5, 29: 5, 30: 8}),
        (15, 8, {14: 3, 15: 8, 30: 8}),
        (15, 3, {15: 3, 29: 3, 30: 8}),
        (15, 2, {15: 3, 29: 3, 30: 8}),
        (35, 9, {29: 3, 30: 8, 34: 8, 35: 9}),
        (5, 4, {10: 3, 30: 8}),
    ],
)
def test_a_message_that_was_found_makes_a_span_narrower(seq_id: int, segment: int, expected: dict[int, int]) -> None:
    for at, oldest in expected.items():
        spans = JournalSpans()
        spans.note(10, 3)
        spans.note(30, 8)
        spans.narrow(seq_id, segment)
        assert spans.oldest_from(at) == oldest


@pytest.mark.parametrize("seed", range(20))
def test_no_message_is_ever_in_an_older_segment_than_its_span_says(seed: int) -> None:
    rng = random.Random(seed)
    segments: list[int] = []
    segment = 1
    for _ in range(100):
        segment += rng.choice([0, 0, 0, 1, 3])
        segments.append(segment)
    spans = JournalSpans()
    # After a start only the beginning is known, and some of the messages.
    spans.note(0, 1)
    for seq_id in sorted(rng.sample(range(60, 100), 10)):
        spans.note(seq_id, segments[seq_id])
    for seq_id in rng.sample(range(100), 20):
        spans.narrow(seq_id, segments[seq_id])
        assert spans._seq_ids == sorted(set(spans._seq_ids))
        assert spans._segments == sorted(set(spans._segments))
    low = 0
    while low < 100:
        assert spans.oldest_from(low) <= segments[low]
        low += rng.randrange(1, 20)
