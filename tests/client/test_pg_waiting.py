"""Waiting on PostgreSQL: deadlines, notifications that come and that do not, messages that fall due, leases."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

import penstock
from penstock.client.errors import Closed, NotReserved
from penstock.client.sync.postgres import consumer as pg_consumer
from penstock.client.sync.postgres.link import PgLink
from penstock.pg.statements import Statements
from tests.client.any_driver import PATIENCE_S, Place
from tests.client.calls import Call
from tests.interop.deadline import wait_until

Plain = psycopg.Connection[Any]


def who_waits(plain: Plain) -> list[str]:
    return sorted(name for (name,) in plain.execute("SELECT name FROM penstock.participants WHERE waiting"))


def wait_until_waiting(plain: Plain, count: int = 1) -> None:
    wait_until(lambda: len(who_waits(plain)) == count, f"{count} consumers wait")


# --- deadlines --------------------------------------------------------------------------------------------


def test_a_wait_ends_with_nothing_at_its_deadline_and_not_before(database: Place) -> None:
    consumer = database.session().consumer_for("q")
    for wait_s in (0.001, 0.3, 1.2):
        start_s = time.monotonic()
        assert consumer.reserve(wait=wait_s) is None
        assert time.monotonic() >= start_s + wait_s


def test_who_loses_the_race_goes_on_waiting(database: Place, plain: Plain) -> None:
    session = database.session()
    producer = session.producer_for("q")
    calls = [Call(lambda: session.consumer_for("q").reserve(wait=None)) for _ in range(2)]
    wait_until_waiting(plain, 2)
    producer.put("first")
    wait_until(lambda: any(call.is_over() for call in calls), "one of them has got it")
    loser = next(call for call in calls if not call.is_over())
    producer.put("second")
    assert sorted(call.result().text for call in calls) == ["first", "second"]
    assert loser.result().text == "second"


def test_closing_ends_a_wait(database: Place, plain: Plain) -> None:
    consumer = database.session().consumer_for("q")
    call = Call(lambda: consumer.reserve(wait=None))
    wait_until_waiting(plain)
    consumer.close()
    with pytest.raises(Closed):
        call.result()


# --- notifications ----------------------------------------------------------------------------------------


def test_a_put_in_plain_sql_wakes_a_consumer_when_it_commits(database: Place, plain: Plain) -> None:
    consumer = database.session().consumer_for("q")
    call = Call(lambda: consumer.reserve(wait=PATIENCE_S))
    wait_until_waiting(plain)
    with plain.transaction():
        plain.execute("SELECT penstock.put('q', 'from sql')")
        assert not call.is_over()
    assert call.result().text == "from sql"


def test_who_hears_nothing_finds_the_message_all_the_same(penstock_url: str, plain: Plain) -> None:
    with penstock.Session(penstock_url) as session:
        consumer = session.consumer_for("q")
        consumer._driver._link._connection.execute("UNLISTEN *")  # type: ignore[attr-defined]
        call = Call(lambda: consumer.reserve(wait=PATIENCE_S))
        wait_until_waiting(plain)
        # No notification is sent either.
        plain.execute(
            "INSERT INTO penstock.messages (id, queue_id, state, ready_at, payload)"
            " SELECT nextval('penstock.message_ids'), id, 0, now(), 'x' FROM penstock.queues"
        )
        assert call.result().text == "x"


def test_puts_notify_only_while_somebody_waits(
    penstock_url: str, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg_consumer, "SECONDS_STILL_WAITING", 0.0)
    plain.execute('LISTEN "penstock.q"')
    with penstock.Session(penstock_url) as session:
        producer, consumer = session.producer_for("q"), session.consumer_for("q")
        producer.put("nobody waits")
        assert consumer.reserve() is not None
        assert who_waits(plain) == []
        assert consumer.reserve(wait=0.2) is None
        assert who_waits(plain) == ["penstock consumer 2 q"]
        producer.put("somebody waits")
        assert len(list(plain.notifies(timeout=PATIENCE_S, stop_after=1))) == 1
        # It finds something without waiting: it is busy now.
        assert consumer.reserve() is not None
        assert who_waits(plain) == []
        producer.put("nobody waits any more")
        assert list(plain.notifies(timeout=0.0)) == []


# --- what falls due ---------------------------------------------------------------------------------------


def test_who_waits_gets_a_scheduled_message_when_it_falls_due(database: Place) -> None:
    session = database.session()
    producer, consumer = session.producer_for("q"), session.consumer_for("q")
    producer.put("later", delay=1.5)
    assert consumer.reserve() is None
    message = consumer.reserve(wait=PATIENCE_S)
    assert message.text == "later"
    assert message.reserved_at >= message.ready_at


def test_a_message_that_is_scheduled_while_somebody_waits_is_noticed(database: Place, plain: Plain) -> None:
    session = database.session()
    consumer = session.consumer_for("q")
    call = Call(lambda: consumer.reserve(wait=PATIENCE_S))
    wait_until_waiting(plain)
    session.producer_for("q").put("later", delay=0.05)
    assert call.result().text == "later"


def test_a_lease_that_runs_out_gives_the_message_to_who_waits(database: Place) -> None:
    session = database.session()
    session.producer_for("q").put("x")
    slow, other = session.consumer_for("q", lease=0.05), session.consumer_for("q")
    first = slow.reserve(wait=PATIENCE_S)
    second = other.reserve(wait=PATIENCE_S)
    assert (second.id, second.deliveries) == (first.id, 2)
    with pytest.raises(NotReserved):
        slow.finalize(first)
    with pytest.raises(NotReserved):
        slow.touch(first)
    other.finalize(second)


def test_touching_a_message_makes_its_lease_longer(database: Place, plain: Plain) -> None:
    session = database.session()
    session.producer_for("q").put("x")
    consumer = session.consumer_for("q", lease=600.0)
    message = consumer.reserve(wait=PATIENCE_S)
    consumer.touch(message, lease=6000.0)
    (longer,) = plain.execute("SELECT reserved_until FROM penstock.messages").fetchone() or (None,)
    assert 5300 < (longer - message.reserved_until).total_seconds() < 5500
    consumer.touch(message)
    (shorter,) = plain.execute("SELECT reserved_until FROM penstock.messages").fetchone() or (None,)
    assert message.reserved_until < shorter < longer


def test_without_a_lease_a_reservation_lasts_as_long_as_its_consumer(database: Place, plain: Plain) -> None:
    session = database.session()
    session.producer_for("q").put("x")
    consumer = session.consumer_for("q", lease=None)
    message = consumer.reserve(wait=PATIENCE_S)
    assert message.reserved_until is None
    plain.execute("SELECT penstock.sweep()")
    with pytest.raises(ValueError, match="no lease"):
        consumer.touch(message)
    consumer.close()
    assert session.consumer_for("q").reserve(wait=PATIENCE_S).id == message.id


# --- several queues ---------------------------------------------------------------------------------------


def test_waiting_for_any_ends_when_one_of_them_has_something(database: Place, plain: Plain) -> None:
    session = database.session()
    consumers = [session.consumer_for(name) for name in ('o"ne', "two", "t" * 80)]
    for name, consumer in zip(('o"ne', "two", "t" * 80), consumers, strict=True):
        call = Call(lambda: session.wait_any(consumers, None))
        wait_until_waiting(plain, 3)
        session.producer_for(name).put(name)
        call.result()
        assert [one.reserve() is not None for one in consumers] == [one is consumer for one in consumers]


def test_waiting_for_any_ends_at_its_deadline_and_not_before(database: Place) -> None:
    session = database.session()
    consumers = [session.consumer_for(name) for name in ("one", "two")]
    start_s = time.monotonic()
    session.wait_any(consumers, 0.3)
    assert time.monotonic() >= start_s + 0.3


def test_waiting_for_any_ends_when_a_message_falls_due_or_its_lease_ends(database: Place) -> None:
    session = database.session()
    one, two = session.consumer_for("one"), session.consumer_for("two", lease=0.1)
    session.producer_for("two").put("x", delay=0.1)
    session.wait_any([one, two], None)
    assert two.reserve().deliveries == 1
    session.wait_any([one, two], None)
    assert two.reserve().deliveries == 2


# --- whom a notification names ----------------------------------------------------------------------------


def a_link(url: str, channel: str) -> PgLink:
    link = PgLink(url, "listener", Statements("penstock"))
    link.connect()
    link.listen(channel)
    return link


@pytest.mark.parametrize("payload", ["", "7", "8"])
def test_a_pause_ends_with_a_notification_for_us_for_all_and_a_moment_later_for_another(
    penstock_url: str, plain: Plain, payload: str
) -> None:
    link = a_link(penstock_url, "somewhere")
    try:
        # Nobody would wait for the end of this one.
        call = Call(lambda: link.pause(PATIENCE_S * 10, ["7"]))
        plain.execute("SELECT pg_notify('somewhere', %s)", (payload,))
        assert call.result() is True
    finally:
        link.close()


def test_a_pause_in_which_others_are_named_all_the_time_ends_all_the_same(penstock_url: str, plain: Plain) -> None:
    link = a_link(penstock_url, "somewhere")
    try:
        call = Call(lambda: link.pause(PATIENCE_S * 10, ["7"]))
        sent = 0
        while not call.is_over():
            plain.execute("SELECT pg_notify('somewhere', '8')")
            sent += 1
        assert call.result() is True
        assert sent > 0
    finally:
        link.close()


def test_messages_come_although_notifications_name_one_who_never_looks(database: Place, plain: Plain) -> None:
    """He says that he waits, and is busy: a consumer that is free gets every message."""
    plain.execute("SELECT penstock.use_queue('q')")
    row = plain.execute("SELECT penstock.attach('q', 'consumer', '0 s')").fetchone()
    assert row is not None
    plain.execute("SELECT penstock.set_waiting(%s, true)", (row[0],))
    session = database.session()
    consumer, producer = session.consumer_for("q"), session.producer_for("q")
    for number in range(10):
        call = Call(lambda: consumer.reserve(wait=None))
        wait_until_waiting(plain, 2)
        producer.put(str(number))
        assert call.result().text == str(number)
