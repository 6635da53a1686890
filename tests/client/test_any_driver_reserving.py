"""What a consumer promises about waiting, and about what it has reserved."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from penstock.client.errors import Closed, NotReserved
from tests.client import any_driver
from tests.client.any_driver import PATIENCE_S, Place, drain, payloads

place = any_driver.place


def test_an_empty_queue_gives_nothing(place: Place) -> None:
    consumer = place.session().consumer_for(place.queue())
    assert consumer.reserve() is None
    assert consumer.reserve_many(10) == []


def test_a_reserve_waits_until_its_deadline(place: Place) -> None:
    consumer = place.session().consumer_for(place.queue())
    began_s = monotonic()
    assert consumer.reserve(wait=0.3) is None
    assert monotonic() - began_s >= 0.29


def test_a_reserve_that_waits_is_woken_by_a_put_of_another_session(place: Place) -> None:
    queue = place.queue()
    consumer = place.session().consumer_for(queue)
    producer = place.session().producer_for(queue)
    timer = threading.Timer(0.2, producer.put, [b"at last"])
    timer.start()
    message = consumer.reserve(wait=PATIENCE_S)
    timer.join()
    assert message.payload == b"at last"


def test_a_reserve_without_a_deadline_waits_for_ever(place: Place) -> None:
    queue = place.queue()
    consumer = place.session().consumer_for(queue)
    producer = place.session().producer_for(queue)
    timer = threading.Timer(1.2, producer.put, [b"at last"])
    timer.start()
    assert consumer.reserve(wait=None).payload == b"at last"
    timer.join()


def test_a_message_that_somebody_else_takes_does_not_end_the_wait(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    producer = session.producer_for(queue)
    consumers = [place.session().consumer_for(queue) for _ in range(3)]
    found: list[bytes] = []

    def take(consumer: object) -> None:
        message = consumer.reserve(wait=PATIENCE_S)  # type: ignore[attr-defined]
        found.append(message.payload)

    threads = [threading.Thread(target=take, args=[consumer]) for consumer in consumers]
    for thread in threads:
        thread.start()
    for number in range(3):
        producer.put(str(number))
    for thread in threads:
        thread.join()
    assert sorted(found) == [b"0", b"1", b"2"]


def test_a_reserved_message_is_given_to_nobody_else(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"mine")
    first = session.consumer_for(queue)
    assert first.reserve(wait=PATIENCE_S).payload == b"mine"
    assert first.reserve() is None
    assert session.consumer_for(queue).reserve() is None
    assert place.session().consumer_for(queue).reserve() is None


def test_many_messages_are_reserved_at_once(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.use_queue(queue, "strict")
    session.producer_for(queue).put_many([str(number) for number in range(20)])
    consumer = session.consumer_for(queue, prefetch=20)
    found: list[bytes] = []
    while len(found) < 20:
        messages = consumer.reserve_many(7, wait=PATIENCE_S)
        assert 1 <= len(messages) <= 7
        found += payloads(messages)
    assert found == [str(number).encode() for number in range(20)]
    assert consumer.reserve_many(7) == []


def test_what_a_closed_consumer_had_goes_back(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.use_queue(queue, "strict")
    session.producer_for(queue).put_many([b"a", b"b", b"c"])
    first = session.consumer_for(queue)
    kept, lost = drain(first, 2)
    first.finalize(kept)
    first.close()
    again = drain(session.consumer_for(queue), 2)
    assert payloads(again) == [b"b", b"c"]
    assert again[0].id == lost.id
    assert again[0].deliveries == 2


def test_what_a_closed_session_had_goes_back(place: Place) -> None:
    queue = place.queue()
    first = place.session()
    first.producer_for(queue).put(b"x")
    assert first.consumer_for(queue).reserve(wait=PATIENCE_S) is not None
    first.close()
    message = place.session().consumer_for(queue).reserve(wait=PATIENCE_S)
    assert message.payload == b"x"
    assert message.deliveries == 2


def test_a_closed_consumer_does_nothing_any_more(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    message = consumer.reserve(wait=PATIENCE_S)
    consumer.close()
    consumer.close()
    for call in (
        consumer.reserve,
        lambda: consumer.reserve_many(2),
        lambda: consumer.finalize(message),
        lambda: consumer.finalize_many([message]),
        lambda: consumer.finalize_and_reserve(message),
        lambda: consumer.requeue(message),
        lambda: consumer.bury(message),
        lambda: consumer.touch(message, 5),
        lambda: consumer.kick(),
        lambda: session.wait_any([consumer], 0),
    ):
        with pytest.raises(Closed):
            call()


def test_a_lease_that_has_run_out_gives_the_message_back(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"x")
    first = session.consumer_for(queue, lease=0.3)
    message = first.reserve(wait=PATIENCE_S)
    if message.reserved_until is None:
        # No leases there: it is this consumer's until that is gone.
        assert session.consumer_for(queue).reserve(wait=0.5) is None
        first.finalize(message)
        return
    again = session.consumer_for(queue).reserve(wait=PATIENCE_S)
    assert again.id == message.id
    assert again.deliveries == 2
    with pytest.raises(NotReserved):
        first.finalize(message)


def test_a_touched_message_is_kept_longer(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put_many([b"a", b"b"])
    first = session.consumer_for(queue, lease=1.0)
    touched, untouched = drain(first, 2)
    first.touch(touched, 3600)
    if touched.reserved_until is None:
        # No leases there, and none is needed.
        assert first.finalize_many([touched, untouched]) == [touched, untouched]
        return
    again = session.consumer_for(queue).reserve(wait=PATIENCE_S)
    assert again.id == untouched.id
    first.finalize(touched)


def test_touching_what_is_not_reserved_is_an_error(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"a")
    first, second = session.consumer_for(queue), session.consumer_for(queue)
    message = first.reserve(wait=PATIENCE_S)
    with pytest.raises(NotReserved):
        second.touch(message, 5)
    first.finalize(message)
    with pytest.raises(NotReserved):
        first.touch(message, 5)


def test_without_a_lease_a_touch_must_say_how_long(place: Place) -> None:
    queue = place.queue()
    session = place.session()
    session.producer_for(queue).put(b"a")
    consumer = session.consumer_for(queue, lease=None)
    message = consumer.reserve(wait=PATIENCE_S)
    assert message.reserved_until is None
    with pytest.raises(ValueError, match="lease"):
        consumer.touch(message)
    consumer.finalize(message)


def test_one_of_several_queues_is_waited_for(place: Place) -> None:
    session = place.session()
    names = [place.queue() for _ in range(3)]
    consumers = [session.consumer_for(name) for name in names]
    began_s = monotonic()
    session.wait_any(consumers, 0.2)
    assert monotonic() - began_s >= 0.19
    producer = place.session().producer_for(names[1])
    timer = threading.Timer(0.1, producer.put, [b"x"])
    timer.start()
    message = None
    deadline_s = monotonic() + PATIENCE_S
    while message is None and monotonic() < deadline_s:
        session.wait_any(consumers, PATIENCE_S)
        message = consumers[1].reserve()
    timer.join()
    assert message is not None
    assert consumers[0].reserve() is None


def test_waiting_for_what_is_there_returns_at_once(place: Place) -> None:
    session, queue = place.session(), place.queue()
    session.producer_for(queue).put(b"x")
    consumer = session.consumer_for(queue)
    session.wait_any([consumer], None)
    assert consumer.reserve(wait=PATIENCE_S) is not None
    with pytest.raises(ValueError, match="consumer"):
        session.wait_any([], 0)


@pytest.mark.parametrize("wait", ["1", True, float("nan"), b"1"], ids=str)
def test_a_wait_that_is_no_time_is_refused(place: Place, wait: object) -> None:
    consumer = place.session().consumer_for(place.queue())
    with pytest.raises((TypeError, ValueError)):
        consumer.reserve(wait=wait)


@pytest.mark.parametrize("count", [0, -1, 1.5, "3", True, None, 10**9], ids=str)
def test_a_count_that_is_none_is_refused(place: Place, count: object) -> None:
    consumer = place.session().consumer_for(place.queue())
    with pytest.raises((TypeError, ValueError)):
        consumer.reserve_many(count)
    with pytest.raises((TypeError, ValueError)):
        consumer.kick(count)
