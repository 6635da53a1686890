"""What the engine does when time passes: leases, delays, times to live."""

from __future__ import annotations

from datetime import timedelta

import pytest
from engine_house import QUEUE, House

from penstock.client.engine.engine import LOOK_AGAIN_S
from penstock.client.engine.reservations import CROWDED_MIN


def test_a_lease_ends_at_its_time_and_not_before(house: House) -> None:
    engine = house.engine
    first, second = engine.attach(QUEUE, 10.0), engine.attach(QUEUE, 10.0)
    engine.put(QUEUE, [b"x"], None, None)
    (message,), _ = engine.reserve(first, 1)
    assert message.reserved_until == house.now() + timedelta(seconds=10)
    house.clock.advance(9.9)
    assert engine.reserve(second, 1)[0] == []
    house.clock.advance(0.2)
    (again,), _ = engine.reserve(second, 1)
    assert (again.id, again.deliveries) == (message.id, 2)
    assert engine.finalize(first, [message.id], None) == []
    assert engine.finalize(second, [message.id], None) == [message.id]


def test_a_touched_lease_ends_later_or_earlier_as_it_was_touched(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, 10.0)
    engine.put(QUEUE, [b"longer", b"shorter"], None, None)
    longer, shorter = engine.reserve(number, 2)[0]
    assert engine.touch(number, [longer.id, "unknown"], 100.0) == [longer.id]
    assert engine.touch(number, [shorter.id], 1.0) == [shorter.id]
    house.clock.advance(2)
    assert house.texts(number) == ["shorter"]
    house.clock.advance(50)
    assert house.texts(number) == ["shorter"]
    assert engine.finalize(number, [longer.id], None) == [longer.id]


def test_who_waits_is_told_when_the_next_lease_ends(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, LOOK_AGAIN_S / 4)
    engine.put(QUEUE, [b"x"], None, None)
    now_s = house.clock.monotonic_s()
    assert engine.reserve(number, 2)[1] == pytest.approx(now_s + LOOK_AGAIN_S / 4)
    assert engine.reserve(engine.attach(QUEUE, None), 2)[1] == pytest.approx(now_s + LOOK_AGAIN_S / 4)
    house.clock.advance(LOOK_AGAIN_S)
    assert engine.look([number])[0] is True


def test_reservations_without_a_lease_last(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"x"], None, None)
    (message,), look_s = engine.reserve(number, 1)
    assert message.reserved_until is None
    assert look_s == pytest.approx(house.clock.monotonic_s() + LOOK_AGAIN_S)
    house.clock.advance(10**8)
    assert engine.finalize(number, [message.id], None) == [message.id]


def test_leases_of_settled_messages_do_not_pile_up(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, 900.0)
    for _ in range(8):
        engine.put(QUEUE, [b"x"] * CROWDED_MIN, None, None)
        messages, _ = engine.reserve(number, CROWDED_MIN)
        assert len(engine.finalize(number, [message.id for message in messages], None)) == CROWDED_MIN
    assert len(engine._leases) <= 2 * CROWDED_MIN


def test_a_message_is_held_until_its_time_and_over_a_restart(house: House) -> None:
    engine = house.engine
    engine.put(QUEUE, [b"late"], house.now() + timedelta(seconds=60), None)
    engine.put(QUEUE, [b"early"], house.now() + timedelta(seconds=30), None)
    assert engine.stats(QUEUE).scheduled_count == 2
    engine = house.reopen()
    number = engine.attach(QUEUE, None)
    assert house.texts(number) == []
    house.clock.advance(31)
    assert house.texts(number) == ["early"]
    engine = house.crash()
    number = engine.attach(QUEUE, None)
    assert house.texts(number) == ["early"]
    house.clock.advance(31)
    assert house.texts(number) == ["late"]
    assert engine.stats(QUEUE).scheduled_count == 0


def test_what_came_due_while_the_folder_was_closed_is_there_at_once(house: House) -> None:
    house.engine.put(QUEUE, [b"x"], house.now() + timedelta(seconds=60), None)
    house.engine.close()
    house.clock.advance(100)
    number = house.reopen().attach(QUEUE, None)
    assert house.texts(number) == ["x"]


def test_who_waits_is_told_when_the_next_message_is_due(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"x"], house.now() + timedelta(milliseconds=100), None)
    now_s = house.clock.monotonic_s()
    assert now_s + 0.1 <= engine.reserve(number, 1)[1] <= now_s + 0.11


def test_a_time_to_live_begins_when_the_message_is_ready(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"x"], house.now() + timedelta(seconds=60), 10.0)
    house.clock.advance(61)
    assert house.texts(number) == ["x"]
    engine.put(QUEUE, [b"y"], house.now() + timedelta(seconds=60), 10.0)
    house.clock.advance(61)
    assert engine.stats(QUEUE).ready_count == 1
    house.clock.advance(11)
    assert house.texts(number) == []
    assert engine.stats(QUEUE).ready_count == 0


def test_a_time_to_live_goes_on_while_a_message_waits_for_its_next_try(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"stays", b"goes"], None, 100.0)
    stays, goes = engine.reserve(number, 2)[0]
    engine.requeue(number, [stays.id], 50.0, None)
    engine.requeue(number, [goes.id], 200.0, None)
    house.clock.advance(51)
    assert house.texts(number) == ["stays"]
    house.clock.advance(200)
    assert house.texts(number) == []


def test_a_message_that_comes_back_has_not_outlived_its_ttl_twice(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, 20.0)
    engine.put(QUEUE, [b"x"], None, 10.0)
    assert house.texts(number) == ["x"]
    house.clock.advance(30)
    # Its lease has ended, and nobody wants it any more.
    assert house.texts(number) == []


def test_what_is_buried_does_not_expire(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"x"], None, 10.0)
    (message,), _ = engine.reserve(number, 1)
    engine.bury(number, [message.id], None)
    house.clock.advance(1000)
    assert engine.kick(QUEUE, 5) == 1
    house.clock.advance(1000)
    assert house.texts(number) == ["x"]


@pytest.mark.parametrize("delay_s", [0.0001, 0.001, 0.0015, 1.0])
def test_a_requeue_is_never_early(house: House, delay_s: float) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"x"], None, None)
    (message,), _ = engine.reserve(number, 1)
    engine.requeue(number, [message.id], delay_s, None)
    assert engine.stats(QUEUE).scheduled_count == 1
    assert house.texts(number) == []
    house.clock.advance(delay_s + 0.002)
    assert house.texts(number) == ["x"]
