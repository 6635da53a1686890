"""fetch_at: messages by number, wherever they stand."""

from __future__ import annotations

import random

import pytest

from penstock.backing.backing_queue import BackingQueue
from penstock.message import MessageProps, body_bytes
from tests.contract.backings import MANY, OpenBacking, listed
from tests.contract.noted_token import NotedToken
from tests.contract.test_variable_damage import damage_slot, expect_lost, flip_text
from tests.contract.variable_house import VariableHouse, eager_paging


def fetched_at(bq: BackingQueue, seq_ids: list[int]) -> list[tuple[int, bytes]]:
    found = [(seq_id, body_bytes(entry[1])) for seq_id, entry in bq.fetch_at(seq_ids)]
    bq.check_invariants()
    return found


def publish_singly(backing: OpenBacking, count: int) -> int:
    """Messages that differ in their sizes; the first seq_id."""
    firsts = [backing.publish(b"%d" % index + b"x" * (index % 3)) for index in range(count)]
    return firsts[0]


def payload(index: int) -> bytes:
    return b"%d" % index + b"x" * (index % 3)


def test_messages_come_in_the_order_given_and_the_others_stay(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(*[b"%d" % index for index in range(8)])
    assert fetched_at(bq, [first + 5, first + 2, first + 7]) == [
        (first + 5, b"5"),
        (first + 2, b"2"),
        (first + 7, b"7"),
    ]
    assert backing.ready() == [(first + index, b"%d" % index) for index in (0, 1, 3, 4, 6)]
    assert backing.pending() == [(first + index, b"%d" % index) for index in (2, 5, 7)]
    assert [seq_id - first for seq_id, _, _ in backing.take(5)] == [0, 1, 3, 4, 6]


def test_what_is_not_ready_is_skipped(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"b", b"c", b"d")
    backing.take(1)
    backing.take(1, ack_required=False)
    assert fetched_at(bq, [-1, first, first + 1, first + 3, first + 3, first + 4, 1 << 40]) == [(first + 3, b"d")]
    assert fetched_at(bq, [first + 3]) == []
    assert fetched_at(bq, []) == []
    assert backing.ready() == [(first + 2, b"c")]


def test_an_empty_queue_has_nothing_at_any_place(bq: BackingQueue) -> None:
    assert fetched_at(bq, [0, 1, 2]) == []


def test_counters_follow(backing: OpenBacking, bq: BackingQueue) -> None:
    first = backing.publish(b"a", b"bb", b"ccc", b"dddd")
    bq.fetch_at([first + 1, first + 3])
    assert (len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes()) == (2, 4, 4, 6)
    assert bq.ack([first + 3]) == 1
    assert (len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes()) == (2, 3, 4, 2)
    assert bq.requeue([first + 1]) == 1
    assert (len(bq), bq.depth(), bq.ready_bytes(), bq.pending_bytes()) == (3, 3, 6, 0)


def test_only_what_was_handed_out_is_redelivered(backing: OpenBacking, bq: BackingQueue) -> None:
    first = publish_singly(backing, 20)
    bq.fetch_at([first + 12, first + 4])
    bq.requeue([first + 4, first + 12])
    assert backing.take(20) == [(first + index, payload(index), index in (4, 12)) for index in range(20)]


def test_a_browser_sees_who_was_handed_out_too(backing: OpenBacking, bq: BackingQueue) -> None:
    first = publish_singly(backing, 12)
    bq.fetch_at([first + 7])
    bq.requeue([first + 7])
    at = first
    seen: list[tuple[int, bytes, bool]] = []
    while (run := bq.browse(at, 5, MANY)) is not None:
        seen += listed(run)
        at = run.first_seq_id + len(run.entries)
    assert seen == [(first + index, payload(index), index == 7) for index in range(12)]


def test_what_came_back_can_be_taken_by_number_again(backing: OpenBacking, bq: BackingQueue) -> None:
    first = publish_singly(backing, 10)
    for _ in range(3):
        assert fetched_at(bq, [first + 6, first + 3]) == [(first + 6, payload(6)), (first + 3, payload(3))]
        assert bq.requeue([first + 3, first + 6]) == 2
        bq.check_invariants()
    backing.take(5)
    assert fetched_at(bq, [first + 3, first + 6, first + 9]) == [(first + 6, payload(6)), (first + 9, payload(9))]


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_whole_queue_can_be_taken_in_any_order(backing: OpenBacking, bq: BackingQueue, at_once: int) -> None:
    first = publish_singly(backing, 60)
    order = list(range(60))
    random.Random(at_once).shuffle(order)
    while order:
        wanted, order = order[:at_once], order[at_once:]
        found = fetched_at(bq, [first + index for index in wanted])
        assert found == [(first + index, payload(index)) for index in wanted]
        assert bq.ack([first + index for index in wanted[::2]]) == len(wanted[::2])
        assert len(bq) == len(order)
    assert bq.is_empty()


def test_publishing_goes_on_behind_holes(backing: OpenBacking, bq: BackingQueue) -> None:
    first = publish_singly(backing, 10)
    bq.fetch_at([first + 9, first + 8, first + 1])
    backing.publish(b"new")
    assert fetched_at(bq, [first + 10]) == [(first + 10, b"new")]
    assert [seq_id - first for seq_id, _, _ in backing.take(len(bq))] == [0, 2, 3, 4, 5, 6, 7]
    backing.publish(b"newer")
    assert listed(bq.fetch(1, MANY, True)) == [(first + 11, b"newer", False)]


def test_a_purge_leaves_what_was_taken(backing: OpenBacking, bq: BackingQueue) -> None:
    first = publish_singly(backing, 10)
    bq.fetch_at([first + 4, first + 8])
    assert bq.purge() == 8
    assert backing.pending() == [(first + 4, payload(4)), (first + 8, payload(8))]
    assert bq.requeue([first + 8, first + 4]) == 2
    assert [seq_id - first for seq_id, _, _ in backing.take(2)] == [4, 8]


def test_a_confirm_that_is_owed_comes_once(backing: OpenBacking, bq: BackingQueue) -> None:
    token = NotedToken()
    first = backing.publish(b"a", b"b", b"c", props=MessageProps(-1, token))
    bq.fetch_at([first + 1])
    bq.ack([first + 1])
    assert backing.settle() == [token]
    assert backing.settle() == []


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_after_a_start_what_was_taken_is_ready_and_marked(backing: OpenBacking, bq: BackingQueue, clean: bool) -> None:
    first = publish_singly(backing, 20)
    bq.fetch_at([first + 3, first + 11, first + 15, first + 18])
    bq.ack([first + 11])
    bq.requeue([first + 15])
    # Everything up to here is safe when this one is.
    backing.publish(payload(20), props=MessageProps(-1, NotedToken()))
    backing.settle()
    if clean:
        backing.restart()
    else:
        backing.crash()
    if not backing.spec.survives or not (backing.persistent or backing.spec.keeps_transient):
        assert backing.queue.is_empty()
        return
    taken = backing.take(len(backing.queue))
    assert [(seq_id - first, body) for seq_id, body, _ in taken] == [(at, payload(at)) for at in range(21) if at != 11]
    marked = {seq_id - first for seq_id, _, redelivered in taken if redelivered}
    assert marked == {3, 15, 18} if clean else marked >= {3, 15, 18}


@pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])
def test_files_of_stretches_that_are_gone_go_although_an_older_message_stays(durable: bool) -> None:
    house = VariableHouse(durable=durable, paging=eager_paging())
    house.persistent = durable
    for number in range(40):
        house.publish(b"%d" % number)
        house.commit()
    house.queue.homes.give_back()
    before = [path for path in house.disk.contents() if path.endswith((".qi", ".qs"))]
    for seq_id in range(39, 0, -1):
        house.queue.fetch_at([seq_id])
        house.queue.ack([seq_id])
    house.commit()
    if durable:
        house.checkpoint()
    after = [path for path in house.disk.contents() if path.endswith((".qi", ".qs"))]
    assert len(before) > 5
    assert len(after) <= 2
    assert house.fetched(1) == [(0, b"0", False)]
    house.check()


# --- damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 30])
@pytest.mark.parametrize("paged", ["q3", "delta"])
def test_damage_costs_its_message_only(caplog: pytest.LogCaptureFixture, paged: str, at_once: int) -> None:
    house = VariableHouse()
    house.publish_each(*[b"<%02d>" % number for number in range(20)])
    house.push_alphas(100)
    lost = [7]
    if paged == "delta":
        house.push_betas(100)
        damage_slot(house, 12)
        lost.append(12)
    flip_text(house.disk, "journal/", b"<07>")
    order = [*range(19, -1, -2), *range(0, 20, 2)]
    taken: list[int] = []
    for start in range(0, len(order), at_once):
        taken += [seq_id for seq_id, _ in fetched_at(house.queue, order[start : start + at_once])]
    assert taken == [seq_id for seq_id in order if seq_id not in lost]
    assert house.queue.ack(taken) == len(taken)
    expect_lost(house, caplog, *lost)


def test_damage_in_the_middle_leaves_the_rest_countable() -> None:
    house = VariableHouse()
    house.publish_each(*[b"<%02d>" % number for number in range(20)])
    house.push_alphas(100)
    house.push_betas(100)
    damage_slot(house, 12)
    assert [seq_id for seq_id, _ in fetched_at(house.queue, [11, 12, 13])] == [11, 13]
    assert len(house.queue) == 17
    house.queue.requeue([11, 13])
    house.restart()
    assert [seq_id for seq_id, _, _ in house.fetched(19)] == [seq_id for seq_id in range(20) if seq_id != 12]
    house.check()
