"""What the engine remembers of its messages, over a restart and a crash, and what it lets go of."""

from __future__ import annotations

import errno
import threading
from datetime import timedelta

import pytest
from engine_house import QUEUE, START, House

from penstock.client.engine.engine import SEEN_MIN
from penstock.client.errors import ClientError, Closed, ConnectionLost, NotReserved
from penstock.fields import Table


def test_what_was_reserved_is_ready_after_a_crash_and_what_was_finalized_is_not(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"a", b"b", b"c"], None, None)
    first, _ = engine.reserve(number, 2)[0]
    engine.finalize(number, [first.id], "done")
    engine = house.crash()
    number = engine.attach(QUEUE, None)
    assert house.texts(number) == ["b", "c"]
    assert [(one.text, one.finalized_note) for one in engine.history(QUEUE, 5)] == [("a", "done")]


def test_deliveries_and_notes_of_what_waits_elsewhere_outlive_a_crash(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"later", b"buried"], None, None)
    later, buried = engine.reserve(number, 2)[0]
    engine.requeue(number, [later.id], 60.0, "not now")
    engine.bury(number, [buried.id], "broken")
    engine = house.crash()
    number = engine.attach(QUEUE, None)
    house.clock.advance(61)
    assert engine.kick(QUEUE, 1) == 1
    found = {message.text: message for message in engine.reserve(number, 5)[0]}
    assert {text: (one.id, one.deliveries, one.note) for text, one in found.items()} == {
        "later": (later.id, 2, "not now"),
        "buried": (buried.id, 2, "broken"),
    }


def test_what_was_moved_is_in_one_place_after_a_crash(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"kicked", b"buried", b"later"], None, None)
    kicked, buried, later = engine.reserve(number, 3)[0]
    engine.bury(number, [kicked.id, buried.id], None)
    engine.requeue(number, [later.id], 60.0, None)
    assert engine.kick(QUEUE, 1) == 1
    for open_again in (house.crash, house.reopen, house.crash):
        engine = open_again()
        stats = engine.stats(QUEUE)
        assert (stats.ready_count, stats.buried_count, stats.scheduled_count) == (1, 1, 1)
    assert house.texts(engine.attach(QUEUE, None)) == ["kicked"]


def test_a_message_can_come_back_in_every_way_one_after_the_other(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"x"], None, None)
    for deliveries in range(1, 13):
        (message,), _ = engine.reserve(number, 1)
        assert message.deliveries == deliveries
        assert message.payload == b"x"
        if deliveries % 4 == 0:
            engine.requeue(number, [message.id], None, f"note {deliveries}")
        elif deliveries % 4 == 1:
            engine.requeue(number, [message.id], 5.0, f"note {deliveries}")
            house.clock.advance(6)
        elif deliveries % 4 == 2:
            engine.bury(number, [message.id], f"note {deliveries}")
            engine.kick(QUEUE, 1)
        else:
            engine.detach(number)
            number = engine.attach(QUEUE, None)
        expected = f"note {deliveries}" if deliveries % 4 != 3 else f"note {deliveries - 1}"
        (again,), _ = engine.reserve(number, 1)
        assert again.note == expected
        engine.unreserve(number, [again.id])


def test_what_nobody_has_looked_at_was_not_handed_out(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"x"], None, None)
    (message,), _ = engine.reserve(number, 1)
    engine.unreserve(number, [message.id, "unknown"])
    (again,), _ = engine.reserve(number, 1)
    assert again.deliveries == 1
    engine.detach(number)
    # Too late, and harmless.
    engine.unreserve(number, [message.id])


def test_the_history_keeps_as_much_as_it_may_and_counts_all(house: House) -> None:
    tiny: Table = {"x-max-length": ("l", 3)}
    engine = house.reopen(tiny)
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"%d" % index for index in range(10)], None, None)
    messages, _ = engine.reserve(number, 10)
    engine.finalize(number, [message.id for message in messages[:5]], None)
    for message in messages[5:]:
        engine.finalize(number, [message.id], None)
    assert [one.text for one in engine.history(QUEUE, 100)] == ["9", "8", "7"]
    assert engine.stats(QUEUE).finalized_count == 10
    engine = house.reopen(tiny)
    assert engine.stats(QUEUE).finalized_count == 10
    assert [one.text for one in engine.history(QUEUE, 2)] == ["9", "8"]


def test_the_history_is_read_across_the_gap_that_a_crash_leaves(house: House) -> None:
    for round_number in range(3):
        engine = house.engine
        number = engine.attach(QUEUE, None)
        engine.put(QUEUE, [b"%d" % round_number], None, None)
        (message,), _ = engine.reserve(number, 1)
        engine.finalize(number, [message.id], None)
        house.crash()
    assert [one.text for one in house.engine.history(QUEUE, 1)] == ["2"]
    assert [one.text for one in house.engine.history(QUEUE, 1_000)] == ["2", "1", "0"]
    assert house.engine.stats(QUEUE).finalized_count == 3


def test_a_slot_is_noted_with_its_message_over_restarts_and_crashes(house: House) -> None:
    engine = house.engine
    assert engine.put_at_slot("nightly", START, QUEUE, b"a") is not None
    for open_again in (house.reopen, house.crash):
        engine = open_again()
        assert engine.put_at_slot("nightly", START, QUEUE, b"b") is None
    assert engine.put_at_slot("nightly", START + timedelta(seconds=1), QUEUE, b"c") is not None
    engine = house.crash()
    assert engine.put_at_slot("nightly", START + timedelta(seconds=1), QUEUE, b"d") is None
    assert house.texts(engine.attach(QUEUE, None)) == ["a", "c"]
    # One message for each schedule, and nobody takes that for a queue.
    assert len(engine._vhost.queues["penstock.schedules"]) == 1
    assert engine.queues() == [QUEUE]


def test_a_dropped_queue_takes_everything_with_it(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, 5.0)
    engine.put(QUEUE, [b"a", b"b", b"c"], None, None)
    engine.put(QUEUE, [b"held"], house.now() + timedelta(seconds=5), None)
    first, second = engine.reserve(number, 2)[0]
    engine.finalize(number, [first.id], None)
    engine.bury(number, [second.id], None)
    (third,), _ = engine.reserve(number, 1)
    assert engine.drop_queue(QUEUE) is True
    assert engine.finalize(number, [third.id], None) == []
    house.clock.advance(100)
    # The consumer is still there; the queue is made anew for it.
    assert house.texts(number) == []
    stats = engine.stats(QUEUE)
    assert (
        stats.ready_count,
        stats.reserved_count,
        stats.scheduled_count,
        stats.buried_count,
        stats.finalized_count,
    ) == (0, 0, 0, 0, 0)
    engine.put(QUEUE, [b"new"], None, None)
    (new,), _ = engine.reserve(number, 5)
    assert (new.text, new.deliveries) == ("new", 1)


def test_traces_of_expired_messages_are_forgotten(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    for _ in range(4):
        engine.put(QUEUE, [b"x"] * SEEN_MIN, None, 10.0)
        messages, _ = engine.reserve(number, SEEN_MIN)
        engine.requeue(number, [message.id for message in messages], None, None)
        house.clock.advance(11)
        assert engine.stats(QUEUE).ready_count == 0
    (seen,) = engine._seen.values()
    assert len(seen) <= 3 * SEEN_MIN


def test_a_consumer_that_was_forgotten_gives_its_messages_back(house: House) -> None:
    engine = house.engine
    forgotten, other = engine.attach(QUEUE, None), engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"x"], None, None)
    assert house.texts(forgotten) == ["x"]
    engine.forget(forgotten)
    assert house.texts(other) == ["x"]
    with pytest.raises(Closed):
        engine.reserve(forgotten, 1)


def test_settling_two_of_which_one_is_not_ours_and_going_on_does_neither(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"a", b"b"], None, None)
    (message,), _ = engine.reserve(number, 1)
    with pytest.raises(NotReserved):
        engine.finalize_and_reserve(number, [message.id, "unknown"], None, 1)
    assert engine.stats(QUEUE).ready_count == 1
    (following,) = engine.finalize_and_reserve(number, [message.id], None, 1)
    assert following.text == "b"


def test_a_call_that_is_interrupted_leaves_what_was_promised(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"a", b"b"], None, None)
    (message,), _ = engine.reserve(number, 1)

    def interrupt() -> None:
        raise KeyboardInterrupt

    # After the copy for the history and the ack were gathered, before they were written.
    engine._sync = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        engine.finalize(number, [message.id], None)
    assert engine.has_ended
    with pytest.raises(ConnectionLost):
        engine.stats(QUEUE)
    engine.close()
    house.reopen()
    assert house.texts(house.engine.attach(QUEUE, None)) == ["a", "b"]
    assert house.engine.history(QUEUE, 5) == []


def test_a_signal_handler_in_the_middle_of_a_call_is_refused(house: House) -> None:
    engine = house.engine
    complaints: list[str] = []

    def handler() -> None:
        with pytest.raises(ClientError) as refused:
            engine.put(QUEUE, [b"x"], None, None)
        complaints.append(str(refused.value))
        with pytest.raises(ClientError, match="signal handler"):
            engine.close()

    sync = engine._sync
    engine._sync = handler  # type: ignore[method-assign]
    engine.use_queue(QUEUE)
    engine._sync = sync  # type: ignore[method-assign]
    assert "signal handler" in complaints[0]
    assert len(engine.put(QUEUE, [b"y"], None, None)) == 1


def test_who_watches_a_queue_is_woken_by_what_gets_ready(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, 10.0)
    woken = threading.Event()
    watch = engine.watch([QUEUE, "other"], woken.set)

    def was_woken() -> bool:
        was = woken.is_set()
        woken.clear()
        return was

    engine.stats(QUEUE)
    assert not was_woken()
    engine.put(QUEUE, [b"x"], None, None)
    assert was_woken()
    (message,), _ = engine.reserve(number, 1)
    assert not was_woken()
    engine.requeue(number, [message.id], None, None)
    assert was_woken()
    engine.reserve(number, 1)
    house.clock.advance(11)
    engine.stats(QUEUE)
    assert was_woken(), "its lease has ended"
    engine.put("other", [b"y"], None, None)
    assert was_woken()
    engine.unwatch(watch)
    engine.put(QUEUE, [b"z"], None, None)
    assert not was_woken()


def test_an_engine_that_was_closed_says_so(house: House) -> None:
    engine = house.engine
    engine.close()
    engine.close()
    with pytest.raises(ConnectionLost, match="closed"):
        engine.queues()


def test_ids_are_unique_over_restarts(house: House) -> None:
    ids = house.engine.put(QUEUE, [b"a"] * 3, None, None)
    ids += house.reopen().put(QUEUE, [b"b"] * 3, None, None)
    assert len(set(ids)) == 6
    messages, _ = house.engine.reserve(house.engine.attach(QUEUE, None), 10)
    assert [message.id for message in messages] == ids


def test_on_a_disk_that_is_nearly_full_nothing_is_put_and_everything_else_goes_on(house: House) -> None:
    engine = house.engine
    number = engine.attach(QUEUE, None)
    engine.put(QUEUE, [b"x"], None, None)
    (message,), _ = engine.reserve(number, 1)
    alarm = engine._broker.disk_alarm
    assert alarm is not None
    alarm.active = True
    for call in (
        lambda: engine.put(QUEUE, [b"y"], None, None),
        lambda: engine.put_at_slot("nightly", START, QUEUE, b"y"),
    ):
        with pytest.raises(ClientError, match="nearly full"):
            call()
    assert engine.finalize(number, [message.id], None) == [message.id]
    alarm.active = False
    assert engine.put_at_slot("nightly", START, QUEUE, b"z") is not None


def test_a_full_disk_is_not_taken_for_a_sync(house: House) -> None:
    engine = house.engine
    engine.use_queue(QUEUE)
    journal = engine._node.journal
    append = journal._append

    def no_room(is_mark: bool) -> int:
        raise OSError(errno.ENOSPC, "no room")

    engine._node.reserve._size_bytes = 0
    journal._append = no_room  # type: ignore[method-assign]
    with pytest.raises(ClientError, match="full"):
        engine.put(QUEUE, [b"x"], None, None)
    assert not engine.has_ended
    journal._append = append  # type: ignore[method-assign]
    engine.put(QUEUE, [b"y"], None, None)
    # The first was kept, as a put that raises may be.
    assert house.texts(house.crash().attach(QUEUE, None)) == ["x", "y"]
