"""purge, fold and the counters: what concerns all messages."""

from __future__ import annotations

import pytest

from penstock.backing.backing_queue import BackingQueue
from penstock.message import Entry
from tests.contract.backings import OpenBacking


def mixed(backing: OpenBacking) -> int:
    """0 and 3 pending, 1 and 2 requeued, 4 to 6 fresh; payload lengths are the numbers. The first seq_id."""
    first = backing.publish(*[b"x" * index for index in range(7)])
    backing.take(4)
    backing.queue.requeue([first + 2, first + 1])
    return first


def test_purge_removes_what_is_ready_and_keeps_what_is_pending(backing: OpenBacking, bq: BackingQueue) -> None:
    first = mixed(backing)
    assert bq.purge() == 5
    assert (len(bq), bq.is_empty(), bq.depth()) == (0, True, 2)
    assert (bq.ready_bytes(), bq.pending_bytes()) == (0, 3)
    assert bq.purge() == 0
    assert bq.ack([first, first + 1, first + 2, first + 4]) == 1


def test_messages_requeued_after_a_purge_are_the_only_content(backing: OpenBacking, bq: BackingQueue) -> None:
    first = mixed(backing)
    bq.purge()
    assert bq.requeue(range(first, first + 7)) == 2
    assert backing.take(2) == [(first, b"", True), (first + 3, b"xxx", True)]
    assert bq.is_empty()


def test_a_purged_queue_takes_messages_again(backing: OpenBacking, bq: BackingQueue) -> None:
    first = mixed(backing)
    bq.purge()
    backing.publish(b"new")
    bq.requeue([first])
    assert backing.take(2) == [(first, b"", True), (first + 7, b"new", False)]


def test_a_purge_in_slices_removes_what_was_ready_and_what_comes_back_meanwhile(
    backing: OpenBacking, bq: BackingQueue
) -> None:
    first = mixed(backing)
    if not bq.begin_purge():
        return
    purged = bq.purge_some(1)
    assert purged >= 1
    backing.publish(b"new")
    assert bq.requeue([first]) == 1
    while count := bq.purge_some(2):
        purged += count
        bq.check_invariants()
    assert purged == 6
    assert (len(bq), bq.depth()) == (1, 2)
    assert [body for _, body, _ in backing.take(1)] == [b"new"]
    assert bq.ack([first, first + 3]) == 1


def test_a_restart_in_the_middle_of_a_purge_in_slices_leaves_what_was_not_removed(
    backing: OpenBacking, bq: BackingQueue
) -> None:
    if not backing.spec.survives or not backing.persistent:
        return
    mixed(backing)
    if not bq.begin_purge():
        return
    purged = bq.purge_some(2)
    backing.restart()
    assert len(backing.queue) == 7 - purged
    backing.queue.check_invariants()


def test_fold_shows_ready_and_pending_messages_once_each_in_order(backing: OpenBacking) -> None:
    first = mixed(backing)
    shown = [(seq_id - first, len(entry[1]) - 1, pending) for seq_id, entry, pending in backing.folded()]
    assert shown == [(index, index, index in (0, 3)) for index in range(7)]


@pytest.mark.parametrize("stop_after", [1, 2, 4, 5, 6, 7])
def test_fold_stops_when_it_is_told_and_changes_nothing(
    backing: OpenBacking, bq: BackingQueue, stop_after: int
) -> None:
    first = mixed(backing)
    before = (backing.folded(), len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes())
    shown: list[int] = []

    def visit(seq_id: int, entry: Entry, pending: bool) -> bool:
        shown.append(seq_id - first)
        return len(shown) < stop_after

    bq.fold(visit)
    assert shown == list(range(stop_after))
    assert (backing.folded(), len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes()) == before
    assert [seq_id - first for seq_id, _, _ in backing.take(5)] == [1, 2, 4, 5, 6]


def test_fold_of_an_empty_queue_shows_nothing(backing: OpenBacking) -> None:
    assert backing.folded() == []


def test_counters_equal_a_recount_on_the_whole_way(backing: OpenBacking, bq: BackingQueue) -> None:

    def recount() -> None:
        ready = [entry for _, entry, pending in backing.folded() if not pending]
        pending = [entry for _, entry, pending in backing.folded() if pending]
        assert (len(bq), bq.is_empty(), bq.depth()) == (len(ready), not ready, len(ready) + len(pending))
        assert bq.ready_bytes() == sum(len(entry[1]) - 1 for entry in ready)
        assert bq.pending_bytes() == sum(len(entry[1]) - 1 for entry in pending)
        bq.check_invariants()

    recount()
    first = mixed(backing)
    recount()
    bq.drop(False)
    recount()
    bq.drop(True)
    recount()
    bq.fetch(3, 0, True)
    recount()
    bq.fetch(3, 1_000, False)
    recount()
    bq.requeue([first + 2, first + 2, first])
    recount()
    bq.ack([first + 3, first + 3])
    recount()
    bq.fetchwhile(lambda _: len(bq) > 1, lambda seq_id, entry: None)
    recount()
    bq.dropwhile(lambda _: True)
    recount()
    backing.publish(b"", b"x", delivered=True)
    recount()
    bq.purge()
    recount()
    bq.ack([seq_id for seq_id, _, pending in backing.folded() if pending])
    recount()
    assert bq.depth() == 0
