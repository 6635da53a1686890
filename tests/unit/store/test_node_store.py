"""The node's store as a whole: numbers, folders, room on the disk, stopping."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from node_house import (
    ENVELOPE,
    SLOTS,
    VHOST,
    LateSyncer,
    PlainQueue,
    new_disk,
    new_node,
    open_node,
    power_cut,
    reopen,
    tiny_options,
)
from tests.disk.sim_files import FaultPlan, SimFiles

from penstock.clock import ManualClock
from penstock.disk.files import File
from penstock.errors import StartupError
from penstock.journal.syncer import SyncDone, Syncer
from penstock.store.node.checkpoint import checkpoint_numbers, read_checkpoint
from penstock.store.node.queue_names import QueueName, QueueNames, parse_label
from penstock.store.node.shared_syncer import SharedSyncer

# --- numbers and names --------------------------------------------------------------------------------


def test_large_transient_bodies_of_the_last_life_are_gone_after_a_start() -> None:
    files = new_disk()
    node = open_node(files)
    store = node.message_store(VHOST, False)
    store.put(ENVELOPE, b"x" * 100 + b"\xce")
    store.flush()
    assert [path for path in files.contents() if "/transient/" in path]
    files = files.kill()
    reopen(files)
    assert [path for path in files.contents() if "/transient/" in path] == []


def test_a_queue_keeps_its_number_over_lives() -> None:
    files = new_disk()
    node = open_node(files)
    numbers = [node.queue_number(VHOST, f"q{index}", b"") for index in range(3)]
    assert node.queue_number(VHOST, "q1", b"") == numbers[1]
    for index in range(3):
        PlainQueue(node, f"q{index}").publish(b"one")
    node.stop()
    node, _ = reopen(power_cut(files))
    assert [node.queue_number(VHOST, f"q{index}", b"") for index in range(3)] == numbers
    assert node.queue_number(VHOST, "q3", b"") == 4


def test_a_label_can_be_taken_apart_whatever_the_queue_is_called() -> None:
    for text in (b"", b"a/b c", b"\xff\x00 /", b" "):
        name = parse_label(QueueName("aa", "bb-001", text).label())
        assert name is not None
        assert (name.vhost_id, name.queue_id, name.text) == ("aa", "bb-001", text)
    assert parse_label(b"no label") is None
    assert parse_label(b"aa/bb") is None


def test_a_forgotten_number_is_not_given_again() -> None:
    names = QueueNames()
    first = names.new_number(QueueName("aa", "bb", b""))
    names.forget(first)
    assert names.number("bb") is None
    assert names.new_number(QueueName("aa", "bb", b"")) == first + 1


# --- folders ------------------------------------------------------------------------------------------


def test_queues_that_are_not_known_any_more_are_removed_with_their_folders() -> None:
    files = new_disk()
    node = open_node(files)
    for queue_id in ("q1", "q2"):
        queue = PlainQueue(node, queue_id)
        queue.publish(b"one")
        node.journal.commit(urgent=True)
        queue.page_out(0)
    node.stop()
    node = new_node(power_cut(files))
    recovered = node.open()
    node.remove_unknown_queues(VHOST, ["q2"])
    assert node.files.list_dir(f"vhosts/{VHOST}/queues") == ["q2"]
    assert node.queue_state("q1") is None
    assert recovered.report == [
        "1 messages of queue 'orders q1' (q1) are lost: the definitions do not know the queue",
    ]
    node.checkpoint_now()
    newest = read_checkpoint(node.files, checkpoint_numbers(node.files)[-1])
    assert [state.queue_id for state in newest.states] == ["q2"]


def test_files_that_a_crash_left_and_nothing_names_are_removed() -> None:
    files = new_disk()
    node = open_node(files)
    queue = PlainQueue(node)
    queue.publish(*[b"%d" % number for number in range(3 * SLOTS)])
    node.journal.commit(urgent=True)
    queue.page_out(0)
    node.checkpoint_now()
    queue.page_out(SLOTS)
    queue.flush()
    folder = f"vhosts/{VHOST}/queues/q1/idx"
    assert files.list_dir(folder) == ["00000000.qi", "00000001.qi"]
    node, _ = reopen(files.kill())
    assert node.files.list_dir(folder) == ["00000000.qi"]
    assert len(PlainQueue(node).contents()) == 3 * SLOTS


def test_vhosts_that_are_not_known_any_more_are_removed() -> None:
    files = new_disk()
    node = open_node(files)
    for vhost_id in ("aa", "bb"):
        PlainQueue(node, f"q-{vhost_id}", vhost_id).publish_large(b"x" * 100)
    node.stop()
    node = new_node(power_cut(files))
    node.open()
    node.remove_unknown_vhosts(["aa"])
    assert node.files.list_dir("vhosts") == ["aa"]
    assert node.queue_state("q-bb") is None
    assert node.queue_state("q-aa") is not None


def test_a_vhost_can_be_removed_and_made_again() -> None:
    files = new_disk()
    node = open_node(files)
    queue = PlainQueue(node)
    queue.publish_large(b"x" * 100)
    node.journal.commit(urgent=True)
    queue.delete()
    node.remove_vhost(VHOST)
    assert files.list_dir("vhosts") == []
    PlainQueue(node, "q2").publish_large(b"y" * 100)
    node.stop()
    node, recovered = reopen(power_cut(files))
    assert PlainQueue(node, "q2").contents() == {0: b"y" * 100}
    assert recovered.report == []


# --- room on the disk ---------------------------------------------------------------------------------


def test_the_reserve_lets_the_journal_go_on_when_the_disk_is_full() -> None:
    files = SimFiles(FaultPlan(capacity_bytes=60_000))
    clock = ManualClock()
    node = open_node(files, tiny_options(1 << 20, reserve_bytes=20_000), clock)
    assert node.reserve.is_allocated
    queue = PlainQueue(node)
    answers: list[bool] = []
    while node.reserve.is_allocated:
        queue.publish(b"x" * 2000)
        node.journal.when_durable(answers.append)
        node.journal.commit()
    assert all(answers)
    assert not files.exists("reserve")
    while answers[-1]:
        queue.publish(b"x" * 2000)
        node.journal.when_durable(answers.append)
        node.journal.commit()
    assert node.failed is None, "a full disk is no failure"
    files.plan.capacity_bytes = 1 << 20
    clock.advance(60)
    node.end_turn()
    while not node.reserve.is_allocated:
        clock.advance(60)
        node.end_turn()
    node.journal.when_durable(answers.append)
    node.journal.commit(urgent=True)
    assert answers[-1]


def test_a_disk_that_is_too_small_for_the_reserve_is_used_without_it() -> None:
    files = SimFiles(FaultPlan(capacity_bytes=30_000))
    node = open_node(files, tiny_options(reserve_bytes=20_000))
    assert not node.reserve.is_allocated
    assert not files.exists("reserve")
    assert not node.reserve.release()


# --- stopping and failing -----------------------------------------------------------------------------


def test_a_stop_waits_for_the_sync_that_is_under_way() -> None:
    files = new_disk()
    syncer = LateSyncer()
    node = open_node(files, syncer=syncer)
    answers: list[bool] = []
    PlainQueue(node).publish(b"one")
    node.journal.when_durable(answers.append)
    node.journal.commit()
    assert answers == []
    node.stop()
    assert answers == [True]
    _, recovered = reopen(power_cut(files))
    assert recovered.clean


def test_a_stop_in_the_middle_of_a_checkpoint_ends_with_a_clean_one() -> None:
    files = new_disk()
    syncer = LateSyncer()
    node = open_node(files, syncer=syncer)
    PlainQueue(node).publish(b"one")
    assert not node.checkpoint_now()
    node.stop()
    node, recovered = reopen(power_cut(files))
    assert recovered.clean
    assert PlainQueue(node).contents() == {0: b"one"}


def test_a_folder_is_free_after_a_stop() -> None:
    files = new_disk()
    open_node(files).stop()
    open_node(files)
    with pytest.raises(StartupError):
        new_node(files).open()


class DeafSyncer(Syncer):
    """Never answers."""

    def submit(self, files: Sequence[File], done: SyncDone) -> None:
        return None

    def close(self) -> None:
        return None


def test_a_sync_without_an_answer_counts_as_failed_and_is_not_repeated() -> None:
    files = new_disk()
    node = open_node(files, syncer=DeafSyncer())
    answers: list[bool] = []
    PlainQueue(node).publish(b"one")
    node.journal.when_durable(answers.append)
    node.journal.commit()
    node.stop()
    assert answers == [False]
    assert checkpoint_numbers(files) == []
    assert not reopen(power_cut(files))[1].clean


def test_requests_to_a_shared_syncer_are_answered_in_order() -> None:
    files = new_disk()
    late = LateSyncer()
    shared = SharedSyncer(late)
    answered: list[int] = []
    for number in range(3):
        shared.submit([files.create(f"f{number}")], lambda error, number=number: answered.append(number))  # type: ignore[misc]
    assert shared.is_busy
    while late.requests:
        late.answer()
    assert answered == [0, 1, 2]
    assert not shared.is_busy


# --- turns --------------------------------------------------------------------------------------------


def test_dead_bodies_of_the_shared_store_are_compacted_in_turns() -> None:
    files = new_disk()
    clock = ManualClock()
    node = open_node(files, clock=clock)
    queue = PlainQueue(node)
    for _ in range(20):
        queue.publish_large(*[b"%d" % number * 900 for number in range(4)])
        node.journal.commit(urgent=True)
    store = node.message_store(VHOST, True)
    for seq_id in list(queue.messages)[1:]:
        store.release(queue.messages[seq_id][4])
        queue.ack(seq_id)
    node.journal.commit(urgent=True)
    before = store.status()["files"]
    for _ in range(200):
        clock.advance(1)
        node.end_turn()
    assert store.status()["files"] < before
    assert queue.contents() == {0: b"0" * 900}


def test_many_queues_with_files_do_not_need_many_handles_at_once() -> None:
    files = new_disk()
    options = tiny_options()
    options.handles_max = 4
    node = open_node(files, options)
    queues = [PlainQueue(node, f"q{number}") for number in range(40)]
    for queue in queues:
        queue.publish(b"one")
    node.journal.commit(urgent=True)
    for queue in queues:
        queue.page_out(0)
    assert node.checkpoint_now()
    assert node.handles.status()["open_max"] <= 16 + 4
    node, _ = reopen(power_cut(files))
    assert PlainQueue(node, "q39").contents() == {0: b"one"}
