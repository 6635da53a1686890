"""What leaves RAM, when, in which order, how much at a time; nothing is written twice."""

from __future__ import annotations

import math

import pytest

from penstock.backing.backing_queue import TIMEOUT_IDLE, TIMEOUT_NONE
from penstock.backing.variable.paging import PagingOptions
from penstock.journal.options import JournalOptions
from penstock.store.node.options import StoreOptions
from tests.contract.variable_house import MANY, VariableHouse, eager_paging, fill_all_zones, no_paging, plain_options
from tests.contract.variable_storm import Storm
from tests.effort import some


def house_with(paging: PagingOptions, persistent: bool = True, slots: int = 5) -> VariableHouse:
    house = VariableHouse(plain_options(slots=slots), paging)
    house.persistent = persistent
    return house


@pytest.fixture(params=[False, True], ids=["transient", "persistent"])
def house(request: pytest.FixtureRequest) -> VariableHouse:
    return house_with(no_paging(), request.param)


# --- the limit ------------------------------------------------------------------------------


def at_out_rate(house: VariableHouse, per_second: int) -> None:
    """Make the average what it would be after a long time of this."""
    house.clock.advance(1.0)
    house.queue.rates.outs = 0
    house.queue.rates.update()
    house.queue.rates.out_rate = float(per_second)


@pytest.mark.parametrize(
    ("out_rate", "duration_s", "expected"),
    [
        (0, math.inf, 1),
        (1, math.inf, 3),
        (1000, math.inf, 2001),
        (1023, math.inf, 2047),
        (1024, math.inf, 2048),
        (1_000_000, math.inf, 2048),
        (1000, 0.0, 1),
        (1000, 0.5, 500),
        (1000, 0.0001, 1),
        (1000, 100.0, 2001),
        (1_000_000, 3600.0, 2048),
    ],
)
def test_the_limit_is_the_least_of_the_cap_two_seconds_and_the_duration_and_at_least_one(
    out_rate: int, duration_s: float, expected: int
) -> None:
    house = house_with(PagingOptions(slack=MANY))
    house.queue.set_ram_duration_target(duration_s)
    at_out_rate(house, out_rate)
    assert house.queue.paging.limit() == expected
    assert house.status("target_ram_count") == expected
    house.queue.set_queue_mode(True)
    assert house.queue.paging.limit() == 0


def test_eviction_begins_above_the_slack_and_ends_at_the_limit() -> None:
    house = house_with(PagingOptions(cap=4, slack=10, slice_count=MANY), persistent=False)
    at_out_rate(house, 1000)
    for number in range(14):
        house.publish(b"%d" % number)
        assert house.status("messages_ram") == number + 1
    house.publish(b"14")
    assert house.status("messages_ram") == 4
    house.check()
    assert house.numbers() == list(range(15))


def test_what_comes_back_may_exceed_the_limit_and_is_then_paged_out(house: VariableHouse) -> None:
    """Requeues."""
    persistent = house.persistent
    house = house_with(eager_paging(cap=1, slice_count=5), persistent)
    house.numbered(0, 30)
    taken = house.fetch(20)
    before = house.status("messages_ram")
    assert house.queue.requeue(taken) == 20
    assert house.status("messages_ram") <= before + 20
    house.check()
    for _ in range(20):
        house.queue.resume()
    assert house.status("messages_ram") <= 1
    house.check()
    assert house.numbers() == list(range(31))


@pytest.mark.parametrize("limit_bytes", [0, 1, 50, 1000])
def test_a_target_in_bytes_is_kept_and_given_up(house: VariableHouse, limit_bytes: int) -> None:
    house.publish_each(*[b"%02d" % number + b"x" * 8 for number in range(40)])
    house.fetch(5)
    house.queue.set_ram_bytes_target(limit_bytes)
    while house.queue.needs_timeout() != TIMEOUT_NONE:
        house.queue.timeout()
    house.check()
    assert house.status("message_bytes_ram") <= limit_bytes
    house.queue.set_ram_bytes_target(-1)
    in_ram = house.status("messages_ram")
    house.publish_each(*[b"%02d" % number + b"x" * 8 for number in range(40, 60)])
    assert house.status("messages_ram") == in_ram + 20, "without a target nothing is paged"
    assert [int(payload[:2]) for payload in house.drain()] == list(range(5, 60))


# --- slices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("slice_count", [1, 3, 7])
def test_one_slice_lets_go_of_no_more_than_it_may_and_asks_for_the_next(house: VariableHouse, slice_count: int) -> None:
    house.numbered(0, 39)
    house.fetch(10)
    house.queue.paging.options.slice_count = slice_count
    house.queue.set_ram_duration_target(0.0)
    in_ram = 40
    while True:
        now = house.status("messages_ram")
        assert 0 <= in_ram - now <= slice_count
        in_ram = now
        house.check()
        if house.queue.needs_timeout() == TIMEOUT_NONE:
            break
        assert house.queue.needs_timeout() == TIMEOUT_IDLE
        house.queue.resume()
    assert in_ram == 1
    assert house.numbers() == list(range(10, 40))


def test_a_slice_lets_go_of_a_bounded_number_of_positions() -> None:
    """The surplus counts runs; a slice also ends with the run in which it has moved enough messages."""
    house = house_with(no_paging())
    house.numbered(0, 99)
    house.push_alphas(100)
    house.queue.paging.options.slice_count = 7
    house.queue.set_ram_duration_target(0.0)
    assert house.queue.needs_timeout() == TIMEOUT_IDLE
    moved = house.queue.zones.delta_count
    assert moved == 7
    while house.queue.needs_timeout() == TIMEOUT_IDLE:
        house.queue.resume()
        assert 0 < house.queue.zones.delta_count - moved <= 7
        moved = house.queue.zones.delta_count
    house.check()
    assert house.status("positions") == house.queue.paging.permitted_positions() == 5


# --- order of eviction ----------------------------------------------------------------------------


def test_the_tail_leaves_before_the_head(house: VariableHouse) -> None:
    """All of q1, from its front; then q4, from its rear."""
    house.numbered(0, 9)
    house.push_alphas(2)
    house.numbered(10, 14)
    house.push_alphas(3)
    assert (house.zones()["q4"], house.zones()["q1"]) == (list(range(8)), [13, 14])
    house.push_alphas(4)
    assert (house.zones()["q4"], house.zones()["q1"]) == (list(range(6)), [])


def test_pending_messages_with_the_largest_numbers_leave_first(house: VariableHouse) -> None:
    house.numbered(0, 9)
    house.fetch(10)
    assert house.queue.pending.evict(4) == 4
    in_ram = [seq_id for run in house.queue.pending.runs() if run.msg is not None for seq_id in seq_ids_of(run)]
    assert in_ram == [0, 1, 2, 3, 4, 5]
    house.check()
    assert [int(payload) for _, payload, _ in house.folded()] == list(range(10))


def seq_ids_of(run: object) -> range:
    return range(run.seq_id, run.seq_id + run.count)  # type: ignore[attr-defined]


@pytest.mark.parametrize("acks_grow", [False, True], ids=["ready-grows", "pending-grows"])
def test_what_grows_faster_is_evicted_first(house: VariableHouse, acks_grow: bool) -> None:
    house.numbered(0, 19)
    house.fetch(10)
    rates = house.queue.rates
    rates.in_rate, rates.out_rate, rates.ack_in_rate, rates.ack_out_rate = 5.0, 0.0, 10.0 if acks_grow else 1.0, 0.0
    house.queue.paging.options.cap = 15
    house.queue.rates.out_rate = 0.5
    house.queue.paging.reduce(6)
    ready_in_ram = len(house.zones()["q4"])
    assert (ready_in_ram, house.queue.pending.ram_count()) == ((10, 4) if acks_grow else (4, 10))
    house.check()


def test_free_memory_is_not_filled_by_anybody_but_a_reader(house: VariableHouse) -> None:
    fill_all_zones(house)
    house.push_alphas(100)
    house.push_betas(100)
    house.queue.set_ram_duration_target(0.0)
    house.queue.set_ram_duration_target(math.inf)
    house.queue.set_queue_mode(False)
    for _ in range(3):
        house.queue.resume()
        house.queue.timeout()
    house.numbered(21, 22)
    assert house.status("disk_reads") == 0
    house.fetch(1)
    assert 1 <= house.status("disk_reads") <= house.paging.read_ahead_count


# --- positions ---------------------------------------------------------------------


def test_how_many_positions_may_stay_follows_from_the_limit_and_the_segment() -> None:
    house = house_with(no_paging(), slots=4)
    paging = house.queue.paging
    assert paging.permitted_positions() == 4
    house.numbered(0, 39)
    house.push_alphas(40)
    at_out_rate(house, 20)
    paging.options.cap = 41
    assert paging.limit() == 41
    assert paging.permitted_positions() == 40 - 40 * 40 // (40 + 41)
    at_out_rate(house, 0)
    assert paging.permitted_positions() == 4
    house.queue.paging.duration_s = 0.0
    house.queue.zones.push_betas_to_deltas(38, MANY)
    assert paging.permitted_positions() == len(house.queue.zones.q3) == 4


@pytest.mark.parametrize("io_batch", [1, 8])
def test_positions_go_to_disk_only_when_there_are_enough_of_them(io_batch: int) -> None:
    """Four may stay, and nothing happens until the surplus is a batch."""
    house = house_with(eager_paging(cap=1, io_batch=io_batch), slots=4)
    for number in range(60):
        house.publish(b"%d" % number)
        house.commit()
        before = house.queue.zones.delta_count
        house.queue.paging.reduce(0)
        surplus = house.status("positions") - house.queue.paging.permitted_positions()
        assert surplus < io_batch
        assert before <= house.queue.zones.delta_count
    assert house.queue.zones.delta_count > 0
    house.check()
    assert house.numbers() == list(range(60))


def test_one_segment_always_stays_in_q3_when_its_rear_becomes_a_delta(house: VariableHouse) -> None:
    house.numbered(0, 22)
    house.fetch(7)
    house.push_alphas(100)
    house.push_betas(1000)
    assert house.zones()["q3"][0] == 7
    assert house.zones()["q3"][-1] < 10 <= house.zones()["delta"][0]


# --- once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 300], ids=["small", "large"])
def test_no_body_is_written_twice_and_small_persistent_ones_not_at_all(house: VariableHouse, size: int) -> None:
    """Paged out, read, requeued, paged out again, evicted while pending."""
    house.publish_each(*[b"%02d" % number + b"x" * size for number in range(20)])
    for _ in range(4):
        house.push_alphas(100)
        house.push_betas(100)
        taken = house.fetch(12)
        house.queue.pending.evict(12)
        assert house.queue.requeue(taken) == 12
    house.queue.set_queue_mode(True)
    house.queue.set_queue_mode(False)
    expected = 0 if house.persistent and size == 3 else 20
    assert house.status("disk_writes") == expected
    assert [int(payload[:2]) for payload in house.drain()] == list(range(20))
    assert house.status("disk_writes") == expected


def test_moving_home_writes_each_small_persistent_body_once() -> None:
    house = house_with(no_paging())
    fill_all_zones(house)
    house.fetch(3)
    for _ in range(3):
        while house.stored().move_home(house.node.journal.segments.position()[0], 4):
            pass
    assert house.status("disk_writes") == 21
    house.push_alphas(100)
    house.push_betas(100)
    house.queue.requeue([0, 1, 2])
    assert house.numbers() == list(range(21))
    assert house.status("disk_writes") == 21


@pytest.mark.parametrize("seed", some(range(25)))
def test_in_random_work_no_more_bodies_are_written_than_there_are_messages(seed: int) -> None:
    storm = Storm(seed)
    lives = (storm.restart, storm.crash, storm.kill)
    storm.steps = [(weight, step) for weight, step in storm.steps if step not in lives]
    storm.run(120)
    assert storm.house.status("disk_writes") <= storm.published


# --- the journal's cost ---------------------------------------------------------------------------


def test_a_run_that_is_paged_out_and_read_costs_a_few_batches_and_no_index() -> None:
    """Positions are runs: ten thousand messages that came in ten runs are ten positions."""
    house = VariableHouse(StoreOptions(JournalOptions(), reserve_bytes=0), eager_paging(cap=1, io_batch=4096))
    for batch in range(10):
        house.publish(*[b"%d" % (batch * 1000 + number) for number in range(1000)])
        house.commit()
        house.queue.resume()
    assert house.status("positions") <= 11
    assert house.status("messages_ram") <= 1
    assert (house.status("delta"), house.status("disk_writes")) == (0, 0)
    assert house.numbers() == list(range(10_000))


PLACES_OF_BODIES = [(True, 10), (True, 300), (False, 10), (False, 300)]


@pytest.mark.parametrize(("persistent", "size"), PLACES_OF_BODIES)
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_what_a_consumer_got_from_the_disk_is_not_kept_in_ram_until_it_acks(
    persistent: bool, size: int, at_once: int
) -> None:
    house = VariableHouse()
    payloads = [b"%03d" % number + b"x" * (size + number % 3) for number in range(200)]
    for start in range(0, 200, 20):
        house.publish(*payloads[start : start + 20], persistent=persistent)
        house.commit()
    house.push_alphas(200)
    taken: list[tuple[int, bytes, bool]] = []
    while len(taken) < 150:
        taken.extend(house.fetched(min(at_once, 150 - len(taken))))
        assert house.queue.pending.ram_count() == house.queue.pending.ram_bytes == 0
    assert taken == [(number, payloads[number], False) for number in range(150)]
    assert (house.queue.pending.count, house.queue.pending_bytes()) == (150, sum(map(len, payloads[:150])))
    shown: list[bytes] = []
    house.queue.ackfold(lambda seq_id, entry: shown.append(entry[1][:-1]), [149, 3, 4])
    assert shown == [payloads[149], payloads[3], payloads[4]]
    assert house.queue.ack(range(50)) == 50
    reads = house.status("disk_reads")
    assert house.queue.requeue(range(50, 150)) == 100
    assert house.status("disk_reads") == reads, "many that come back are read when they are next"
    house.check()
    assert house.drain() == payloads[50:]


def test_a_single_message_that_comes_back_from_a_consumer_does_not_cost_what_was_read_ahead() -> None:
    house = VariableHouse()
    house.publish(*[b"%d" % number for number in range(50)])
    house.commit()
    house.push_alphas(50)
    house.fetch(10)
    in_ram, reads = house.status("messages_ram"), house.status("disk_reads")
    assert in_ram == 40
    assert house.queue.requeue([4]) == 1
    assert (house.status("messages_ram"), house.status("disk_reads")) == (41, reads + 1)
    house.check()
    assert house.numbers() == [4, *range(10, 50)]


def test_what_was_never_away_from_ram_is_kept_there_until_it_is_acked() -> None:
    house = VariableHouse()
    house.numbered(0, 9)
    house.fetch(10)
    assert house.queue.pending.ram_count() == 10
    assert house.queue.requeue(range(10)) == 10
    assert house.numbers() == list(range(10))
    assert house.status("disk_reads") == 0
