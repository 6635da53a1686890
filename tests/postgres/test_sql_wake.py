"""Notifications: who waits is woken, nobody else is bothered, and a caller's transaction always tells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import sql as psycopg_sql

from tests.postgres.plain_sql import PlainSql


@pytest.fixture
def putter(penstock_url: str) -> Iterator[PlainSql]:
    """As our own sessions: it never begins transactions, and says so."""
    with PlainSql(penstock_url) as connection:
        connection.connection.execute("SET penstock.autocommit = on")
        yield connection


@pytest.fixture
def caller(penstock_url: str) -> Iterator[PlainSql]:
    """As somebody's application."""
    with PlainSql(penstock_url) as connection:
        yield connection


@pytest.fixture
def listener(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as connection:
        yield connection


def listen(listener: PlainSql, queue: str) -> str:
    channel = listener.one("SELECT penstock.channel_of(%s)", queue)
    listener.connection.execute(psycopg_sql.SQL("LISTEN {}").format(psycopg_sql.Identifier(channel)))
    return str(channel)


def told(listener: PlainSql, by: PlainSql, channel: str) -> list[tuple[str, str]]:
    """Channels and payloads that have come, up to a mark that is sent last: nothing is waited for that may not come."""
    by.rows("SELECT pg_notify(%s, 'mark')", channel)
    came = []
    for each in listener.connection.notifies():
        if each.payload == "mark":
            break
        came.append((each.channel, each.payload))
    return came


def heard(listener: PlainSql, by: PlainSql, channel: str) -> list[str]:
    return [heard_on for heard_on, _ in told(listener, by, channel)]


def test_a_put_notifies_when_a_consumer_waits_and_not_otherwise(putter: PlainSql, listener: PlainSql) -> None:
    me = listener.attach("q")
    channel = listen(listener, "q")
    putter.put("q", "x")
    putter.column("SELECT penstock.put_many('q', '{a,b}')")
    assert heard(listener, putter, channel) == []
    listener.rows("SELECT penstock.set_waiting(%s, true)", me)
    putter.put("q", "x")
    putter.column("SELECT penstock.put_many('q', '{a,b}')")
    assert heard(listener, putter, channel) == [channel, channel]
    listener.rows("SELECT penstock.set_waiting(%s, false)", me)
    putter.put("q", "x")
    assert heard(listener, putter, channel) == []


def test_a_consumer_of_another_queue_that_waits_does_not_count(putter: PlainSql, listener: PlainSql) -> None:
    listener.rows("SELECT penstock.set_waiting(%s, true)", listener.attach("other"))
    channel = listen(listener, "q")
    putter.put("q", "x")
    assert heard(listener, putter, channel) == []


def test_a_put_in_a_transaction_always_notifies_once_and_at_the_commit(
    putter: PlainSql, caller: PlainSql, listener: PlainSql
) -> None:
    channel = listen(listener, "q")
    with caller.connection.transaction():
        caller.put("q", "x", "y")
        caller.column("SELECT penstock.put_many('q', '{a,b}')")
        assert heard(listener, putter, channel) == []
    assert heard(listener, putter, channel) == [channel]


def test_a_put_that_is_rolled_back_notifies_nobody(putter: PlainSql, caller: PlainSql, listener: PlainSql) -> None:
    listener.rows("SELECT penstock.set_waiting(%s, true)", listener.attach("q"))
    channel = listen(listener, "q")
    with caller.connection.transaction(force_rollback=True):
        caller.put("q", "x")
    assert heard(listener, putter, channel) == []


def test_rows_for_two_queues_notify_each_that_is_waited_for(putter: PlainSql, listener: PlainSql) -> None:
    numbers = [putter.one("SELECT penstock.use_queue(%s)", name) for name in ("a", "b", "c")]
    for name in ("a", "c"):
        listener.rows("SELECT penstock.set_waiting(%s, true)", listener.attach(name))
    channels = [listen(listener, name) for name in ("a", "b", "c")]
    nothing = [None] * 6
    putter.column(
        "SELECT penstock.put_rows(%s, %s, %s::text[], %s::text[], %s::bytea[], %s::timestamptz[], %s::integer[])",
        numbers * 2,
        [b""] * 6,
        nothing,
        nothing,
        nothing,
        nothing,
        nothing,
    )
    assert sorted(heard(listener, putter, channels[0])) == [channels[0], channels[2]]


def test_what_comes_back_wakes_who_waits(putter: PlainSql, listener: PlainSql) -> None:
    listener.rows("SELECT penstock.set_waiting(%s, true)", listener.attach("q"))
    ids = putter.put("q", "a", "b", "c")
    channel = listen(listener, "q")
    putter.reserve("q", 3)
    putter.column("SELECT penstock.requeue('q', %s)", ids[:1])
    assert heard(listener, putter, channel) == [channel]
    putter.column("SELECT penstock.bury('q', %s)", ids[1:2])
    assert heard(listener, putter, channel) == []
    putter.one("SELECT penstock.kick('q')")
    assert heard(listener, putter, channel) == [channel]
    putter.column("SELECT penstock.touch('q', %s, '0')", ids[2:])
    putter.one("SELECT penstock.return_orphans()")
    assert heard(listener, putter, channel) == [channel]
    putter.reserve("q", 1)
    putter.column("SELECT penstock.requeue('q', %s, delay => '1 microsecond')", ids[:1])
    heard(listener, putter, channel)
    assert putter.one("SELECT penstock.promote_due()") == 1
    assert heard(listener, putter, channel) == [channel]


def test_channels_of_odd_names_can_be_listened_to(putter: PlainSql, listener: PlainSql) -> None:
    for name in ('say "so"', "it's", "Upper", "x" * 1024, "☃" * 100):
        listener.rows("SELECT penstock.set_waiting(%s, true)", listener.attach(name))
        channel = listen(listener, name)
        putter.put(name, "x")
        assert heard(listener, putter, channel) == [channel]


def test_a_notification_names_one_of_those_who_wait_and_each_of_them_in_time(
    putter: PlainSql, listener: PlainSql
) -> None:
    waiting = [listener.attach("q") for _ in range(3)]
    listener.attach("q")
    for number in waiting:
        listener.rows("SELECT penstock.set_waiting(%s, true)", number)
    channel = listen(listener, "q")
    for _ in range(60):
        putter.put("q", "x")
        putter.column("SELECT penstock.put_many('q', '{a,b}')")
    named = [payload for _, payload in told(listener, putter, channel)]
    assert len(named) == 120
    assert {int(payload) for payload in named} == set(waiting)


def test_a_put_in_a_transaction_names_nobody_since_who_waits_at_its_commit_cannot_be_known(
    putter: PlainSql, caller: PlainSql, listener: PlainSql
) -> None:
    listener.rows("SELECT penstock.set_waiting(%s, true)", listener.attach("q"))
    channel = listen(listener, "q")
    with caller.connection.transaction():
        caller.put("q", "x")
        caller.column("SELECT penstock.put_many('q', '{a,b}')")
    assert told(listener, putter, channel) == [(channel, "")]
