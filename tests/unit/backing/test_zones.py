"""The five zones: moving messages between them keeps the order, whatever is pending and wherever it comes back."""

from __future__ import annotations

import itertools
import random
from collections import deque

import pytest
from backing_house import SLOTS, Parts

from penstock.backing.variable.put_back import put_back
from penstock.backing.zones import zone_views
from penstock.backing.zones.msg_status import MsgStatus, status_at
from penstock.backing.zones.zone_views import check_zones
from penstock.message import MessageProps, body_bytes
from penstock.store.queue.places import JOURNAL
from penstock.store.queue.queue_state import RunPlace


def publish_each(parts: Parts, count: int, persistent: bool = True) -> None:
    first = parts.tail.next_seq_id
    for number in range(first, first + count):
        parts.publish(b"%d" % number, persistent=persistent)
        parts.commit()


def page_out(parts: Parts) -> None:
    parts.zones.push_alphas_to_betas(1000, 1000)
    check_zones(parts.zones)
    parts.zones.push_betas_to_deltas(1000, 1000)
    check_zones(parts.zones)


def drain(parts: Parts) -> list[int]:
    taken: list[int] = []
    while parts.zones.head_in_ram() is not None:
        status = parts.take(100)
        taken.extend([int(body_bytes(found[1])) for found in status.entries()])
        parts.live.remove(status.seq_id, status.count)
        check_zones(parts.zones)
    assert (parts.zones.ready_count, parts.zones.ready_bytes, parts.zones.ram_count) == (0, 0, 0)
    return taken


def give_back(parts: Parts, *seq_ids: int) -> None:
    put_back(parts.zones, parts.pending.take_back(seq_ids))
    check_zones(parts.zones)


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
@pytest.mark.parametrize("pending", list(itertools.combinations(range(9), 4))[::7])
def test_messages_that_come_back_one_by_one_stand_where_they_stood(pending: tuple[int, ...], persistent: bool) -> None:
    """Everything else is on disk, with holes where they were."""
    rng = random.Random(str(pending))
    parts = Parts()
    publish_each(parts, 9, persistent)
    parts.hand_out(9)
    give_back(parts, *[seq_id for seq_id in range(9) if seq_id not in pending])
    page_out(parts)
    order = list(pending)
    rng.shuffle(order)
    for seq_id in order:
        if rng.random() < 0.5:
            parts.pending.evict(1)
        give_back(parts, seq_id)
        if rng.random() < 0.3:
            page_out(parts)
    assert drain(parts) == list(range(9))
    assert parts.lost == []


class WatchedZone(deque[MsgStatus]):
    """Counts how often somebody takes a run from its rear."""

    pops = 0

    def pop(self) -> MsgStatus:  # type: ignore[override]
        self.pops += 1
        return super().pop()


def test_paging_does_not_look_through_a_batch_that_is_not_written() -> None:
    parts = Parts()
    for number in range(50):
        # Envelopes of their own: runs of one.
        parts.publish(b"%d" % number, props=MessageProps(number + 10**13))
    zone = parts.zones.q4 = WatchedZone(parts.zones.q4)
    assert len(zone) == 50
    for _ in range(100):
        assert parts.zones.push_alphas_to_betas(0, 10) == 0
    assert zone.pops == 0
    parts.commit()
    assert parts.zones.push_alphas_to_betas(0, 10) == 10
    check_zones(parts.zones)
    assert drain(parts) == list(range(50))


@pytest.mark.parametrize("pending", list(itertools.combinations(range(8), 3))[::5])
def test_messages_that_come_back_before_their_batch_is_written_wait_for_nothing(pending: tuple[int, ...]) -> None:
    parts = Parts()
    publish_each(parts, 4)
    parts.publish(b"4", b"5", b"6", b"7")
    parts.hand_out(8)
    give_back(parts, *[seq_id for seq_id in range(8) if seq_id not in pending])
    page_out(parts)
    give_back(parts, *pending)
    assert drain(parts) == list(range(8))


def test_what_is_not_written_yet_moves_behind_q3_when_what_stands_before_it_leaves_ram() -> None:
    parts = Parts()
    publish_each(parts, 3)
    parts.publish(b"3", b"4")
    assert parts.zones.push_alphas_to_betas(0, 100) == 3
    assert [status.seq_id for status in parts.zones.q1] == [3]
    check_zones(parts.zones)
    assert drain(parts) == [0, 1, 2, 3, 4]


def test_nothing_moves_while_nothing_is_written() -> None:
    parts = Parts()
    parts.publish(b"0", b"1")
    assert parts.zones.push_alphas_to_betas(100, 100) == 0
    assert [status.seq_id for status in parts.zones.q4] == [0]
    check_zones(parts.zones)


@pytest.mark.parametrize("quota", [1, 2, 5, 6, 7])
def test_a_quota_cuts_runs(quota: int) -> None:
    parts = Parts()
    parts.publish(*[b"%d" % number for number in range(6)])
    parts.commit()
    assert parts.zones.push_alphas_to_betas(0, quota) == min(quota, 6)
    assert parts.zones.ram_count == 6 - min(quota, 6)
    check_zones(parts.zones)
    assert drain(parts) == list(range(6))


def test_a_run_that_spans_files_is_cut_where_they_end() -> None:
    """Transient: the queue's store has files of four seq_ids."""
    parts = Parts()
    parts.publish(*[b"%d" % number for number in range(10)], persistent=False)
    parts.zones.push_alphas_to_betas(0, 100)
    assert [(status.seq_id, status.count) for status in parts.zones.q3] == [(0, 4), (4, 4), (8, 2)]
    check_zones(parts.zones)
    assert drain(parts) == list(range(10))


@pytest.mark.parametrize(
    ("quota", "messages_max", "expected"), [(1, 99, 1), (99, 3, 3), (99, 99, 8), (0, 9, 0), (9, 0, 0)]
)
def test_positions_leave_up_to_the_quota_and_one_segment_stays(quota: int, messages_max: int, expected: int) -> None:
    parts = Parts()
    publish_each(parts, 12)
    parts.zones.push_alphas_to_betas(0, 100)
    assert parts.zones.push_betas_to_deltas(quota, messages_max) == expected
    assert parts.zones.delta_count == expected
    check_zones(parts.zones)


def test_positions_of_neighbours_are_written_together_also_from_the_rear() -> None:
    parts = Parts()
    publish_each(parts, 12)
    parts.zones.push_alphas_to_betas(0, 100)
    assert parts.zones.push_betas_to_deltas(99, 99) == 8
    waiting = parts.homes.index._waiting
    assert [len(chunks) for chunks in waiting.values()] == [1] * len(waiting)
    assert drain(parts) == list(range(12))


@pytest.mark.parametrize("read_ahead", [1, 2, 3, 4, 5, 100])
def test_a_delta_is_read_in_steps_that_end_with_segments(read_ahead: int) -> None:
    parts = Parts(read_ahead_count=read_ahead)
    publish_each(parts, 21)
    page_out(parts)
    for number in range(21):
        assert len(parts.zones.q3) <= SLOTS
        status = parts.take(1)
        assert status.seq_id == number
        check_zones(parts.zones)
    assert parts.zones.ready_count == 0


def test_looking_changes_nothing() -> None:
    parts = Parts()
    publish_each(parts, 6)
    parts.zones.push_alphas_to_betas(0, 4)
    publish_each(parts, 6)
    parts.zones.push_alphas_to_betas(4, 0)
    parts.zones.push_betas_to_deltas(100, 100)
    parts.zones.push_alphas_to_betas(1, 0)
    before = [list(zone) for zone in (parts.zones.q4, parts.zones.q3, parts.zones.q2, parts.zones.q1)]
    for seq_id in range(12):
        for count_max in (1, 2, 5):
            runs = zone_views.neighbours_at(parts.zones, seq_id, count_max)
            assert runs[0].seq_id <= seq_id <= runs[0].last_seq_id()
            assert sum([run.count for run in runs[:-1]]) < count_max
            assert all(run.last_seq_id() + 1 == after.seq_id for run, after in itertools.pairwise(runs))
            assert None not in [entry for run in runs for entry in zone_views.bodies_of(parts.zones, run)]
    assert zone_views.neighbours_at(parts.zones, 12, 1) == []
    assert [list(zone) for zone in (parts.zones.q4, parts.zones.q3, parts.zones.q2, parts.zones.q1)] == before
    found = [status.seq_id for status in zone_views.delta_between(parts.zones, 5, 9)]
    assert found == [seq_id for seq_id in range(5, 9) if parts.zones.delta_start <= seq_id < parts.zones.delta_end]
    check_zones(parts.zones)


# --- after a start ----------------------------------------------------------------------------------


def indexed(parts: Parts, count: int) -> None:
    """So many messages that the index knows, and nothing in the zones."""
    publish_each(parts, count)
    for status in list(parts.zones.q4):
        status.forget_bodies()
        parts.homes.write_slots(status)
    parts.zones.clear()
    parts.zones.transient_threshold = count


def beta(parts: Parts, seq_id: int) -> RunPlace:
    slot = parts.homes.index.read(seq_id, seq_id + 1)[0]
    assert slot is not None
    return RunPlace(seq_id, 1, JOURNAL, slot[4], slot[5], slot[6], -1, slot[2])


@pytest.mark.parametrize("in_runs", [(), (0,), (11,), (5,), (0, 1, 2), (9, 10, 11), (0, 5, 11), tuple(range(12))])
@pytest.mark.parametrize("gone", [(), (0,), (11,), (4, 5, 6)])
def test_a_queue_is_filled_from_runs_and_from_what_only_the_index_knows(
    in_runs: tuple[int, ...], gone: tuple[int, ...]
) -> None:
    parts = Parts()
    indexed(parts, 12)
    for seq_id in gone:
        parts.live.remove(seq_id, 1)
    there = [seq_id for seq_id in range(12) if seq_id not in gone]
    betas = [status_at(beta(parts, seq_id), True, False) for seq_id in in_runs if seq_id in there]
    size = sum(len(str(seq_id)) for seq_id in there)
    parts.zones.refill(betas, len(there), size)
    check_zones(parts.zones)
    assert parts.zones.ready_bytes == size
    assert drain(parts) == there


def test_a_queue_of_which_more_was_counted_than_there_is_counts_again() -> None:
    parts = Parts()
    indexed(parts, 8)
    parts.live.remove(3, 2)
    parts.zones.refill([], 8, 8)
    assert parts.zones.recount_due
    assert parts.zones.ready_count == 6
    check_zones(parts.zones)
    parts.zones.ready_bytes = 6
    assert drain(parts) == [0, 1, 2, 5, 6, 7]
