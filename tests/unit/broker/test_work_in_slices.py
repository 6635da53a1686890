"""What one frame can set going in very many messages is done in slices, so that sockets are read in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from at_hand_house import House, Puller

from penstock.broker.features import deduplication
from penstock.message import Incoming
from penstock.queues.intake import dedup_window, drop_pace
from penstock.queues.leaving import returns
from penstock.queues.queue import Queue

# More than one slice, and not a whole number of them.
DROPS = 3 * drop_pace.AT_ONCE_MAX + 7
RETURNS = 3 * returns.AT_ONCE_MAX + 7


def steps(house: House, count: Callable[[], int], turns_max: int = 100) -> list[int]:
    """By how much a number changes in each turn, until it stays the same."""
    changes: list[int] = []
    while len(changes) < turns_max:
        before = count()
        house.pass_ms(1)
        if count() == before:
            return changes
        changes.append(abs(count() - before))
    raise AssertionError(f"it goes on for ever: {changes}")


# --- a large message pushes out many small ones -------------------------------------------------------


@pytest.fixture(params=["drop-head", "ring"])
def full(request: pytest.FixtureRequest, house: House) -> Queue:
    """A queue full of messages of one byte, whose dead go elsewhere."""
    house.declare("dead")
    queue = house.declare(
        "q",
        x_max_length_bytes=DROPS,
        x_overflow=request.param,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="dead",
    )
    house.publish(*["s"] * DROPS)
    assert len(queue) == DROPS
    return queue


def test_a_large_message_drops_small_ones_in_slices(house: House, full: Queue) -> None:
    dead = house.vhost.queues["dead"]
    large = "L" * DROPS
    house.publish(large)
    first = dead.ready_count()
    assert drop_pace.AT_ONCE_MAX <= first <= drop_pace.AT_ONCE_MAX + drop_pace.DROPS_PER_MESSAGE
    later = steps(house, dead.ready_count)
    assert max(later) <= drop_pace.AT_ONCE_MAX
    assert first + sum(later) == DROPS
    assert house.bodies() == [large]


def test_who_publishes_meanwhile_pays_for_its_own_messages_only(house: House, full: Queue) -> None:
    dead = house.vhost.queues["dead"]
    house.publish("L" * DROPS)
    surplus = full.ready_bytes() - DROPS
    for _ in range(20):
        dropped = dead.ready_count()
        house.publish("s")
        assert dead.ready_count() - dropped == drop_pace.DROPS_PER_MESSAGE
        assert full.ready_bytes() - DROPS < surplus
        surplus = full.ready_bytes() - DROPS
    steps(house, dead.ready_count)
    assert full.ready_bytes() <= DROPS


def test_large_messages_that_follow_drop_by_their_size_and_no_more_than_a_slice(house: House, full: Queue) -> None:
    dead = house.vhost.queues["dead"]
    house.publish("L" * DROPS)
    for size in (drop_pace.BYTES_PER_DROP * 10, drop_pace.BYTES_PER_DROP * drop_pace.AT_ONCE_MAX * 2):
        dropped = dead.ready_count()
        house.publish("L" * size)
        most = min(size // drop_pace.BYTES_PER_DROP, drop_pace.AT_ONCE_MAX) + drop_pace.DROPS_PER_MESSAGE
        assert most - 1 <= dead.ready_count() - dropped <= most
    steps(house, dead.ready_count)
    assert full.ready_bytes() <= DROPS


def test_messages_that_come_back_to_a_full_queue_are_dropped_in_slices(house: House) -> None:
    house.declare("dead")
    queue = house.declare("q", x_max_length=10, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    taken: list[int] = []
    for number in range(DROPS):
        house.publish(str(number))
        taken.append(house.get())
    queue.requeue(taken)
    dead = house.vhost.queues["dead"]
    assert dead.ready_count() == drop_pace.AT_ONCE_MAX
    assert max(steps(house, dead.ready_count)) <= drop_pace.AT_ONCE_MAX
    assert house.bodies() == [str(number) for number in range(DROPS - 10, DROPS)]


def test_a_long_run_does_not_leave_a_queue_over_its_count(house: House) -> None:
    queue = house.declare("q", x_max_length=10)
    house.publish("first")
    envelope = queue.backing.browse(0, 1, 0)
    assert envelope is not None
    queue.publish(Incoming(envelope.entries[0][0], [b"%d\xce" % number for number in range(DROPS)]), None)
    assert house.bodies() == [str(number) for number in range(DROPS - 10, DROPS)]


def test_a_queue_that_is_deleted_while_it_makes_room_is_left_alone(house: House, full: Queue) -> None:
    house.publish("L" * DROPS)
    dead = house.vhost.queues["dead"]
    dropped = dead.ready_count()
    house.vhost.delete_queue(full, False, False)
    assert steps(house, dead.ready_count) == []
    assert dead.ready_count() == dropped


# --- keys that expire together ------------------------------------------------------------------------

KEYS = 2 * deduplication.EXPIRED_AT_ONCE + 7
TTL_MS = 100_000


def full_window(house: House) -> Queue:
    """The companion of a queue with KEYS keys."""
    house.declare("q", x_message_deduplication=True, x_cache_size=10 * KEYS, x_cache_ttl=TTL_MS)
    for number in range(KEYS):
        house.publish("m", headers={"x-deduplication-header": number})
    (companion,) = house.vhost.companions.queues.values()
    assert companion.ready_count() == KEYS
    return companion


def test_a_publish_lets_few_expired_keys_go(house: House) -> None:
    companion = full_window(house)
    # Time passes, and no timer fires.
    house.clock.advance(TTL_MS / 1000)
    house.publish("m", headers={"x-deduplication-header": "new"})
    assert companion.ready_count() == KEYS + 1 - dedup_window.EXPIRED_PER_ADD
    # They are not known any more, all the same.
    house.publish("m", headers={"x-deduplication-header": KEYS - 1})
    assert len(house.vhost.queues["q"]) == KEYS + 2


def test_expired_keys_go_by_themselves_in_slices(house: House) -> None:
    companion = full_window(house)
    house.pass_ms(TTL_MS)
    first = KEYS - companion.ready_count()
    later = steps(house, companion.ready_count)
    assert max(first, *later) <= deduplication.EXPIRED_AT_ONCE
    assert first + sum(later) == KEYS


def test_a_window_whose_queue_is_gone_leaves_the_schedule(house: House) -> None:
    full_window(house)
    house.vhost.delete_queue(house.vhost.queues["q"], False, False)
    house.pass_ms(deduplication.LOOK_MS_MAX)
    assert house.broker.expiries.next_due_ms() == -1


# --- many messages come back --------------------------------------------------------------------------


def all_taken(house: House, queue: Queue) -> list[int]:
    puller = Puller()
    queue.add_consumer(puller, True)
    house.publish(*[str(number) for number in range(RETURNS)])
    taken: list[int] = []
    while (run := queue.pull(puller, 1000)) is not None:
        taken.extend(range(run.first_seq_id, run.first_seq_id + len(run.entries)))
    assert len(taken) == RETURNS
    queue.remove_consumer(puller)
    return taken


def held(house: House) -> Queue:
    (companion,) = house.vhost.companions.queues.values()
    return companion


@pytest.mark.parametrize("lost", [False, True])
def test_messages_that_wait_for_their_next_try_go_there_in_slices(house: House, lost: bool) -> None:
    queue = house.declare("q", x_delayed_retry_min=TTL_MS)
    queue.requeue(all_taken(house, queue), lost)
    assert held(house).backing.depth() == returns.AT_ONCE_MAX
    assert max(steps(house, held(house).backing.depth)) <= returns.AT_ONCE_MAX
    assert (held(house).backing.depth(), queue.backing.depth()) == (RETURNS, 0)
    house.pass_ms(TTL_MS)
    steps(house, held(house).backing.depth)
    assert sorted(map(int, house.bodies())) == list(range(RETURNS))


def test_messages_that_were_tried_too_often_die_in_slices(house: House) -> None:
    house.declare("dead")
    queue = house.declare("q", x_delivery_limit=0, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    queue.requeue(all_taken(house, queue))
    dead = house.vhost.queues["dead"]
    assert dead.ready_count() == returns.AT_ONCE_MAX
    assert max(steps(house, dead.ready_count)) <= returns.AT_ONCE_MAX
    assert queue.backing.depth() == 0
    assert house.bodies("dead") == [str(number) for number in range(RETURNS)]


def test_messages_that_may_be_tried_again_come_back_at_once_and_in_order(house: House) -> None:
    queue = house.declare("q", x_delivery_limit=1)
    queue.requeue(all_taken(house, queue))
    assert house.bodies() == [str(number) for number in range(RETURNS)]


def test_what_comes_back_later_does_not_overtake_what_was_put_off(house: House) -> None:
    queue = house.declare("q", x_delayed_retry_min=TTL_MS)
    taken = all_taken(house, queue)
    queue.requeue(taken[:-1])
    queue.requeue(taken[-1:], True)
    assert held(house).backing.depth() == returns.AT_ONCE_MAX
    steps(house, held(house).backing.depth)
    assert held(house).backing.depth() == RETURNS


def test_what_was_put_off_comes_back_where_nothing_can_wait_any_more(house: House) -> None:
    queue = house.declare("q", x_delayed_retry_min=TTL_MS)
    queue.requeue(all_taken(house, queue))
    held(house).crash()
    steps(house, queue.ready_count)
    assert house.bodies() == [str(number) for number in range(returns.AT_ONCE_MAX, RETURNS)]


def test_a_queue_that_is_deleted_with_messages_put_off_is_left_alone(house: House) -> None:
    queue = house.declare("q", x_delayed_retry_min=TTL_MS)
    queue.requeue(all_taken(house, queue))
    house.vhost.delete_queue(queue, False, False)
    house.pass_ms(1)
    assert not house.vhost.companions.queues


def test_what_was_put_off_is_ready_after_a_crash(durable_house: House) -> None:
    queue = durable_house.declare("q", x_delayed_retry_min=TTL_MS)
    queue.requeue(all_taken(durable_house, queue))
    durable_house.end_turn()
    durable_house.crash()
    assert len(durable_house.vhost.queues["q"]) == RETURNS - returns.AT_ONCE_MAX
    assert held(durable_house).backing.depth() == returns.AT_ONCE_MAX


def test_what_was_put_off_counts_as_returned_after_a_clean_stop(durable_house: House) -> None:
    queue = durable_house.declare("q", x_delayed_retry_min=TTL_MS, x_delivery_limit=5)
    taken = all_taken(durable_house, queue)
    queue.requeue(taken)
    durable_house.restart()
    after = durable_house.vhost.queues["q"]
    put_off = taken[returns.AT_ONCE_MAX :]
    assert len(after) == len(put_off)
    assert [after.backing.delivery_count(seq_id) for seq_id in put_off] == [1] * len(put_off)
