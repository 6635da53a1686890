"""Which journal segments stay, which go, and how bodies get out of those that are to go."""

from __future__ import annotations

import errno
from random import Random

import pytest
from node_house import PlainQueue, TickingClock, new_disk, open_node, power_cut, reopen, tiny_options
from tests.disk.sim_files import FaultPlan, SimCrash, SimFiles, Survival

from penstock.clock import ManualClock
from penstock.store.node.node_store import NodeStore
from penstock.store.queue import places
from penstock.store.retention.retention import NOTHING

# A dozen messages or so.
TINY_SEGMENT = 30_000


def node_with(
    files: SimFiles, retention_bytes: int, retention_s: float = 1e9, clock: ManualClock | None = None
) -> NodeStore:
    options = tiny_options(TINY_SEGMENT, retention_bytes=retention_bytes, retention_s=retention_s)
    return open_node(files, options, clock or ManualClock())


def fill(node: NodeStore, queue: PlainQueue, segments: int) -> None:
    """Publish until so many segments have been begun."""
    until = node.journal.segments.position()[0] + segments
    while node.journal.segments.position()[0] < until:
        queue.publish(b"x" * 2000)
        node.journal.commit(urgent=True)


def work(node: NodeStore) -> None:
    """Let everything in the background come to its end."""
    for _ in range(20):
        assert node.checkpoint_now()
        while node.retention.moving != NOTHING:
            node.end_turn()


def test_history_that_nobody_needs_goes_when_there_is_no_retention() -> None:
    files = new_disk()
    node = node_with(files, retention_bytes=0)
    queue = PlainQueue(node)
    fill(node, queue, 4)
    queue.ack(*list(queue.messages))
    assert node.checkpoint_now()
    assert node.journal.segments.numbers()[0] == 1, "there is no second checkpoint to fall back to"
    assert node.checkpoint_now()
    assert node.journal.segments.numbers()[0] == node.checkpointer.kept[0].replay_segment
    assert node.journal.segments.numbers()[0] >= 4


def test_history_is_kept_up_to_its_size() -> None:
    files = new_disk()
    node = node_with(files, retention_bytes=3 * TINY_SEGMENT)
    queue = PlainQueue(node)
    fill(node, queue, 10)
    queue.ack(*list(queue.messages))
    work(node)
    segments = node.journal.segments.numbers()
    newest = node.journal.segments.position()[0]
    sizes = [node.journal.segments.size_bytes(number) for number in segments if number < newest]
    assert sum(sizes) <= 3 * TINY_SEGMENT
    assert sum(sizes) + max(sizes) > 3 * TINY_SEGMENT, "one more would have fit"


def test_with_little_room_on_the_disk_history_is_not_kept() -> None:
    files = new_disk()
    clock = ManualClock()
    node = node_with(files, retention_bytes=1 << 30, clock=clock)
    queue = PlainQueue(node)
    fill(node, queue, 10)
    queue.ack(*list(queue.messages))
    work(node)
    assert node.journal.segments.numbers()[0] == 1
    node.set_disk_is_low(True)
    for _ in range(4):
        # Checkpoints come by themselves, long before their usual time.
        clock.advance(1.1)
        for _ in range(20):
            node.end_turn()
    assert node.journal.segments.numbers() == [node.journal.segments.position()[0]]


def test_history_is_kept_up_to_its_age() -> None:
    files = new_disk()
    clock = ManualClock()
    node = node_with(files, retention_bytes=1 << 30, retention_s=3600, clock=clock)
    queue = PlainQueue(node)
    fill(node, queue, 3)
    clock.advance(1800)
    fill(node, queue, 3)
    queue.ack(*list(queue.messages))
    clock.advance(1900)
    work(node)
    assert node.journal.segments.numbers()[0] == 3, "it was left when the one behind it was begun, half an hour ago"
    clock.advance(1800)
    work(node)
    assert node.journal.segments.numbers()[0] == node.journal.segments.position()[0] - 1


def test_a_segment_with_a_live_body_stays_while_much_of_it_is_alive() -> None:
    files = new_disk()
    node = node_with(files, retention_bytes=0)
    queue = PlainQueue(node)
    fill(node, queue, 3)
    work(node)
    assert node.journal.segments.numbers()[0] == 1


@pytest.mark.parametrize("paged", [False, True])
def test_the_last_bodies_of_an_old_segment_move_home_and_it_goes(paged: bool) -> None:
    files = new_disk()
    node = node_with(files, retention_bytes=0)
    queue = PlainQueue(node)
    queue.publish(b"stays for long")
    fill(node, queue, 4)
    if paged:
        queue.page_out(0)
    queue.ack(*[seq_id for seq_id in queue.messages if seq_id != 0])
    work(node)
    assert node.journal.segments.numbers()[0] > 1
    assert queue.messages[0][1] == places.QUEUE_STORE
    assert queue.contents() == {0: b"stays for long"}
    node, recovered = reopen(power_cut(files))
    assert recovered.report == []
    assert PlainQueue(node).contents() == {0: b"stays for long"}


def test_a_segment_stays_until_neither_kept_checkpoint_needs_it() -> None:
    files = new_disk()
    node = node_with(files, retention_bytes=0)
    queue = PlainQueue(node)
    queue.publish(b"stays for long")
    fill(node, queue, 4)
    queue.ack(*[seq_id for seq_id in queue.messages if seq_id != 0])
    for _ in range(20):
        node.checkpoint_now()
        while node.retention.moving != NOTHING:
            node.end_turn()
        # The older of the two checkpoints must be good enough at any time.
        survivor = files.copy()
        numbers = [header.number for header in node.checkpointer.kept]
        if len(numbers) == 2:
            survivor.flip(f"checkpoint/{numbers[1]:08d}.ckpt", 100, 0)
            again, _ = reopen(survivor)
            assert PlainQueue(again).contents() == {0: b"stays for long"}
    assert node.journal.segments.numbers()[0] > 1


def test_a_journal_that_grew_far_beyond_what_is_alive_is_moved_home() -> None:
    files = new_disk()
    node = node_with(files, retention_bytes=0)
    queue = PlainQueue(node)
    kept: list[int] = []
    until = node.journal.segments.position()[0] + 12
    while node.journal.segments.position()[0] < until:
        # 40 % of each segment stay alive: above a quarter, but the journal is more than twice of what lives.
        first = queue.publish(b"a" * 800, b"b" * 1200)
        queue.ack(first + 1)
        kept.append(first)
        node.journal.commit(urgent=True)
    work(node)
    assert node.journal.segments.numbers()[0] > 1
    assert queue.contents() == dict.fromkeys(kept, b"a" * 800)


def test_one_message_in_each_segment_does_not_keep_the_journal() -> None:
    """As an unread queue of dead letters does it, beside much that is consumed."""
    files = new_disk()
    clock = ManualClock()
    limit = 4 * TINY_SEGMENT
    checkpoint_bytes = 3 * TINY_SEGMENT
    options = tiny_options(TINY_SEGMENT, checkpoint_bytes=checkpoint_bytes, retention_bytes=limit)
    node = open_node(files, options, clock)
    traffic = PlainQueue(node)
    letters = PlainQueue(node, "q2")
    largest = 0
    for _ in range(60):
        number = node.journal.segments.position()[0]
        letters.publish(b"dead")
        while node.journal.segments.position()[0] == number:
            traffic.ack(traffic.publish(b"x" * 1000))
            node.journal.commit(urgent=True)
            node.end_turn()
        for _ in range(20):
            clock.advance(0.01)
            node.end_turn()
        sizes = [node.journal.segments.size_bytes(number) for number in node.journal.segments.numbers()]
        largest = max(largest, sum(sizes))
    # Two checkpoints have to pass before what was emptied can go, and what is written meanwhile comes on top.
    assert largest <= limit + 3 * checkpoint_bytes + 3 * TINY_SEGMENT
    assert list(letters.contents().values()) == [b"dead"] * 60
    node, recovered = reopen(power_cut(files))
    assert recovered.report == []
    assert list(PlainQueue(node, "q2").contents().values()) == [b"dead"] * 60


def test_when_traffic_ends_the_journal_comes_back_to_its_limit_soon() -> None:
    files = new_disk()
    clock = ManualClock()
    node = open_node(files, tiny_options(TINY_SEGMENT, retention_bytes=TINY_SEGMENT), clock)
    traffic = PlainQueue(node)
    letters = PlainQueue(node, "q2")
    for _ in range(20):
        letters.publish(b"dead")
        fill(node, traffic, 1)
        traffic.ack(*list(traffic.messages))
    node.checkpoint_now()
    for _ in range(30):
        clock.advance(1.0)
        for _ in range(10):
            node.end_turn()
    assert len(node.journal.segments.numbers()) <= 4
    assert len(letters.contents()) == 20


def test_bodies_are_moved_in_slices() -> None:
    files = new_disk()
    options = tiny_options(1 << 20, retention_bytes=0)
    node = open_node(files, options, TickingClock())
    queue = PlainQueue(node)
    queue.publish(*[b"%d" % number for number in range(2000)])
    queue.publish(b"x" * 50_000)
    node.journal.commit(urgent=True)
    queue.ack(2000)
    node.journal.commit(urgent=True)
    node.journal.roll()
    queue.publish(b"next segment")
    node.checkpoint_now()
    assert node.retention.moving == 1
    slices = 0
    while node.retention.moving != NOTHING:
        node.end_turn()
        slices += 1
    assert slices >= 4
    assert queue.journal_segment_needed() == 2


def test_a_move_that_finds_the_disk_full_is_tried_again_later() -> None:
    files = new_disk()
    node = node_with(files, retention_bytes=0)
    queue = PlainQueue(node)
    queue.publish(b"stays for long")
    fill(node, queue, 4)
    queue.ack(*[seq_id for seq_id in queue.messages if seq_id != 0])
    node.checkpoint_now()
    assert node.retention.moving != NOTHING
    move_home = queue.move_home
    queue.move_home = full_disk  # type: ignore[method-assign]
    node.end_turn()
    assert node.retention.moving == NOTHING
    assert "no room" in node.alarm
    queue.move_home = move_home  # type: ignore[method-assign]
    work(node)
    assert node.alarm == ""
    assert node.journal.segments.numbers()[0] > 1


def full_disk(segment: int, count_max: int) -> bool:
    raise OSError(errno.ENOSPC, "no room")


def test_a_checkpoint_is_made_for_segments_that_wait_for_one_even_if_nothing_else_changes() -> None:
    files = new_disk()
    clock = ManualClock()
    node = node_with(files, retention_bytes=0, clock=clock)
    queue = PlainQueue(node)
    fill(node, queue, 3)
    queue.ack(*list(queue.messages))
    node.journal.commit(urgent=True)
    for _ in range(400):
        clock.advance(1)
        node.end_turn()
    newest = node.journal.segments.position()[0]
    assert node.journal.segments.numbers()[0] >= newest - 1
    made = node.checkpointer.next_number
    for _ in range(400):
        clock.advance(1)
        node.end_turn()
    assert node.checkpointer.next_number == made, "and then it ends"


def moving_life(files: SimFiles) -> None:
    node = open_node(files, tiny_options(TINY_SEGMENT, retention_bytes=0))
    queue = PlainQueue(node)
    if not queue.messages:
        queue.publish(b"stays for long")
        node.journal.commit(urgent=True)
    fill(node, queue, 3)
    queue.ack(*[seq_id for seq_id in queue.messages if seq_id != 0])
    node.journal.commit(urgent=True)
    work(node)


@pytest.mark.slow
@pytest.mark.parametrize("survival", list(Survival))
def test_a_crash_at_any_moment_of_a_move_loses_nothing(survival: Survival) -> None:
    base = SimFiles(FaultPlan(survival))
    node = open_node(base, tiny_options(TINY_SEGMENT, retention_bytes=0))
    PlainQueue(node).publish(b"stays for long")
    node.journal.commit(urgent=True)
    base = base.kill()
    rehearsal = base.copy()
    moving_life(rehearsal)
    points = rehearsal.crash_points()
    for point in points[:: max(1, len(points) // 150)]:
        files = base.copy()
        files.plan.crash_at = point
        with pytest.raises(SimCrash):
            moving_life(files)
        node, recovered = reopen(files.crash(Random(point).randrange))
        assert PlainQueue(node).contents().get(0) == b"stays for long", f"crash at call {point}"
        assert not [line for line in recovered.report if "lost" in line]
