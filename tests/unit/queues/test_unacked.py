"""Unsettled deliveries: what is taken, in which spans, and what a mistake of the client leaves."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from queue_house import House, Inbox
from tests.taken import AT_ONCE, all_taken, taken_through

from penstock.errors import ChannelException
from penstock.server.channel.unacked import BUCKET, Span, Unacked, UnackedRun


class Deliveries:
    """The unsettled deliveries of a channel, and runs of a queue delivered to it."""

    def __init__(self) -> None:
        self.unacked = Unacked()
        self.house = House()
        self.next_tag = 1

    def deliver(self, first_seq_id: int, count: int, inbox: Inbox | None = None) -> UnackedRun:
        run = UnackedRun(self.house.queue, inbox, first_seq_id - self.next_tag)
        self.unacked.add(self.next_tag, count, run)
        self.next_tag += count
        return run


@pytest.fixture
def channel() -> Deliveries:
    return Deliveries()


def check_unknown(channel: Deliveries, tag: int, take: Callable[[], list[Span]]) -> None:
    """Taking is refused because of `tag`, and changes nothing."""
    before = len(channel.unacked)
    with pytest.raises(ChannelException) as refused:
        take()
    assert refused.value.reply_text == f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    assert len(channel.unacked) == before


def numbers(spans: list[Span]) -> list[tuple[int, int]]:
    return [(first_seq_id, count) for _, first_seq_id, count in spans]


def test_a_span_leads_from_the_tag_back_to_queue_consumer_and_position(channel: Deliveries) -> None:
    inbox = Inbox()
    run = channel.deliver(40, 3, inbox)
    [(taken, first_seq_id, count)] = channel.unacked.take(2, 2)
    assert taken is run
    assert (taken.queue, taken.consumer) == (channel.house.queue, inbox)
    assert (first_seq_id, count) == (41, 1)


def test_neighbouring_tags_of_one_run_are_one_span(channel: Deliveries) -> None:
    channel.deliver(10, 4)
    channel.deliver(100, 2)
    assert numbers(channel.unacked.take(2, 6)) == [(11, 3), (100, 2)]
    assert numbers(all_taken(channel.unacked)) == [(10, 1)]


def test_a_hole_divides_a_span(channel: Deliveries) -> None:
    channel.deliver(10, 5)
    channel.unacked.take(3, 3)
    assert numbers(taken_through(channel.unacked, 4)) == [(10, 2), (13, 1)]
    assert len(channel.unacked) == 1


def test_tag_0_through_means_everything_and_nothing_is_fine(channel: Deliveries) -> None:
    assert taken_through(channel.unacked, 0) == []
    channel.deliver(10, 2)
    channel.deliver(50, 1)
    assert numbers(taken_through(channel.unacked, 0)) == [(10, 2), (50, 1)]
    assert len(channel.unacked) == 0


def test_an_unknown_tag_is_refused_with_nothing_outstanding(channel: Deliveries) -> None:
    check_unknown(channel, 99, lambda: channel.unacked.take(99, 99))
    check_unknown(channel, 0, lambda: channel.unacked.take(0, 0))
    check_unknown(channel, 1, lambda: taken_through(channel.unacked, 1))


def test_a_tag_that_was_settled_is_unknown(channel: Deliveries) -> None:
    channel.deliver(10, 3)
    channel.unacked.take(2, 2)
    check_unknown(channel, 2, lambda: channel.unacked.take(2, 2))
    check_unknown(channel, 2, lambda: taken_through(channel.unacked, 2))
    check_unknown(channel, 4, lambda: taken_through(channel.unacked, 4))


@pytest.mark.parametrize(("first", "last", "unknown"), [(0, 2, 0), (2, 4, 3), (3, 4, 3), (5, 7, 6), (6, 6, 6)])
def test_a_range_with_an_unknown_tag_is_refused_as_a_whole(
    channel: Deliveries, first: int, last: int, unknown: int
) -> None:
    channel.deliver(10, 5)
    channel.unacked.take(3, 3)
    check_unknown(channel, unknown, lambda: channel.unacked.take(first, last))
    assert numbers(all_taken(channel.unacked)) == [(10, 2), (13, 2)]


def test_what_is_restored_can_be_taken_again(channel: Deliveries) -> None:
    channel.deliver(10, 5)
    spans = channel.unacked.take(1, 2) + channel.unacked.take(4, 4)
    channel.unacked.restore(spans, None)
    assert len(channel.unacked) == 5
    assert numbers(taken_through(channel.unacked, 3)) == [(10, 3)]
    assert numbers(all_taken(channel.unacked)) == [(13, 2)]


def test_what_is_restored_out_of_order_is_taken_in_the_order_of_delivery(channel: Deliveries) -> None:
    channel.deliver(10, 2)
    channel.deliver(50, 2)
    second, first = channel.unacked.take(3, 4), channel.unacked.take(1, 2)
    channel.unacked.restore(second, None)
    channel.unacked.restore(first, None)
    channel.deliver(90, 1)
    assert numbers(all_taken(channel.unacked)) == [(10, 2), (50, 2), (90, 1)]


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 1000])
def test_what_is_taken_a_few_at_a_time_comes_in_the_order_of_delivery(channel: Deliveries, at_once: int) -> None:
    channel.deliver(10, 2 * BUCKET)
    channel.deliver(9000, 5)
    settled = channel.unacked.take(3, 3) + channel.unacked.take(2 * BUCKET + 2, 2 * BUCKET + 2)
    channel.unacked.restore(settled[:1], None)
    taken: list[int] = []
    while channel.unacked.stretch_count():
        spans = channel.unacked.take_oldest(at_once)
        assert 1 <= len(spans) <= at_once
        taken += [seq_id for first, count in numbers(spans) for seq_id in range(first, first + count)]
    assert taken == [*range(10, 10 + 2 * BUCKET), 9000, *range(9002, 9005)]
    assert len(channel.unacked) == 0
    channel.deliver(50, 1)
    assert numbers(all_taken(channel.unacked)) == [(50, 1)]


def scattered(count: int) -> Deliveries:
    """Every second tag of a long run is unsettled."""
    channel = Deliveries()
    channel.deliver(0, 2 * count)
    for tag in range(1, 2 * count, 2):
        channel.unacked.take(tag, tag)
    return channel


@pytest.mark.parametrize("tag", [0, 2, 6, 8, 200, 2 * BUCKET, 2 * BUCKET + 2, 6 * BUCKET])
def test_no_more_is_taken_at_once_than_was_asked_for_and_the_rest_is_detached(tag: int) -> None:
    channel = scattered(3 * BUCKET)
    taken = channel.unacked.take_through(tag, AT_ONCE)
    assert len(taken) == min(AT_ONCE, tag // 2 or AT_ONCE)
    detached = channel.unacked.detach_through(tag)
    last = tag or 6 * BUCKET
    assert [number for number, _ in numbers(taken)] == list(range(1, last, 2))[:AT_ONCE]
    assert (0 if detached is None else len(detached)) == max(0, last // 2 - AT_ONCE)
    assert len(channel.unacked) == 3 * BUCKET - last // 2
    assert numbers(all_taken(channel.unacked)) == [(number, 1) for number in range(last + 1, 6 * BUCKET, 2)]
    channel.unacked.restore(taken, detached)
    assert numbers(all_taken(channel.unacked)) == [(number, 1) for number in range(1, last, 2)]


def test_a_stretch_that_goes_beyond_the_tag_is_divided() -> None:
    channel = scattered(8)
    channel.deliver(500, 10)
    spans = channel.unacked.take_through(20, AT_ONCE)
    detached = channel.unacked.detach_through(20)
    assert detached is not None
    assert len(spans) + len(detached) == 8 + 4
    assert numbers(channel.unacked.take(21, 26)) == [(504, 6)]
    assert len(channel.unacked) == 0


def test_few_deliveries_far_apart_are_found_as_well(channel: Deliveries) -> None:
    far = 10 * BUCKET
    channel.deliver(0, far)
    channel.deliver(9000, 3)
    channel.unacked.take(2, far)
    assert numbers(taken_through(channel.unacked, far + 2)) == [(0, 1), (9000, 2)]
    assert numbers(all_taken(channel.unacked)) == [(9002, 1)]


def test_an_old_delivery_left_open_does_not_make_a_later_settlement_look_at_every_tag_since() -> None:
    channel = Deliveries()
    channel.deliver(0, 1)
    # As after deliveries that were settled one by one: counting through them would never end.
    channel.next_tag = 10**12
    channel.deliver(500, 2)
    assert numbers(all_taken(channel.unacked)) == [(0, 1), (500, 2)]
    assert len(channel.unacked) == 0


def test_tags_are_settled_as_a_list_of_them_would_be() -> None:
    """Against a dict of single tags, with stretches longer than a bucket, parts settled and put back."""
    for seed in range(150):
        dice = random.Random(seed)
        channel = Deliveries()
        known: dict[int, int] = {}
        for _ in range(40):
            first, last = sorted((dice.randint(1, channel.next_tag + 1), dice.randint(1, channel.next_tag + 1)))
            what = dice.choice(["deliver", "take", "through"])
            if what == "deliver":
                count = dice.choice([1, 2, 7, BUCKET + 40])
                seq_id = dice.randrange(100) * 10_000
                known.update(enumerate(range(seq_id, seq_id + count), channel.next_tag))
                channel.deliver(seq_id, count)
                continue
            wanted = range(first, last + 1) if what == "take" else [tag for tag in sorted(known) if tag <= last]
            if not all(tag in known for tag in wanted) or last not in known:
                with pytest.raises(ChannelException):
                    channel.unacked.take(first, last) if what == "take" else taken_through(channel.unacked, last)
                continue
            spans = channel.unacked.take(first, last) if what == "take" else taken_through(channel.unacked, last)
            taken = [number for _, seq_id, count in spans for number in range(seq_id, seq_id + count)]
            assert taken == [known[tag] for tag in wanted]
            if dice.random() < 0.3:
                channel.unacked.restore(spans, None)
            else:
                for tag in wanted:
                    del known[tag]
            assert len(channel.unacked) == len(known)
