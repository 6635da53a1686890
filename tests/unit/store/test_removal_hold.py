"""While a backup has a lease, the store removes no file that a checkpoint may name; afterwards it does."""

from __future__ import annotations

from random import Random

import pytest
from node_house import PlainQueue, new_disk, open_node, tiny_options

from penstock import limits
from penstock.clock import ManualClock
from penstock.store.node.checkpoint import checkpoint_numbers
from penstock.store.node.node_store import NodeStore
from penstock.store.node.removal_hold import RemovalHold

TINY_SEGMENT = 30_000


def new_hold() -> tuple[RemovalHold, ManualClock]:
    clock = ManualClock()
    return RemovalHold(clock, Random(1).getrandbits), clock


def test_a_lease_lapses_unless_it_is_renewed() -> None:
    hold, clock = new_hold()
    lease = hold.take()
    assert lease is not None
    clock.advance(limits.BACKUP_LEASE_S - 1)
    assert hold.renew(lease)
    clock.advance(limits.BACKUP_LEASE_S - 1)
    assert hold.is_active()
    clock.advance(1)
    assert not hold.is_active()
    assert not hold.renew(lease), "files may be gone"
    assert not hold.end(lease)
    assert not hold.is_active()


def test_there_are_only_so_many_leases_and_those_that_lapsed_do_not_count() -> None:
    hold, clock = new_hold()
    leases = [hold.take() for _ in range(limits.BACKUPS_MAX)]
    assert len(set(leases)) == limits.BACKUPS_MAX
    assert hold.take() is None
    clock.advance(limits.BACKUP_LEASE_S)
    assert hold.take() is not None


def test_what_had_to_wait_is_removed_when_the_last_lease_has_ended() -> None:
    hold, _ = new_hold()
    one, other = hold.take(), hold.take()
    assert one is not None
    assert other is not None
    removed: list[str] = []
    hold.remove_later(lambda: removed.append("a"))
    assert hold.end(one)
    hold.run_later()
    assert removed == []
    assert hold.end(other)
    hold.run_later()
    assert removed == ["a"]
    hold.run_later()
    assert removed == ["a"]


def node_without_history() -> tuple[NodeStore, PlainQueue]:
    node = open_node(new_disk(), tiny_options(TINY_SEGMENT, retention_bytes=0))
    return node, PlainQueue(node)


def leave_segments(node: NodeStore, queue: PlainQueue, count: int) -> None:
    """Publish and settle until so many segments have been begun."""
    until = node.journal.segments.position()[0] + count
    while node.journal.segments.position()[0] < until:
        queue.ack(queue.publish(b"x" * 2000))
        node.journal.commit(urgent=True)


def test_journal_segments_and_checkpoints_stay_while_there_is_a_lease() -> None:
    node, queue = node_without_history()
    assert node.checkpoint_now()
    lease = node.removals.take()
    assert lease is not None
    segments, checkpoints = node.journal.segments.numbers(), checkpoint_numbers(node.files)
    for _ in range(4):
        leave_segments(node, queue, 2)
        assert node.checkpoint_now()
    assert set(segments) <= set(node.journal.segments.numbers())
    assert set(checkpoints) <= set(checkpoint_numbers(node.files))
    assert node.removals.end(lease)
    for _ in range(2):
        leave_segments(node, queue, 1)
        assert node.checkpoint_now()
    assert segments[0] not in node.journal.segments.numbers()
    assert len(checkpoint_numbers(node.files)) == 2


def test_a_disk_that_gets_full_breaks_the_lease() -> None:
    node, _ = node_without_history()
    lease = node.removals.take()
    assert lease is not None
    node.set_disk_is_low(True)
    assert not node.removals.is_active()
    assert not node.removals.renew(lease)


def test_a_folder_is_removed_when_nothing_holds_it() -> None:
    node, _ = node_without_history()
    node.files.make_dir("vhosts/aa/queues/gone")
    lease = node.removals.take()
    assert lease is not None
    node.remove_folder("vhosts/aa/queues/gone")
    assert node.files.exists("vhosts/aa/queues/gone")
    assert node.removals.end(lease)
    assert node.checkpoint_now()
    node.end_turn()
    assert not node.files.exists("vhosts/aa/queues/gone")


def test_who_asks_for_a_checkpoint_gets_one_that_begins_afterwards() -> None:
    node, queue = node_without_history()
    answers: list[str] = []
    queue.publish(b"before")
    node.ask_checkpoint(answers.append)
    for _ in range(10):
        node.end_turn()
    assert answers == [""]
    assert node.checkpointer.kept[-1].replay_lsn == node.journal.next_lsn


def test_who_asks_for_a_checkpoint_is_told_that_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = node_without_history()
    answers: list[str] = []
    monkeypatch.setattr(node, "definitions_source", lambda: (_ for _ in [1 // 0]))
    node.ask_checkpoint(answers.append)
    for _ in range(10):
        node.end_turn()
    assert len(answers) == 1
    assert "division" in answers[0]
