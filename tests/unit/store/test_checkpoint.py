"""Checkpoint files, and making them a slice at a time."""

from __future__ import annotations

import errno
from random import Random

import pytest
from node_house import (
    LateSyncer,
    PlainQueue,
    TickingClock,
    new_disk,
    open_node,
    power_cut,
    reopen,
    tiny_options,
)
from tests.disk.sim_files import FaultPlan, SimCrash, SimFiles, Survival

from penstock.clock import ManualClock
from penstock.store.node import checkpoint
from penstock.store.node.checkpoint import (
    BadCheckpoint,
    CheckpointDraft,
    CheckpointHeader,
    checkpoint_numbers,
    checkpoint_path,
    read_checkpoint,
    read_header,
)
from penstock.store.node.queue_names import QueueName
from penstock.store.queue.places import UnknownVersion
from penstock.store.queue.queue_state import QueueState


def write_checkpoint(files: SimFiles, number: int = 7, salt: int = 99) -> CheckpointHeader:
    header = CheckpointHeader(number, salt, 123, clean=True)
    header.definitions_lsn, header.replay_segment, header.replay_pos, header.replay_lsn = 11, 3, 4160, 17
    header.next_segment, header.next_queue_no, header.needed_segment = 5, 9, 2
    files.make_dir(checkpoint.FOLDER)
    files.sync_dir("")
    draft = CheckpointDraft(files, header)
    draft.add(checkpoint.DEFINITIONS, b'{"vhosts": []}')
    draft.add_name(4, QueueName("aa", "bb", b"a name / with \xff"))
    state = QueueState("aa", "bb", 4, 8)
    state.next_seq_id = 12
    state.live.remove(0, 3)
    draft.add(checkpoint.STATE, state.encode())
    draft.finish().fdatasync()
    draft.publish().fdatasync()
    return header


# --- the file -----------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_as_it_was_written() -> None:
    files = new_disk()
    written = write_checkpoint(files)
    read = read_checkpoint(power_cut(files), 7)
    for field in CheckpointHeader.__slots__:
        assert getattr(read.header, field) == getattr(written, field), field
    assert read.definitions == b'{"vhosts": []}'
    assert [(number, name.label()) for number, name in read.names] == [(4, b"aa/bb a name / with \xff")]
    assert [(state.queue_no, state.next_seq_id, state.live.low) for state in read.states] == [(4, 12, 3)]


def test_a_header_can_be_read_alone() -> None:
    files = new_disk()
    write_checkpoint(files)
    assert read_header(files, 7).replay_lsn == 17


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_makes_a_checkpoint_unusable(bit: int) -> None:
    files = new_disk()
    write_checkpoint(files)
    size = len(files.contents()[checkpoint_path(7)])
    for byte in range(size):
        files.flip(checkpoint_path(7), byte, bit)
        with pytest.raises((BadCheckpoint, UnknownVersion)):
            read_checkpoint(files, 7)
        files.flip(checkpoint_path(7), byte, bit)
    assert read_checkpoint(files, 7).states


def test_every_shortened_checkpoint_is_unusable() -> None:
    files = new_disk()
    write_checkpoint(files)
    for size in reversed(range(len(files.contents()[checkpoint_path(7)]))):
        files.truncate_durable(checkpoint_path(7), size)
        with pytest.raises(BadCheckpoint):
            read_checkpoint(files, 7)


def test_records_of_another_checkpoint_are_not_believed() -> None:
    files = new_disk()
    write_checkpoint(files, 7, salt=99)
    write_checkpoint(files, 8, salt=98)
    old = files.contents()[checkpoint_path(7)]
    file = files.open(checkpoint_path(8))
    file.pwrite([old[checkpoint.HEADER_BYTES :]], checkpoint.HEADER_BYTES)
    file.close()
    with pytest.raises(BadCheckpoint, match="record 0"):
        read_checkpoint(files, 8)


def test_a_checkpoint_under_the_name_of_another_is_not_believed() -> None:
    files = new_disk()
    write_checkpoint(files, 7)
    files.rename(checkpoint_path(7), checkpoint_path(8))
    with pytest.raises(BadCheckpoint, match="under another name"):
        read_checkpoint(files, 8)


# --- making one ---------------------------------------------------------------------------------------


def test_a_checkpoint_holds_what_the_queues_hold() -> None:
    files = new_disk()
    node = open_node(files)
    node.definitions_source = lambda: [b"every", b"thing"]
    queue = PlainQueue(node)
    queue.publish(b"one", b"two", b"three")
    queue.ack(1)
    assert node.checkpoint_now()
    assert queue.synced_count == 1
    node, recovered = reopen(power_cut(files))
    assert recovered.definitions == b"everything"
    assert PlainQueue(node).contents() == {0: b"one", 2: b"three"}


def test_the_two_newest_checkpoints_are_kept() -> None:
    files = new_disk()
    node = open_node(files)
    for _ in range(4):
        assert node.checkpoint_now()
    assert checkpoint_numbers(files) == [3, 4]
    assert files.list_dir(checkpoint.FOLDER) == ["00000003.ckpt", "00000004.ckpt"]


def test_a_checkpoint_is_made_in_slices_while_the_node_works() -> None:
    files = new_disk()
    node = open_node(files, tiny_options(checkpoint_bytes=1), clock=TickingClock())
    queues = [PlainQueue(node, f"q{number}") for number in range(20)]
    for queue in queues:
        queue.publish(b"before")
    turns = 0
    while not checkpoint_numbers(files):
        node.end_turn()
        if node.checkpointer.is_running:
            turns += 1
            for queue in queues:
                queue.publish(b"during %d" % turns)
    assert turns > 10, "it was made in one piece"
    bodies = [b"before", *[b"during %d" % turn for turn in range(1, turns + 1)]]
    node.journal.commit(urgent=True)
    node, _ = reopen(power_cut(files))
    for number in range(20):
        assert list(PlainQueue(node, f"q{number}").contents().values()) == bodies


def test_a_checkpoint_waits_for_the_syncer_and_then_goes_on() -> None:
    files = new_disk()
    syncer = LateSyncer()
    node = open_node(files, tiny_options(checkpoint_bytes=1), syncer=syncer)
    queue = PlainQueue(node)
    queue.publish(b"one")
    queue.ack(queue.publish(b"two"))
    node.journal.commit(urgent=True)
    while not queue.synced_count:
        node.end_turn()
        if syncer.requests:
            assert not checkpoint_numbers(power_cut(files.copy()))
            syncer.answer()
    assert checkpoint_numbers(power_cut(files)) == [1]


def test_a_checkpoint_is_not_published_when_the_sync_of_rows_that_it_contains_fails() -> None:
    """The rows are written and their sync is under way when the queues are taken."""
    files = new_disk()
    syncer = LateSyncer()
    node = open_node(files, tiny_options(checkpoint_bytes=1), syncer=syncer)
    PlainQueue(node).publish(b"one")
    node.journal.commit(urgent=True)
    assert [file.path for file in syncer.requests[0][0]] == ["journal/00000001.pnj"]
    for _ in range(10):
        node.end_turn()
    files.plan.fail(errno.EIO, "fdatasync", "journal")
    for _ in range(10):
        if syncer.requests:
            syncer.answer()
        node.end_turn()
    assert node.failed is not None
    assert checkpoint_numbers(files) == []


def test_a_commit_is_not_answered_before_its_own_sync_while_a_checkpoint_syncs() -> None:
    files = new_disk()
    syncer = LateSyncer()
    node = open_node(files, syncer=syncer)
    node.checkpoint_now()
    assert len(syncer.requests) == 1, "the draft is being synced"
    answers: list[bool] = []
    PlainQueue(node).publish(b"one")
    node.journal.when_durable(answers.append)
    node.journal.commit()
    assert answers == []
    syncer.answer()
    assert answers == []
    assert [file.path for file in syncer.requests[0][0]] == ["journal/00000001.pnj"]
    syncer.answer()
    assert answers == [True]


def test_a_queue_that_is_deleted_meanwhile_does_not_come_back() -> None:
    for taken_before in (False, True):
        files = new_disk()
        node = open_node(files, clock=TickingClock())
        kept, deleted = PlainQueue(node, "q1"), PlainQueue(node, "q2")
        kept.publish(b"stays")
        deleted.publish(b"goes")
        node.journal.commit(urgent=True)
        node.checkpointer.begin()
        for _ in range(3 if taken_before else 1):
            node.checkpointer.step(0.0)
        deleted.delete()
        assert node.checkpoint_now()
        node, recovered = reopen(power_cut(files))
        assert node.queue_state("q2") is None
        assert recovered.report == []
        assert PlainQueue(node).contents() == {0: b"stays"}


def test_a_queue_that_is_made_meanwhile_is_found_by_replay() -> None:
    files = new_disk()
    node = open_node(files, clock=TickingClock())
    PlainQueue(node, "q1").publish(b"old")
    node.journal.commit(urgent=True)
    node.checkpointer.begin()
    node.checkpointer.step(0.0)
    PlainQueue(node, "q2").publish(b"new")
    assert node.checkpoint_now()
    node, _ = reopen(power_cut(files))
    assert PlainQueue(node, "q2").contents() == {0: b"new"}
    assert node.queue_number("aa", "q3", b"") == 3


def test_definitions_are_taken_at_the_beginning_and_changes_after_that_are_replayed() -> None:
    files = new_disk()
    node = open_node(files, clock=TickingClock())
    definitions = [b"first"]
    node.definitions_source = lambda: [b",".join(definitions)]
    node.journal.define(b"first")
    node.journal.commit(urgent=True)
    node.checkpointer.begin()
    node.checkpointer.step(0.0)
    definitions.append(b"second")
    node.journal.define(b"second")
    assert node.checkpoint_now()
    _, recovered = reopen(power_cut(files))
    assert (recovered.definitions, recovered.changes) == (b"first", [b"second"])


def test_a_checkpoint_is_due_after_some_bytes_of_journal() -> None:
    files = new_disk()
    node = open_node(files, tiny_options(checkpoint_bytes=2000))
    queue = PlainQueue(node)
    while not checkpoint_numbers(files):
        assert node.journal.bytes_written < 10_000
        queue.publish(b"x" * 100)
        node.journal.commit(urgent=True)
        node.end_turn()
    assert node.journal.bytes_written >= 2000


def test_a_checkpoint_is_due_after_some_time_if_anything_changed() -> None:
    files = new_disk()
    clock = ManualClock()
    node = open_node(files, tiny_options(checkpoint_s=10), clock)
    PlainQueue(node).publish(b"one")
    for second in range(60):
        node.end_turn()
        assert checkpoint_numbers(files) == ([1] if second > 10 else [])
        clock.advance(1)


# --- what goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["create", "pwrite", "fdatasync", "rename", "sync_dir"])
def test_a_checkpoint_that_cannot_be_written_is_given_up_and_tried_again(call: str, error: int) -> None:
    files = new_disk()
    clock = ManualClock()
    node = open_node(files, tiny_options(checkpoint_s=10), clock)
    queue = PlainQueue(node)
    queue.publish(b"one")
    assert node.checkpoint_now()
    queue.publish(b"two")
    node.journal.commit(urgent=True)
    files.plan.fail(error, call, checkpoint.FOLDER)
    assert not node.checkpoint_now()
    assert node.alarm
    assert node.failed is None
    assert queue.synced_count == 1
    queue.publish(b"three")
    clock.advance(20)
    while node.alarm or node.checkpointer.is_running:
        node.end_turn()
    assert queue.synced_count == 2
    node, recovered = reopen(power_cut(files))
    assert recovered.report == []
    assert list(PlainQueue(node).contents().values()) == [b"one", b"two", b"three"]


def test_a_queue_file_that_cannot_be_synced_fails_the_node() -> None:
    files = new_disk()
    node = open_node(files)
    queue = PlainQueue(node)
    queue.publish(b"one")
    node.journal.commit(urgent=True)
    queue.page_out(0)
    files.plan.fail(errno.EIO, "fdatasync", "vhosts")
    assert not node.checkpoint_now()
    assert node.failed is not None
    answers: list[bool] = []
    queue.publish(b"two")
    node.journal.when_durable(answers.append)
    assert answers == [False]
    node.stop()
    node, _ = reopen(power_cut(files))
    assert PlainQueue(node).contents() == {0: b"one"}


def test_a_failed_journal_makes_no_checkpoint() -> None:
    files = new_disk()
    node = open_node(files)
    files.plan.fail(errno.EIO, "fdatasync", "journal")
    PlainQueue(node).publish(b"one")
    assert not node.checkpoint_now()
    assert checkpoint_numbers(files) == []
    assert node.failed is not None


def busy_life(files: SimFiles, safe: dict[int, bytes], maybe: dict[int, bytes]) -> None:
    """Publish, ack, page out, make checkpoints, saying what must be there if it ends now, and what else may be."""
    node = open_node(files)
    queue = PlainQueue(node)
    for step in range(6):
        bodies = [b"%d-%d" % (step, number) for number in range(3)]
        first = queue.publish(*bodies)
        maybe.update({first + number: body for number, body in enumerate(bodies)})
        if step in (1, 4):
            maybe[first - 3] = safe.pop(first - 3)
            queue.ack(first - 3)
        node.journal.commit(urgent=True)
        safe.update({first + number: body for number, body in enumerate(bodies)})
        if step in (2, 3, 5):
            queue.page_out(*[seq_id for seq_id in queue.messages if seq_id not in queue.paged][:3])
            node.checkpoint_now()


@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_every_call_of_a_checkpoint_costs_nothing_that_was_durable(survival: Survival, after: bool) -> None:
    rehearsal = SimFiles(FaultPlan(survival))
    busy_life(rehearsal, {}, {})
    points = rehearsal.crash_points()
    assert len(points) > 60
    for point in points:
        files = SimFiles(FaultPlan(survival, crash_at=point, crash_after=after))
        safe: dict[int, bytes] = {}
        maybe: dict[int, bytes] = {}
        with pytest.raises(SimCrash):
            busy_life(files, safe, maybe)
        node, _ = reopen(files.crash(Random(point).randrange))
        contents = PlainQueue(node).contents()
        assert safe.items() <= contents.items(), f"lost after a crash at call {point}"
        assert contents.items() <= {**maybe, **safe}.items(), f"invented after a crash at call {point}"
