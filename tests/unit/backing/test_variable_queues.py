"""Opening variable queues: new ones, those of a clean stop, those of a crash, and those that nobody knows any more."""

from __future__ import annotations

import random

import pytest
from tests.contract.variable_house import QUEUE, VHOST, VariableHouse, fill_all_zones, no_paging, plain_options

from penstock.backing.backing_queue import BackingWork, Recovery
from penstock.backing.variable.variable_queues import VariableBackingQueues
from penstock.clock import ManualClock
from penstock.journal.syncer import InlineSyncer
from penstock.store.node.node_store import NodeStore


def nobody(kind: str, work: BackingWork) -> None:
    raise AssertionError


def test_a_queue_is_opened_as_new_when_nothing_is_known_of_it() -> None:
    house = VariableHouse()
    queue = house.queues.open("a1", True, Recovery(True), nobody)
    assert (len(queue), queue.depth(), queue.status()["next_seq_id"]) == (0, 0, 0)


def test_start_answers_for_each_queue_and_says_whether_the_stop_was_clean() -> None:
    house = VariableHouse()
    house.numbered(0, 1)
    house.restart()
    assert [recovery.clean for recovery in house.queues.start([QUEUE, "a1"])] == [True, True]
    house.kill()
    assert [recovery.clean for recovery in house.queues.start([QUEUE])] == [False]


def test_after_a_clean_stop_numbering_and_delivery_marks_go_on() -> None:
    house = VariableHouse()
    house.numbered(0, 9)
    house.fetch(3)
    house.queue.ack([0])
    house.restart()
    assert house.status("next_seq_id") == 10
    assert house.publish(b"10") == 10
    found = house.fetched(10)
    assert [seq_id for seq_id, _, _ in found] == list(range(1, 11))
    assert [redelivered for _, _, redelivered in found] == [True, True, *[False] * 8]


def test_after_a_crash_everything_is_marked_and_numbering_goes_on_with_a_new_segment() -> None:
    house = VariableHouse()
    house.numbered(0, 11)
    house.fetch(3)
    house.publish(b"transient", persistent=False)
    house.crash()
    assert house.status("next_seq_id") == 15
    assert [redelivered for _, _, redelivered in house.fetched(12)] == [True] * 12
    assert house.publish(b"new") == 15
    assert [redelivered for _, _, redelivered in house.fetched(1)] == [False]


@pytest.mark.parametrize("count", [5, 10])
def test_after_a_crash_at_the_end_of_a_segment_no_segment_is_left_out(count: int) -> None:
    house = VariableHouse()
    house.numbered(0, count - 1)
    house.crash()
    assert house.status("next_seq_id") == count


def test_opening_reads_no_body_and_few_slots() -> None:
    house = VariableHouse()
    house.numbered(0, 99)
    house.push_alphas(100)
    house.push_betas(100)
    house.restart()
    reads = [path for name, path in house.disk.calls if name == "pread" and "/idx/" in path]
    assert len(reads) <= 4
    assert house.status("disk_reads") == 0
    assert house.numbers() == list(range(100))


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_a_purge_reaches_over_transient_messages_that_no_row_tells_of(end: str) -> None:
    """Numbers below its end are not given again, and what follows it is counted right."""
    house = VariableHouse()
    house.numbered(0, 1)
    house.numbered(2, 20, persistent=False)
    house.push_alphas(100)
    house.push_betas(100)
    house.checkpoint()
    house.numbered(21, 22)
    assert house.queue.purge() == 23
    house.numbered(23, 24)
    if end == "restart":
        house.restart()
    else:
        house.crash()
    assert (len(house.queue), house.status("messages_persistent")) == (2, 2)
    house.check()
    assert house.publish(b"25") >= 25
    assert house.numbers() == [23, 24, 25]


def test_a_queue_can_be_terminated_and_opened_again_in_the_same_life() -> None:
    house = VariableHouse()
    fill_all_zones(house)
    house.fetch(4)
    house.commit()
    house.queue.terminate()
    house.queue = house.open_queue(QUEUE, Recovery(True))
    house.check()
    assert len(house.queue) == 21
    assert house.numbers() == list(range(21))


def test_a_queue_that_is_not_durable_is_gone_when_it_is_terminated() -> None:
    house = VariableHouse(durable=False)
    house.publish_each(*[b"%d" % number + b"x" * (number % 2 * 300) for number in range(20)])
    house.push_alphas(15)
    house.push_betas(10)
    house.fetch(2)
    house.queue.homes.flush()
    house.queue.homes.synced()
    assert house.paths("idx")
    house.queue.terminate()
    assert [path for path in house.disk.contents() if "/queues/" in path] == []
    assert house.node.message_store(VHOST, False).status()["bodies"] == 0
    assert house.queue.depth() == 0


def test_what_is_found_of_unknown_queues_is_removed_and_reported() -> None:
    house = VariableHouse()
    fill_all_zones(house)
    house.checkpoint()
    assert house.paths("idx")
    house.queue.terminate()
    house.node.stop()
    node = NodeStore(house.disk.copy(), InlineSyncer(), ManualClock(), house.options, random.Random(1).getrandbits)
    recovered = node.open()
    queues = VariableBackingQueues(node, VHOST, ManualClock(), no_paging())
    assert queues.start([]) == []
    assert node.files.list_dir(f"vhosts/{VHOST}/queues") == []
    assert any("21 messages" in line for line in recovered.report)


def test_deleting_a_queue_without_opening_it_removes_it_for_good() -> None:
    house = VariableHouse()
    fill_all_zones(house)
    house.checkpoint()
    house.queue.terminate()
    house.queues.delete_crashed(QUEUE)
    house.commit()
    assert [path for path in house.disk.contents() if "/queues/" in path] == []
    house.crash()
    assert len(house.queue) == 0


def test_files_that_a_crash_left_without_a_checkpoint_do_not_disturb_the_next_life() -> None:
    house = VariableHouse(plain_options(slots=4))
    house.numbered(0, 19)
    house.push_alphas(100)
    house.push_betas(100)
    house.zones()
    house.kill()
    house.push_alphas(100)
    house.push_betas(100)
    house.check()
    assert house.numbers() == list(range(20))
