"""Edge cases of the variable queue, one test each: what comes back, what is dropped and purged."""

from __future__ import annotations

import pytest

from penstock.backing.backing_queue import BackingQueue
from tests.contract.noted_token import NotedToken
from tests.contract.variable_house import VHOST, VariableHouse, fill_all_zones, plain_options


@pytest.fixture(params=[False, True], ids=["transient", "persistent"])
def house(request: pytest.FixtureRequest) -> VariableHouse:
    """An empty queue, five slots per file; nothing leaves RAM by itself."""
    house = VariableHouse()
    house.persistent = request.param
    return house


def requeue(queue: BackingQueue, *seq_ids: int) -> None:
    assert queue.requeue(seq_ids) == len(seq_ids)


def delta_with_holes(house: VariableHouse) -> None:
    """0 to 19, of which 5 to 9, 15 and 16 are pending; 0 to 4 in q3, the others are the delta."""
    house.numbered(0, 19)
    house.fetch(20)
    requeue(house.queue, 0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 17, 18, 19)
    house.push_alphas(100)
    house.push_betas(100)
    assert house.zones()["q3"] == [0, 1, 2, 3, 4]
    assert house.zones()["delta"] == [10, 11, 12, 13, 14, 17, 18, 19]


def test_a_message_that_comes_back_into_the_range_of_the_delta_is_counted_and_read_once(house: VariableHouse) -> None:
    delta_with_holes(house)
    zones = house.queue.zones
    start, end, count = zones.delta_start, zones.delta_end, zones.delta_count
    requeue(house.queue, 15)
    assert (zones.delta_start, zones.delta_end, zones.delta_count) == (start, end, count + 1)
    house.check()
    assert house.numbers() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 17, 18, 19]


def test_messages_that_come_back_around_the_delta_extend_it_without_holes_in_the_order(house: VariableHouse) -> None:
    """At the ends of the range."""
    delta_with_holes(house)
    for seq_id in (9, 16, 5, 8, 6, 15, 7):
        requeue(house.queue, seq_id)
        house.check()
    assert house.numbers() == list(range(20))


def test_a_message_that_comes_back_before_q3_is_the_next_one_and_is_not_read_before(house: VariableHouse) -> None:
    """It is loaded at delivery."""
    house.numbered(0, 9)
    house.fetch(3)
    house.queue.pending.evict(3)
    house.push_alphas(100)
    assert house.zones()["q4"] == []
    reads = house.status("disk_reads")
    requeue(house.queue, 1)
    house.check()
    assert house.status("disk_reads") == reads
    assert house.zones()["q3"][0] == 1
    assert house.fetched(1) == [(1, b"1", True)]
    requeue(house.queue, 0, 2)
    assert house.numbers() == [0, 2, 3, 4, 5, 6, 7, 8, 9]


def test_messages_that_come_back_to_a_queue_without_anything_on_disk_go_to_q4(house: VariableHouse) -> None:
    house.numbered(0, 5)
    house.fetch(4)
    requeue(house.queue, 0, 1, 2, 3)
    assert house.zones() == {"q4": [0, 1, 2, 3, 4, 5], "q3": [], "delta": [], "q2": [], "q1": []}
    house.check()


def test_unknown_ids_among_those_that_come_back_are_skipped(house: VariableHouse) -> None:
    house.numbered(0, 5)
    house.fetch(4)
    house.queue.ack([1])
    assert house.queue.requeue([77, 3, 1, -5, 0, 3, 5, 1 << 60]) == 2
    house.check()
    assert house.numbers() == [0, 3, 4, 5]
    assert house.queue.ack([2]) == 1


def test_transient_messages_of_an_earlier_life_are_not_counted_and_not_met_again() -> None:
    """Long stretches of them in the delta; len covers what is persistent, and reading comes to an end."""
    house = VariableHouse()
    house.numbered(0, 4, persistent=True)
    house.numbered(5, 24, persistent=False)
    house.numbered(25, 26, persistent=True)
    house.numbered(27, 44, persistent=False)
    house.push_alphas(100)
    house.push_betas(100)
    assert house.queue.zones.delta_count == 40
    house.restart()
    assert len(house.queue) == house.status("messages_persistent") == 7
    house.check()
    assert house.numbers() == [0, 1, 2, 3, 4, 25, 26]
    assert house.queue.live.low == house.queue.tail.next_seq_id
    assert house.queue.lost_count == 0


def test_a_queue_that_held_only_transient_messages_comes_back_empty_and_its_files_go() -> None:
    """Nothing of them is left behind that could hold up what comes later."""
    house = VariableHouse()
    house.numbered(0, 9, persistent=False)
    house.push_alphas(100)
    house.push_betas(100)
    house.restart()
    assert (len(house.queue), house.queue.depth()) == (0, 0)
    house.numbered(0, 30)
    assert house.numbers() == list(range(31))
    house.commit()
    house.checkpoint()
    assert (house.queue.live.low, house.queue.live.masks()) == (house.queue.tail.next_seq_id, {})
    assert (house.paths("idx"), house.paths("qs")) == ([], [])


def test_pending_messages_within_the_delta_are_not_read_into_q3(house: VariableHouse) -> None:
    delta_with_holes(house)
    assert house.fetch(5) == [0, 1, 2, 3, 4]
    assert house.zones()["q3"] == [10, 11, 12, 13, 14]
    assert house.queue.zones.delta_count == 3
    house.check()
    assert house.numbers() == [10, 11, 12, 13, 14, 17, 18, 19]
    assert house.queue.ack(range(20)) == 12


def test_dropping_through_all_zones_leaves_an_empty_queue_without_files(house: VariableHouse) -> None:
    fill_all_zones(house)
    assert house.paths("idx") or house.queue.homes.index_segments
    assert house.queue.dropwhile(lambda props: True) == 21
    assert (len(house.queue), house.queue.depth(), house.queue.ready_bytes()) == (0, 0, 0)
    assert house.queue.head_props() is None
    house.check()
    house.numbered(21, 25)
    house.drain()
    house.checkpoint()
    assert (house.paths("idx"), house.paths("qs")) == ([], [])


def test_dropping_that_ends_within_the_delta_leaves_the_survivor_at_the_head_and_reads_no_body(
    house: VariableHouse,
) -> None:
    for number in range(20):
        house.publish(b"%d" % number, expiry_ms=100 if number < 13 else 200)
        house.commit()
    house.push_alphas(100)
    house.push_betas(100)
    assert 13 in house.zones()["delta"]
    assert house.queue.dropwhile(lambda props: props is not None and props.expiry_ms <= 100) == 13
    assert house.status("disk_reads") == 0
    props = house.queue.head_props()
    assert props is not None
    assert props.expiry_ms == 200
    house.check()
    assert house.fetched(1) == [(13, b"13", False)]
    assert house.numbers() == [14, 15, 16, 17, 18, 19]


def test_what_fetchwhile_collected_can_be_put_back_in_order(house: VariableHouse) -> None:
    fill_all_zones(house)
    before = [(seq_id, payload) for seq_id, payload, _ in house.folded()]
    collected: list[int] = []
    assert house.queue.fetchwhile(lambda props: True, lambda seq_id, entry: collected.append(seq_id)) == 21
    assert collected == list(range(21))
    house.check()
    requeue(house.queue, *reversed(collected))
    house.check()
    assert [(seq_id, payload) for seq_id, payload, _ in house.folded()] == before


def test_after_a_purge_what_was_pending_is_the_only_content(house: VariableHouse) -> None:
    fill_all_zones(house)
    pending = house.fetch(8)
    assert house.queue.purge() == 13
    assert (len(house.queue), house.queue.depth(), house.queue.ready_bytes()) == (0, 8, 0)
    house.check()
    requeue(house.queue, *pending)
    house.check()
    assert house.numbers() == list(range(8))
    assert house.queue.live.low == house.queue.tail.next_seq_id


@pytest.mark.parametrize("also_pending", [False, True], ids=["all-ready", "some-pending"])
def test_purged_messages_are_confirmed_once(house: VariableHouse, also_pending: bool) -> None:
    tokens = [NotedToken() for _ in range(6)]
    for token in tokens:
        house.publish(b"a", b"b", confirm=token)
    if also_pending:
        house.fetch(3)
    house.queue.purge()
    house.push_alphas(100)
    assert house.commit() == tokens
    house.queue.ack(house.queue.pending.seq_ids())
    assert house.commit() == []
    assert house.queue.depth() == 0


@pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])
def test_a_large_body_that_is_acked_before_it_was_written_is_never_written(persistent: bool) -> None:
    """The confirm comes all the same."""
    house = VariableHouse(plain_options(embed_below=50))
    token = NotedToken()
    house.publish(b"x" * 100, confirm=token, persistent=persistent)
    if not persistent:
        house.push_alphas(1)
    house.queue.ack(house.fetch(1))
    assert house.commit() == [token]
    store = house.node.message_store(VHOST, persistent)
    store.flush()
    status = store.status()
    assert (status["writes"], status["written_bytes"], status["bodies"]) == (0, 0, 0)


@pytest.mark.parametrize("size", [1, 300], ids=["small", "large"])
def test_a_message_that_is_fetched_without_ack_before_it_is_safe_is_confirmed(house: VariableHouse, size: int) -> None:
    token = NotedToken()
    house.publish(b"x" * size, confirm=token)
    house.fetch(1, ack_required=False)
    assert house.commit() == [token]
    assert house.commit() == []
    house.crash()
    assert house.queue.depth() == 0


def test_after_a_clean_stop_pending_messages_are_back_if_they_are_persistent(house: VariableHouse) -> None:
    house.publish(b"a", b"b", b"c")
    house.fetch(3)
    house.queue.ack([1])
    house.restart()
    expected = [(0, b"a", True), (2, b"c", True)] if house.persistent else []
    assert house.fetched(len(house.queue)) == expected
    house.publish(b"new")
    assert [(payload, redelivered) for _, payload, redelivered in house.fetched(1)] == [(b"new", False)]
