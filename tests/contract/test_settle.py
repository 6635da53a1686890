"""ack, requeue, ackfold."""

from __future__ import annotations

import itertools
import random

import pytest

from penstock.backing.backing_queue import BackingQueue
from penstock.message import Entry, body_bytes
from tests.contract.backings import OpenBacking


def test_ack_forgets_pending_messages(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"bb", b"ccc")
    backing.take(3)
    assert bq.ack([first, first + 2]) == 2
    assert (bq.depth(), bq.pending_bytes()) == (1, 2)
    assert backing.pending() == [(first + 1, b"bb")]


def test_ack_takes_ids_in_any_order_and_repeated(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c", b"d")
    backing.take(4)
    assert bq.ack([first + 3, first, first + 3, first, first + 1]) == 3
    assert bq.ack([first + 3, first]) == 0
    assert backing.pending() == [(first + 2, b"c")]
    assert bq.pending_bytes() == 1


def test_ack_ignores_ids_that_are_ready_gone_or_were_never_used(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c")
    backing.take(1, ack_required=False)
    backing.take(1)
    assert bq.ack([first, first + 2, first + 3, first + 1_000, -1]) == 0
    assert (len(bq), bq.depth()) == (1, 2)
    assert bq.ack([first - 1, first + 1, first + 2]) == 1
    assert backing.ready() == [(first + 2, b"c")]


def test_ack_and_requeue_of_nothing_do_nothing(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a", b"b")
    backing.take(1)
    assert bq.ack([]) == 0
    assert bq.requeue([]) == 0
    assert (len(bq), bq.depth()) == (1, 2)


@pytest.mark.parametrize("kind", [list, tuple, range], ids=["list", "tuple", "range"])
def test_ids_may_be_any_sequence(backing: OpenBacking, bq: BackingQueue, kind: type) -> None:
    first = backing.publish(b"a", b"b", b"c", b"d")
    backing.take(4)
    low, high = range(first, first + 2), range(first + 2, first + 4)
    assert bq.ack(low if kind is range else kind(low)) == 2
    assert bq.requeue(high if kind is range else kind(high)) == 2
    assert backing.ready() == [(first + 2, b"c"), (first + 3, b"d")]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_requeue_puts_messages_back_at_their_positions_in_any_order(
    backing: OpenBacking, bq: BackingQueue, order: tuple[int, ...]
) -> None:
    first = backing.publish(b"a", b"b", b"c", b"d", b"e")
    backing.take(4)
    for offset in order:
        assert bq.requeue([first + offset]) == 1
    assert [payload for _, payload in backing.ready()] == [b"a", b"b", b"c", b"d", b"e"]
    assert [(seq_id - first, redelivered) for seq_id, _, redelivered in backing.take(5)] == [
        (0, True),
        (1, True),
        (2, True),
        (3, True),
        (4, False),
    ]


def test_requeue_of_everything_when_nothing_is_ready(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c")
    backing.take(3)
    assert bq.is_empty()
    assert bq.requeue([first + 2, first, first + 1]) == 3
    assert not bq.is_empty()
    assert (bq.ready_bytes(), bq.pending_bytes()) == (3, 0)
    assert [payload for _, payload, _ in backing.take(3)] == [b"a", b"b", b"c"]


def test_requeue_skips_ids_that_are_not_pending(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c", b"d", b"e")
    backing.take(4)
    bq.ack([first])
    unknown = [first, first + 4, first + 5, first + 1_000, -1]
    assert bq.requeue(unknown) == 0
    assert bq.requeue([first + 3, *unknown, first + 1, first + 3]) == 2
    assert bq.requeue([first + 1, first + 3]) == 0
    assert backing.ready() == [(first + 1, b"b"), (first + 3, b"d"), (first + 4, b"e")]
    assert backing.pending() == [(first + 2, b"c")]
    assert (bq.ready_bytes(), bq.pending_bytes()) == (3, 1)


def test_a_requeued_message_can_be_fetched_and_requeued_again_and_again(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b")
    for _ in range(5):
        seq_id, payload, _ = backing.take(1)[0]
        assert (seq_id, payload) == (first, b"a")
        assert bq.requeue([seq_id]) == 1
    assert backing.take(2) == [(first, b"a", True), (first + 1, b"b", False)]


def test_requeue_between_messages_that_are_still_pending_and_ones_that_came_back(
    backing: OpenBacking, bq: BackingQueue
) -> None:
    first = backing.publish(*[b"%d" % index for index in range(8)])
    backing.take(6)
    bq.requeue([first + 1, first + 4])
    assert [seq_id - first for seq_id, _, _ in backing.take(1)] == [1]
    bq.requeue([first + 3, first])
    assert [seq_id - first for seq_id, _, _ in backing.take(2)] == [0, 3]
    bq.requeue([first + 2])
    assert [seq_id - first for seq_id, _, _ in backing.take(4)] == [2, 4, 6, 7]
    assert [seq_id - first for seq_id, _ in backing.pending()] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_requeue_of_many_in_small_and_large_portions_keeps_the_order(backing: OpenBacking, bq: BackingQueue) -> None:
    count = 200
    first = backing.publish(*[b"%d" % index for index in range(count)])
    backing.take(count)
    ids = list(range(first, first + count))
    random.Random(7).shuffle(ids)
    for begin, end in ((0, 1), (1, 90), (90, 93), (93, 100), (100, 199), (199, 200)):
        assert bq.requeue(ids[begin:end]) == end - begin
        bq.check_invariants()
    assert [seq_id for seq_id, _, _ in backing.take(count)] == list(range(first, first + count))


def test_messages_published_while_others_were_pending_stay_behind_them(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b")
    backing.take(2)
    backing.publish(b"c")
    bq.requeue([first + 1, first])
    backing.publish(b"d")
    assert [payload for _, payload, _ in backing.take(4)] == [b"a", b"b", b"c", b"d"]


def test_a_requeued_message_that_is_acked_without_a_new_fetch_stays(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a")
    backing.take(1)
    bq.requeue([first])
    assert bq.ack([first]) == 0
    assert backing.ready() == [(first, b"a")]


def test_an_acked_message_does_not_come_back(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a")
    backing.take(1)
    bq.ack([first])
    assert bq.requeue([first]) == 0
    assert bq.depth() == 0


def test_a_requeued_message_keeps_what_was_published(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish_expiring(55)
    bq.requeue([seq_id for seq_id, _, _ in backing.take(1)])
    props = bq.head_props()
    assert props is not None
    assert props.expiry_ms == 55


def test_ackfold_shows_pending_messages_in_the_order_given(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c", b"d")
    bq.ack([seq_id for seq_id, _, _ in backing.take(1)])
    backing.take(2)
    before = backing.folded()
    shown: list[tuple[int, bytes]] = []

    def visit(seq_id: int, entry: Entry) -> None:
        shown.append((seq_id, body_bytes(entry[1])))

    bq.ackfold(visit, [first + 2, first, first + 3, first + 99, -1, first + 1])
    assert shown == [(first + 2, b"c"), (first + 1, b"b")]
    assert backing.folded() == before
    assert bq.ack([first + 1, first + 2]) == 2
