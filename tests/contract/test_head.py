"""drop, dropwhile, fetchwhile, head_props: what works on the head of the queue."""

from __future__ import annotations

import pytest

from penstock.backing.backing_queue import BackingQueue
from penstock.message import Entry, MessageProps, body_bytes
from tests.contract.backings import OpenBacking, expired_at


def test_drop_of_an_empty_queue_is_none(bq: BackingQueue) -> None:
    assert bq.drop(True) is None
    assert bq.drop(False) is None


def test_drop_with_ack_makes_the_head_pending(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"aaa", b"b")
    assert bq.drop(True) == first
    assert (len(bq), bq.depth(), bq.pending_bytes()) == (1, 2, 3)
    assert bq.requeue([first]) == 1
    assert backing.take(2) == [(first, b"aaa", True), (first + 1, b"b", False)]


def test_drop_without_ack_removes_the_head(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"aaa", b"b")
    assert bq.drop(False) == first
    assert (len(bq), bq.depth(), bq.ready_bytes()) == (1, 1, 1)
    assert bq.ack([first]) == 0


def test_drop_takes_one_message_also_when_bodies_are_empty(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"", b"", b"")
    bq.drop(False)
    bq.drop(True)
    assert backing.pending() == [(first + 1, b"")]
    assert backing.ready() == [(first + 2, b"")]


def test_dropwhile_stops_exactly_at_the_first_that_does_not_match(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish_expiring(10, 20, 20, 21, 5, -1)
    assert bq.dropwhile(expired_at(20)) == 3
    assert [payload for _, payload in backing.ready()] == [b"21", b"5", b"-1"]
    head = bq.head_props()
    assert head is not None
    assert head.expiry_ms == 21
    assert [redelivered for _, _, redelivered in backing.take(3)] == [False, False, False]


def test_dropwhile_keeps_everything_when_the_head_does_not_match(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish_expiring(-1, 10, 10)
    assert bq.dropwhile(expired_at(20)) == 0
    assert len(bq) == 3


def test_dropwhile_can_drop_everything_that_is_ready_and_nothing_else(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish_expiring(*range(50))
    backing.take(10)
    bq.requeue([seq_id for seq_id, _ in backing.pending()[::2]])
    assert bq.dropwhile(lambda _: True) == 45
    assert (len(bq), bq.depth(), bq.ready_bytes()) == (0, 5, 0)
    assert bq.dropwhile(lambda _: True) == 0


def test_dropwhile_asks_once_per_message_in_order_and_not_beyond_the_first_that_stays(
    backing: OpenBacking, bq: BackingQueue
) -> None:
    backing.publish_expiring(1, 2, 3, 4, 5)
    backing.take(2)
    bq.requeue([seq_id for seq_id, _ in backing.pending()])
    asked: list[int] = []

    def below_four(props: MessageProps | None) -> bool:
        assert props is not None
        asked.append(props.expiry_ms)
        return props.expiry_ms < 4

    assert bq.dropwhile(below_four) == 3
    assert asked == [1, 2, 3, 4]


def test_the_predicate_gets_none_for_a_message_without_props(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish_expiring(-1, 7)
    asked: list[MessageProps | None] = []
    assert bq.dropwhile(lambda props: asked.append(props) or True) == 2  # type: ignore[func-returns-value]
    assert asked[0] is None
    assert asked[1] is not None
    assert asked[1].expiry_ms == 7


def test_fetchwhile_shows_each_message_and_makes_it_pending(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish_expiring(10, 20, 30, 5)
    first = backing.ready()[0][0]
    shown: list[tuple[int, bytes]] = []

    def visit(seq_id: int, entry: Entry) -> None:
        shown.append((seq_id, body_bytes(entry[1])))

    assert bq.fetchwhile(expired_at(20), visit) == 2
    assert shown == [(first, b"10"), (first + 1, b"20")]
    assert backing.pending() == shown
    assert [payload for _, payload in backing.ready()] == [b"30", b"5"]
    assert (bq.pending_bytes(), bq.ready_bytes(), bq.depth()) == (4, 3, 4)
    head = bq.head_props()
    assert head is not None
    assert head.expiry_ms == 30


def test_requeueing_what_fetchwhile_took_restores_the_order(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish_expiring(10, 10, 10, 30, 10)
    before = backing.ready()
    taken: list[int] = []
    assert bq.fetchwhile(expired_at(20), lambda seq_id, _: taken.append(seq_id)) == 3
    assert bq.requeue(list(reversed(taken))) == 3
    assert backing.ready() == before
    assert [redelivered for _, _, redelivered in backing.take(5)] == [True, True, True, False, False]


def test_fetchwhile_of_an_empty_queue_visits_nothing(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a")
    backing.take(1)
    assert bq.fetchwhile(lambda _: True, lambda seq_id, entry: pytest.fail("visited")) == 0


def test_fetchwhile_goes_through_requeued_and_fresh_messages_in_order(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish_expiring(1, 2, 3, 4, 5)
    first = backing.ready()[0][0]
    backing.take(3)
    bq.requeue([first + 2, first])
    taken: list[int] = []
    assert bq.fetchwhile(expired_at(4), lambda seq_id, _: taken.append(seq_id)) == 3
    assert taken == [first, first + 2, first + 3]
    assert [payload for _, payload in backing.ready()] == [b"5"]


@pytest.mark.parametrize("pending", [False, True], ids=["dropwhile", "fetchwhile"])
def test_the_first_that_stays_is_kept_also_when_its_body_is_empty(
    backing: OpenBacking, bq: BackingQueue, pending: bool
) -> None:
    """An empty body fits into any bound of bytes."""
    for expiry_ms in (1, 2, 3):
        backing.publish(b"", props=MessageProps(expiry_ms))
    first = backing.ready()[0][0]
    if pending:
        assert bq.fetchwhile(expired_at(2), lambda seq_id, entry: None) == 2
    else:
        assert bq.dropwhile(expired_at(2)) == 2
    assert backing.ready() == [(first + 2, b"")]
    assert bq.depth() == (3 if pending else 1)


def test_head_props_follow_the_head(backing: OpenBacking, bq: BackingQueue) -> None:
    def head_expiry() -> int | None:
        props = bq.head_props()
        return None if props is None else props.expiry_ms

    assert head_expiry() is None
    backing.publish_expiring(1, 2, -1)
    first = backing.ready()[0][0]
    assert head_expiry() == 1
    backing.take(1)
    assert head_expiry() == 2
    bq.requeue([first])
    assert head_expiry() == 1
    bq.drop(False)
    assert head_expiry() == 2
    bq.drop(False)
    assert len(bq) == 1
    assert head_expiry() is None
    bq.purge()
    assert head_expiry() is None
