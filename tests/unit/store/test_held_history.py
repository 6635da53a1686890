"""What named readers have not read stays, up to a limit; who comes too late is named, with what was lost."""

from __future__ import annotations

import errno
from random import Random

import pytest
from node_house import PlainQueue, new_disk, open_node, tiny_options
from tests.disk.sim_files import SimFiles

from penstock.clock import ManualClock
from penstock.disk.files import write_file
from penstock.store.node.checkpoint import KEPT
from penstock.store.node.node_store import NodeStore
from penstock.store.queue import places
from penstock.store.retention.reader_cursors import forget_cursor, read_cursors, write_cursor
from penstock.store.retention.retention import NOTHING

# A dozen messages or so.
TINY_SEGMENT = 30_000
MANY = 1 << 30


def node_with(
    files: SimFiles, readers_bytes_max: int = MANY, retention_bytes: int = 0, clock: ManualClock | None = None
) -> NodeStore:
    options = tiny_options(TINY_SEGMENT, retention_bytes=retention_bytes, readers_bytes_max=readers_bytes_max)
    return open_node(files, options, clock or ManualClock())


def fill(node: NodeStore, queue: PlainQueue, segments: int) -> None:
    """Publish and ack until so many segments have been begun."""
    until = node.journal.segments.position()[0] + segments
    while node.journal.segments.position()[0] < until:
        queue.ack(queue.publish(b"x" * 2000))
        node.journal.commit(urgent=True)


def work(node: NodeStore) -> None:
    """Let everything in the background come to its end."""
    for _ in range(6):
        assert node.checkpoint_now()
        while node.retention.moving != NOTHING:
            node.end_turn()


def warnings_of(node: NodeStore) -> str:
    """Which readers have lost events, and what to do."""
    return "; ".join(node.unread.warnings.values())


def first_lsns(node: NodeStore) -> dict[int, int]:
    return {number: node.journal.segments.first_lsn(number) for number in node.journal.segments.numbers()}


def test_a_reader_holds_what_it_has_not_read_though_no_history_is_kept() -> None:
    files = new_disk()
    node = node_with(files)
    queue = PlainQueue(node)
    fill(node, queue, 8)
    write_cursor(files, "lake", first_lsns(node)[3], 1)
    work(node)
    assert node.journal.segments.numbers()[0] == 3
    assert node.retention.unread_bytes == sum([node.journal.segments.size_bytes(number) for number in range(3, 8)])
    assert warnings_of(node) == ""


def test_a_segment_goes_with_its_last_event_and_not_one_before() -> None:
    files = new_disk()
    node = node_with(files)
    queue = PlainQueue(node)
    fill(node, queue, 8)
    behind = first_lsns(node)[5]
    write_cursor(files, "lake", behind - 1, 1)
    work(node)
    assert node.journal.segments.numbers()[0] == 4
    write_cursor(files, "lake", behind, 2)
    work(node)
    assert node.journal.segments.numbers()[0] == 5


def test_the_slowest_reader_decides_until_it_is_forgotten() -> None:
    files = new_disk()
    node = node_with(files)
    queue = PlainQueue(node)
    fill(node, queue, 8)
    lsns = first_lsns(node)
    write_cursor(files, "fast", lsns[6], 1)
    write_cursor(files, "slow", lsns[2], 1)
    work(node)
    assert node.journal.segments.numbers()[0] == 2
    assert forget_cursor(files, "slow")
    work(node)
    assert node.journal.segments.numbers()[0] == 6


def test_above_the_limit_the_oldest_go_and_the_reader_is_named_with_what_it_lost() -> None:
    files = new_disk()
    node = node_with(files, readers_bytes_max=3 * TINY_SEGMENT)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    write_cursor(files, "other one", 3, 1)
    fill(node, queue, 10)
    work(node)
    oldest = node.journal.segments.numbers()[0]
    assert 1 < oldest < node.journal.segments.position()[0] - 1
    assert node.retention.unread_bytes <= 3 * TINY_SEGMENT
    assert node.retention.unread_bytes + TINY_SEGMENT > 3 * TINY_SEGMENT, "one more would not have fit"
    first = first_lsns(node)[oldest]
    assert node.unread.lapsed == [("lake", first), ("other one", first - 3)]
    assert f"lake has lost {first:,} events" in warnings_of(node)
    assert "--readers-limit" in warnings_of(node)
    assert "penstock history forget 'other one'" in warnings_of(node)


def test_a_reader_is_off_the_list_when_it_has_moved_beyond_what_it_lost() -> None:
    files = new_disk()
    node = node_with(files, readers_bytes_max=0)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 5)
    work(node)
    first = min(first_lsns(node).values())
    assert node.unread.lapsed == [("lake", first)]
    write_cursor(files, "lake", first - 1, 2)
    work(node)
    assert node.unread.lapsed == [("lake", 1)]
    write_cursor(files, "lake", first, 3)
    work(node)
    assert node.unread.lapsed == []
    assert warnings_of(node) == ""


def test_who_has_lapsed_is_known_after_a_restart() -> None:
    files = new_disk()
    node = node_with(files, readers_bytes_max=0)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 5)
    work(node)
    lapsed = node.unread.lapsed
    assert lapsed
    files = files.kill()
    node = node_with(files)
    PlainQueue(node)
    work(node)
    assert node.unread.lapsed == lapsed


def test_with_a_limit_of_nothing_readers_hold_nothing() -> None:
    files = new_disk()
    node = node_with(files, readers_bytes_max=0)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 5)
    work(node)
    assert node.journal.segments.numbers()[0] >= 5


def test_what_history_keeps_anyway_does_not_count_for_readers() -> None:
    files = new_disk()
    node = node_with(files, readers_bytes_max=2 * TINY_SEGMENT, retention_bytes=3 * TINY_SEGMENT)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 12)
    work(node)
    sizes = [node.journal.segments.size_bytes(number) for number in node.journal.segments.numbers()[:-1]]
    assert 4 * TINY_SEGMENT < sum(sizes) <= 5 * TINY_SEGMENT
    assert node.retention.unread_bytes <= 2 * TINY_SEGMENT


def test_with_little_room_on_the_disk_readers_hold_nothing_and_are_told() -> None:
    files = new_disk()
    clock = ManualClock()
    node = node_with(files, clock=clock)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 6)
    work(node)
    assert node.journal.segments.numbers()[0] == 1
    node.set_disk_is_low(True)
    for _ in range(4):
        clock.advance(1.1)
        for _ in range(20):
            node.end_turn()
    assert node.journal.segments.numbers()[0] >= 6
    assert [name for name, _ in node.unread.lapsed] == ["lake"]


def test_bodies_move_home_behind_segments_that_readers_hold() -> None:
    files = new_disk()
    node = node_with(files)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 2)
    kept = queue.publish(b"stays for long")
    fill(node, queue, 4)
    work(node)
    assert queue.messages[kept][1] == places.QUEUE_STORE
    assert queue.contents() == {kept: b"stays for long"}
    assert node.journal.segments.numbers()[0] == 1


def test_bodies_do_not_move_because_readers_hold_much() -> None:
    files = new_disk()
    node = node_with(files)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 8)
    until = node.journal.segments.position()[0] + 3
    while node.journal.segments.position()[0] < until:
        queue.publish(b"x" * 2000)
        node.journal.commit(urgent=True)
    work(node)
    assert {message[1] for message in queue.messages.values()} == {places.JOURNAL}


def test_held_segments_do_not_ask_for_checkpoints() -> None:
    files = new_disk()
    clock = ManualClock()
    node = node_with(files, clock=clock)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 4)
    work(node)
    made = node.checkpointer.next_number
    for _ in range(400):
        clock.advance(1)
        node.end_turn()
    assert node.checkpointer.next_number == made
    assert node.journal.segments.numbers()[0] == 1


def test_while_nothing_happens_a_reader_that_gets_on_still_frees_what_it_held() -> None:
    files = new_disk()
    clock = ManualClock()
    node = node_with(files, clock=clock)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 4)
    work(node)
    write_cursor(files, "lake", node.journal.next_lsn, 2)
    made = node.checkpointer.next_number
    for _ in range(100):
        clock.advance(1)
        node.end_turn()
    assert node.journal.segments.numbers()[0] >= 4
    assert node.retention.unread_bytes == 0
    assert node.checkpointer.next_number == made


def test_a_cursor_that_cannot_be_read_lets_nothing_go() -> None:
    files = new_disk()
    node = node_with(files)
    queue = PlainQueue(node)
    write_cursor(files, "lake", 0, 1)
    fill(node, queue, 4)
    files.plan.fail(errno.EACCES, "open", "readers/", forever=True)
    work(node)
    assert node.journal.segments.numbers()[0] == 1
    assert "EACCES" in node.alarm
    node.set_disk_is_low(True)
    work(node)
    assert node.journal.segments.numbers()[0] >= 4, "a full disk is worse"
    assert node.alarm == ""


def test_a_damaged_cursor_is_named_and_holds_nothing() -> None:
    files = new_disk()
    node = node_with(files)
    queue = PlainQueue(node)
    write_file(files, "readers/notes.txt", b"mine")
    fill(node, queue, 4)
    work(node)
    assert node.journal.segments.numbers()[0] >= 4
    assert "readers/notes.txt" in warnings_of(node)


def test_a_segment_whose_head_is_damaged_counts_as_held() -> None:
    files = new_disk()
    node = node_with(files)
    queue = PlainQueue(node)
    fill(node, queue, 6)
    lsn = first_lsns(node)[4]
    write_cursor(files, "lake", lsn, 1)
    # The head, its copy, and the first batch, which has the LSN once more.
    files.zero_block("journal/00000004.pnj", 0, 4096 + 256)
    work(node)
    # Nobody knows that segment 3 ends right before the cursor.
    assert node.journal.segments.numbers()[0] == 3


class Before:
    """The segments as they are right before a checkpoint."""

    def __init__(self, node: NodeStore) -> None:
        self.numbers = node.journal.segments.numbers()
        self.sizes = {number: node.journal.segments.size_bytes(number) for number in self.numbers}
        self.lsns = first_lsns(node)


def expected_segments(node: NodeStore, before: Before, reader_lsns: list[int]) -> list[int]:
    """Which of them should be there after it, found out one by one, without any cleverness."""
    options, kept, low = node.options, node.checkpointer.kept, node.retention.disk_is_low
    if len(kept) < KEPT:
        return before.numbers
    needed = min(min(header.replay_segment, header.needed_segment) for header in kept)
    history = [number for number in before.numbers[:-1] if number < kept[-1].replay_segment]
    out = [
        number
        for place, number in enumerate(history)
        if low or sum(before.sizes[later] for later in history[place:]) > options.retention_bytes
    ]
    may_go = [number for number in out if number < needed]
    left = list(before.numbers)
    for place, number in enumerate(may_go):
        is_wanted = any(lsn < before.lsns[before.numbers[place + 1]] for lsn in reader_lsns)
        is_too_much = sum(before.sizes[later] for later in may_go[place:]) > options.readers_bytes_max
        if is_wanted and not is_too_much and not low:
            break
        left.remove(number)
    return left


def check_next_checkpoint(node: NodeStore, files: SimFiles) -> None:
    node.journal.commit(urgent=True)
    before = Before(node)
    cursors = read_cursors(files)[0]
    assert node.checkpoint_now()
    expected = expected_segments(node, before, [cursor.lsn for cursor in cursors])
    assert node.journal.segments.numbers() == expected
    if len(node.checkpointer.kept) == KEPT:
        first = before.lsns[expected[0]]
        late = [(cursor.name, first - cursor.lsn) for cursor in cursors if cursor.lsn < first]
        assert node.unread.lapsed == late
    while node.retention.moving != NOTHING:
        node.end_turn()


@pytest.mark.parametrize("seed", range(40))
def test_in_any_schedule_nothing_that_a_reader_needs_goes_unless_limit_or_disk_say_so(seed: int) -> None:
    random = Random(seed)
    files = new_disk()
    options = tiny_options(
        random.choice([8_000, TINY_SEGMENT]),
        retention_bytes=random.choice([0, 0, 40_000, MANY]),
        readers_bytes_max=random.choice([0, 20_000, 100_000, MANY]),
    )
    node = open_node(files, options)
    queue = PlainQueue(node)
    names = ["a", "b/b", "c"]
    for _ in range(150):
        deed = random.randrange(12)
        if deed < 5:
            for _ in range(random.randrange(1, 12)):
                queue.publish(b"x" * random.randrange(10, 3000))
                node.journal.commit(urgent=True)
            # One message of an old segment stays from time to time.
            queue.ack(*list(queue.messages)[random.randrange(2) :])
        elif deed == 5:
            write_cursor(files, random.choice(names), max(0, node.journal.next_lsn - random.randrange(60)), 1)
        elif deed == 6 and random.randrange(4) == 0:
            forget_cursor(files, random.choice(names))
        elif deed == 7 and random.randrange(4) == 0:
            node.set_disk_is_low(not node.retention.disk_is_low)
        elif deed == 8 and random.randrange(4) == 0:
            files = files.kill()
            node = open_node(files, options)
            queue = PlainQueue(node)
        elif deed > 8:
            check_next_checkpoint(node, files)
