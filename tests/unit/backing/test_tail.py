"""How messages get in: seq_ids, rows, and when neighbours become one run."""

from __future__ import annotations

import pytest
from backing_house import Parts, entry, envelope

from penstock.backing.variable.tail import JOINED_BYTES_MAX, JOINED_COUNT_MAX
from penstock.backing.zones.msg_status import MsgStatus
from penstock.backing.zones.zone_views import check_zones
from penstock.message import Entry, Incoming, MessageProps, unlike
from penstock.store.queue import places


def runs(parts: Parts) -> list[tuple[int, int]]:
    return [(status.seq_id, status.count) for status in parts.zones.q4]


def only_run(parts: Parts) -> MsgStatus:
    assert len(parts.zones.q4) == 1
    return parts.zones.q4[0]


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_neighbours_of_one_batch_become_one_run(persistent: bool) -> None:
    parts = Parts()
    for payload in (b"a", b"b", b"c"):
        assert parts.publish(payload, persistent=persistent) == persistent
    assert runs(parts) == [(0, 3)]
    assert only_run(parts).size_each == 1
    parts.publish(b"long", persistent=persistent)
    status = only_run(parts)
    assert (status.size_each, status.size_bytes, [status.size_of(index) for index in range(4)]) == (-1, 7, [1, 1, 1, 4])
    check_zones(parts.zones)


@pytest.mark.parametrize(
    "other",
    [
        {"props": MessageProps(5)},
        {"delivered": True},
        {"persistent": False},
    ],
    ids=["expiry", "delivered", "transient"],
)
def test_what_differs_is_a_run_of_its_own(other: dict[str, object]) -> None:
    parts = Parts()
    parts.publish(b"a")
    parts.publish(b"b", **other)  # type: ignore[arg-type]
    parts.publish(b"c")
    assert runs(parts) == [(0, 1), (1, 1), (2, 1)]


def test_equal_expiries_join_even_when_the_confirms_differ() -> None:
    parts = Parts()
    for _ in range(3):
        parts.publish(b"a", props=MessageProps(5))
    assert runs(parts) == [(0, 3)]


def test_another_batch_is_another_run() -> None:
    parts = Parts()
    parts.publish(b"a")
    parts.commit()
    parts.publish(b"b")
    assert runs(parts) == [(0, 1), (1, 1)]


def test_rows_of_another_queue_in_between_cut_a_run() -> None:
    """Its entries stand between ours, so ours do not lie side by side."""
    parts = Parts()
    parts.publish(b"a")
    other = parts.node.queue_number("5e", "77", b"")
    parts.node.journal.publish(other, 0, Incoming(envelope(), [b"x\xce"]), -1)
    parts.publish(b"b")
    assert runs(parts) == [(0, 1), (1, 1)]
    parts.commit()
    for status in parts.zones.q4:
        status.forget_bodies()
    read = [found for status in parts.zones.q4 for found in parts.homes.read(status)]
    assert [found[1] for found in read if found is not None] == [b"a\xce", b"b\xce"]


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_runs_do_not_grow_without_end(persistent: bool) -> None:
    parts = Parts(embed_below=0)
    for _ in range(JOINED_COUNT_MAX + 10):
        parts.publish(b"a", persistent=persistent)
    assert runs(parts) == [(0, JOINED_COUNT_MAX), (JOINED_COUNT_MAX, 10)]
    for _ in range(3):
        parts.publish(b"x" * (JOINED_BYTES_MAX // 2), persistent=persistent)
    assert runs(parts)[1:] == [(JOINED_COUNT_MAX, 11), (JOINED_COUNT_MAX + 11, 2)]


def test_a_run_that_came_back_can_be_joined_and_knows_all_its_sizes() -> None:
    """Its list of sizes is from before."""
    parts = Parts()
    parts.publish(b"a", b"bb")
    status = parts.take(2)
    parts.pending.record(status, status.entries())
    (back,) = parts.pending.take_back([0, 1])
    parts.zones.q4.append(back)
    parts.zones.count_published(2, 3)
    parts.publish(b"ccccc", delivered=True)
    assert [only_run(parts).size_of(index) for index in range(3)] == [1, 2, 5]
    assert only_run(parts).count_within(10, 7) == 2
    check_zones(parts.zones)


def test_large_bodies_go_to_the_shared_store_and_small_ones_of_the_same_call_do_not() -> None:
    parts = Parts(embed_below=60)
    parts.publish(b"a", b"x" * 100, b"b", b"y" * 100)
    found = [(status.seq_id, status.count, status.msg_in_store, status.persist_to) for status in parts.zones.q4]
    assert found == [
        (0, 1, places.JOURNAL, places.QUEUE_STORE),
        (1, 1, places.MSG_STORE, places.MSG_STORE),
        (2, 1, places.JOURNAL, places.QUEUE_STORE),
        (3, 1, places.MSG_STORE, places.MSG_STORE),
    ]
    assert (parts.tail.persistent_count, parts.tail.persistent_bytes) == (4, 202)
    parts.commit()
    for status in parts.zones.q4:
        status.forget_bodies()
        assert None not in parts.homes.read(status)


def test_entries_of_any_mixture_keep_their_order_and_props() -> None:
    parts = Parts(embed_below=60)
    entries: list[Entry] = [
        entry(b"a"),
        entry(b"b", persistent=False),
        entry(b"c", expiry_ms=7),
        entry(b"d" * 100, expiry_ms=7),
        entry(b"e" * 100, persistent=False),
    ]
    assert parts.tail.publish(unlike(entries), None, False)
    assert [one for status in parts.zones.q4 for one in status.entries()] == entries
    assert [status.expiry_ms() for status in parts.zones.q4 for _ in range(status.count)] == [-1, -1, 7, 7, -1]
    assert [status.is_persistent for status in parts.zones.q4 for _ in range(status.count)] == [
        True,
        False,
        True,
        True,
        False,
    ]
    assert parts.tail.persistent_count == 3
    check_zones(parts.zones)


@pytest.mark.parametrize("count", [1, 5])
def test_entries_that_are_alike_are_one_run(count: int) -> None:
    parts = Parts()
    assert parts.tail.publish(unlike([entry(b"%d" % number) for number in range(count)]), None, False)
    assert runs(parts) == [(0, count)]
    assert not Parts(durable=False).tail.publish(unlike([entry(b"x")]), None, False)


def test_a_queue_that_is_not_durable_writes_no_rows() -> None:
    parts = Parts(durable=False)
    before = parts.node.journal.next_lsn
    assert not parts.publish(b"a", b"x" * 100)
    assert parts.node.journal.next_lsn == before
    assert (parts.tail.persistent_count, [status.msg_in_store for status in parts.zones.q4]) == (0, [0, 0])


def test_messages_behind_q3_go_to_q1() -> None:
    parts = Parts()
    parts.publish(b"a", b"b")
    parts.commit()
    parts.zones.push_alphas_to_betas(0, 1)
    parts.publish(b"c")
    parts.publish(b"x" * 100)
    assert [status.seq_id for status in parts.zones.q1] == [2, 3]
    check_zones(parts.zones)


def test_the_number_of_a_message_in_the_journal_follows_it() -> None:
    """msg_id is the LSN of the first message of a run."""
    parts = Parts()
    parts.publish(b"a", b"b", b"c")
    status = only_run(parts)
    assert status.msg_id + 3 == parts.node.journal.next_lsn
    parts.publish(b"x" * 100)
    assert parts.zones.q4[1].msg_id + 1 == parts.node.journal.next_lsn
    assert parts.take(2).msg_id + 2 == parts.zones.q4[0].msg_id
