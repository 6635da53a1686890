"""Tags that have lapsed: a set as ranges, and what a channel does with them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_house import House, Inbox
from tests.taken import all_taken, taken_through

from penstock.errors import ChannelException
from penstock.server.channel.lapsed_tags import LapsedTags
from penstock.server.channel.unacked import Span, Unacked, UnackedRun


def members(tags: LapsedTags, last: int = 60) -> set[int]:
    return {tag for tag in range(last + 1) if tag in tags}


STEPS = st.lists(st.tuples(st.sampled_from(("add", "discard")), st.integers(1, 40), st.integers(0, 8)), max_size=30)


@settings(deadline=None)
@given(STEPS)
def test_ranges_hold_what_a_set_would_hold(steps: list[tuple[str, int, int]]) -> None:
    tags, model = LapsedTags(), set[int]()
    for step, first, more in steps:
        span = set(range(first, first + more + 1))
        if step == "add":
            # A tag lapses once.
            if span & model:
                continue
            tags.add(first, first + more)
            model |= span
        else:
            tags.discard(first, first + more)
            model -= span
        assert members(tags) == model
        ranges = tags.ranges()
        assert all(low <= high for low, high in ranges)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


def test_the_lowest_are_forgotten_when_there_are_too_many_ranges() -> None:
    tags = LapsedTags(ranges_max=3)
    for tag in (1, 3, 5, 7):
        tags.add(tag, tag)
    assert members(tags) == {3, 5, 7}
    tags.add(9, 20)
    tags.discard(12, 13)
    assert tags.ranges() == [(7, 7), (9, 11), (14, 20)]


class Deliveries:
    """Runs of ten messages delivered to a channel, each with a time of its own."""

    def __init__(self, *due_ms: int) -> None:
        self.unacked = Unacked()
        self.house = House()
        self.inbox = Inbox()
        for index, due in enumerate(due_ms):
            first_tag = 1 + 10 * index
            # seq_id = tag + 100.
            self.unacked.add(first_tag, 10, UnackedRun(self.house.queue, self.inbox, 100, due))


def numbers(spans: list[Span]) -> list[tuple[int, int]]:
    return [(first, count) for _, first, count in spans]


def test_what_is_due_lapses_and_the_rest_stays() -> None:
    channel = Deliveries(500, -1, 400, 600)
    assert channel.unacked.next_due_ms() == 400
    assert channel.unacked.lapse(399, 100) == []
    assert numbers(channel.unacked.lapse(500, 100)) == [(101, 10), (121, 10)]
    assert len(channel.unacked) == 20
    assert channel.unacked.next_due_ms() == 600
    assert numbers(channel.unacked.lapse(10_000, 100)) == [(131, 10)]
    assert channel.unacked.next_due_ms() == -1
    assert len(channel.unacked) == 10


def test_no_more_lapses_at_once_than_was_asked_for() -> None:
    channel = Deliveries(500, -1, 400, 600, 300)
    assert numbers(channel.unacked.lapse(500, 2)) == [(101, 10), (121, 10)]
    assert channel.unacked.next_due_ms() == 300
    assert numbers(channel.unacked.lapse(500, 2)) == [(141, 10)]


def test_what_was_settled_in_time_does_not_lapse() -> None:
    channel = Deliveries(500)
    channel.unacked.take(3, 5)
    channel.unacked.take(9, 9)
    assert numbers(channel.unacked.lapse(500, 100)) == [(101, 2), (106, 3), (110, 1)]


def test_a_late_word_about_a_lapsed_tag_settles_nothing_once() -> None:
    channel = Deliveries(500, -1)
    channel.unacked.lapse(500, 100)
    assert channel.unacked.take(4, 4) == []
    with pytest.raises(ChannelException) as refused:
        channel.unacked.take(4, 4)
    assert refused.value.reply_text == "PRECONDITION_FAILED - unknown delivery tag 4"
    assert len(channel.unacked) == 10


def test_a_range_with_lapsed_and_living_tags_settles_the_living_ones() -> None:
    channel = Deliveries(500, -1)
    channel.unacked.lapse(500, 100)
    assert numbers(channel.unacked.take(8, 12)) == [(111, 2)]
    assert len(channel.unacked) == 8


def test_a_range_with_an_unknown_tag_settles_nothing_also_where_others_have_lapsed() -> None:
    channel = Deliveries(500, -1)
    channel.unacked.lapse(500, 100)
    channel.unacked.take(12, 12)
    with pytest.raises(ChannelException) as refused:
        channel.unacked.take(8, 13)
    assert refused.value.reply_text == "PRECONDITION_FAILED - unknown delivery tag 12"
    assert len(channel.unacked) == 9
    assert numbers(channel.unacked.take(8, 11)) == [(111, 1)]


def test_multiple_up_to_a_lapsed_tag_settles_what_is_left_below_it() -> None:
    channel = Deliveries(-1, 500, -1)
    channel.unacked.lapse(500, 100)
    assert numbers(taken_through(channel.unacked, 15)) == [(101, 10)]
    # The word was said for all of them.
    with pytest.raises(ChannelException):
        channel.unacked.take(15, 15)
    assert channel.unacked.take(16, 16) == []
    assert numbers(taken_through(channel.unacked, 30)) == [(121, 10)]


def test_multiple_zero_is_a_word_about_every_lapsed_tag() -> None:
    channel = Deliveries(500)
    channel.unacked.lapse(500, 100)
    assert taken_through(channel.unacked, 0) == []
    with pytest.raises(ChannelException):
        channel.unacked.take(1, 1)


def test_taking_all_leaves_late_words_harmless() -> None:
    channel = Deliveries(500, -1)
    channel.unacked.lapse(500, 100)
    assert numbers(all_taken(channel.unacked)) == [(111, 10)]
    assert channel.unacked.take(10, 10) == []
