"""browse: reading ready messages without disturbing them."""

from __future__ import annotations

import pytest

from penstock.backing.backing_queue import BackingQueue
from penstock.message import MessageProps
from tests.contract.backings import MANY, OpenBacking, listed


def browse_all(
    bq: BackingQueue, from_seq_id: int, count_max: int, bytes_max: int = MANY
) -> list[tuple[int, bytes, bool]]:
    """As a browser goes through a queue: each run starts behind the last."""
    seen: list[tuple[int, bytes, bool]] = []
    while (run := bq.browse(from_seq_id, count_max, bytes_max)) is not None:
        messages = listed(run)
        assert 1 <= len(messages) <= count_max
        assert len(messages) == 1 or sum(len(payload) for _, payload, _ in messages) <= bytes_max
        assert messages[0][0] >= from_seq_id
        seen += messages
        from_seq_id = messages[-1][0] + 1
    return seen


def with_holes(backing: OpenBacking) -> int:
    """Letters a to j; a, d, e and g wait for an ack, b, c and f were requeued, h to j are fresh. The first seq_id."""
    first = backing.publish(*[b"%c" % letter for letter in b"abcdefghij"])
    backing.take(7)
    backing.queue.requeue([first + 5, first + 2, first + 1])
    return first


def test_an_empty_queue_shows_nothing(backing: OpenBacking, bq: BackingQueue) -> None:
    assert bq.browse(0, 10, MANY) is None
    backing.publish(b"a")
    backing.take(1)
    assert bq.browse(0, 10, MANY) is None


@pytest.mark.parametrize("count_max", [1, 2, 3, 100])
def test_browse_shows_every_ready_message_in_order_around_pending_ones(
    backing: OpenBacking, bq: BackingQueue, count_max: int
) -> None:
    first = with_holes(backing)
    shown = browse_all(bq, 0, count_max)
    assert [(seq_id - first, payload) for seq_id, payload, _ in shown] == [
        (1, b"b"),
        (2, b"c"),
        (5, b"f"),
        (7, b"h"),
        (8, b"i"),
        (9, b"j"),
    ]
    assert [redelivered for _, _, redelivered in shown] == [True, True, True, False, False, False]


def test_browse_can_begin_anywhere(backing: OpenBacking, bq: BackingQueue) -> None:
    first = with_holes(backing)
    for offset in range(-2, 13):
        run = listed(bq.browse(first + offset, 1, MANY))
        expected = [candidate for candidate in (1, 2, 5, 7, 8, 9) if candidate >= offset]
        assert [seq_id - first for seq_id, _, _ in run] == expected[:1]


def test_browse_is_bounded_by_bytes_like_fetch(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"x" * 100, b"", b"yy", b"zz", b"z", b"")
    for bytes_max in (0, 2, 4, 99, 100, 102):
        assert [seq_id for seq_id, _, _ in browse_all(bq, first, 10, bytes_max)] == list(range(first, first + 6))
    backing.take(6)
    bq.requeue(range(first, first + 6))
    for bytes_max in (0, 2, 4, 99, 100, 102):
        assert [seq_id for seq_id, _, _ in browse_all(bq, first, 10, bytes_max)] == list(range(first, first + 6))


def test_browse_tells_messages_that_were_seen_before_apart(backing: OpenBacking, bq: BackingQueue) -> None:
    backing.publish(b"a")
    backing.publish(b"b", delivered=True)
    backing.publish(b"c")
    assert [redelivered for _, _, redelivered in browse_all(bq, 0, 10)] == [False, True, False]


def test_browse_disturbs_nothing(backing: OpenBacking, bq: BackingQueue) -> None:
    first = with_holes(backing)
    before = (backing.folded(), len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes())
    browse_all(bq, 0, 2)
    run = bq.browse(first, 10, MANY)
    assert run is not None
    run.entries.clear()
    run = bq.browse(first + 7, 10, MANY)
    assert run is not None
    run.entries.clear()
    assert (backing.folded(), len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes()) == before
    flags = [(seq_id - first, redelivered) for seq_id, _, redelivered in backing.take(6)]
    assert flags == [(1, True), (2, True), (5, True), (7, False), (8, False), (9, False)]


def test_browse_shows_props_and_envelope(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", props=MessageProps(77))
    run = bq.browse(first, 1, MANY)
    assert run is not None
    envelope, body, props = run.entries[0]
    assert (envelope.routing_key, body) == ("key", b"a\xce")
    assert props is not None
    assert props.expiry_ms == 77
