"""put, put_many, put_rows and put_at_slot, and the queues they make, as plain SQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from tests.postgres.plain_sql import PlainSql

ODD_NAMES = [
    "it's",
    'say "so"',
    "Upper and lower",
    "50%s %d %",
    "naïve ☃",
    "a;drop table x",
    "\\",
    "x" * 1024,
    "{schema}",
]


@pytest.fixture
def sql(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as connection:
        yield connection


def test_a_message_of_text_is_stored_as_utf8(sql: PlainSql) -> None:
    (number,) = sql.put("q", "ünï")
    assert sql.rows("SELECT id, payload FROM penstock.reserve('q')") == [(number, "ünï".encode())]


def test_a_message_of_bytes_is_stored_as_it_is(sql: PlainSql) -> None:
    sql.one("SELECT id FROM penstock.put('q', %s)", b"\x00\xff")
    assert sql.rows("SELECT payload, deliveries, exchange FROM penstock.reserve('q')") == [(b"\x00\xff", 1, None)]


def test_ids_rise_with_the_order_of_the_array(sql: PlainSql) -> None:
    payloads = [b"%d" % number for number in range(50)]
    ids = sql.column("SELECT penstock.put_many('q', %s)", payloads)
    assert ids == sorted(ids)
    assert sql.rows("SELECT id, payload FROM penstock.reserve('q', 50)") == list(zip(ids, payloads, strict=True))


def test_an_empty_array_puts_nothing_but_makes_the_queue(sql: PlainSql) -> None:
    assert sql.column("SELECT penstock.put_many('q', '{}')") == []
    assert sql.column("SELECT name FROM penstock.queue_stats") == ["q"]


def test_rows_for_several_queues_keep_their_order_and_their_properties(sql: PlainSql) -> None:
    a, b = sql.one("SELECT penstock.use_queue('a')"), sql.one("SELECT penstock.use_queue('b')")
    until = datetime(2100, 1, 1, tzinfo=UTC)
    ids = sql.column(
        "SELECT penstock.put_rows(%s, %s, %s, %s, %s, %s, %s)",
        [a, b, a],
        [b"1", b"2", b"3"],
        ["x", None, ""],
        ["k", "l", None],
        [b"p", None, None],
        [None, until, None],
        [None, 2, 0],
    )
    assert ids == sorted(ids)
    columns = "id, payload, exchange, routing_key, properties, expires_at, deliveries"
    assert sql.rows(f"SELECT {columns} FROM penstock.reserve('a', 5)") == [
        (ids[0], b"1", "x", "k", b"p", None, 1),
        (ids[2], b"3", "", None, None, None, 1),
    ]
    assert sql.rows(f"SELECT {columns} FROM penstock.reserve('b', 5)") == [(ids[1], b"2", None, "l", None, until, 3)]


def test_rows_for_more_queues_than_are_locked_one_by_one_are_put(sql: PlainSql) -> None:
    numbers = sql.column("SELECT penstock.use_queue('q' || n) FROM generate_series(1, 300) AS n")
    nothing = [None] * 300
    put = "SELECT penstock.put_rows(%s, %s, %s::text[], %s::text[], %s::bytea[], %s::timestamptz[], %s::integer[])"
    assert len(sql.column(put, numbers, [b""] * 300, nothing, nothing, nothing, nothing, nothing)) == 300
    assert sql.one("SELECT sum(ready_count) FROM penstock.queue_stats") == 300


def test_rows_for_a_queue_that_is_gone_are_refused_as_a_whole(sql: PlainSql) -> None:
    kept = sql.one("SELECT penstock.use_queue('kept')")
    gone = sql.one("SELECT penstock.use_queue('gone')")
    sql.one("SELECT penstock.drop_queue('gone')")
    with pytest.raises(psycopg.errors.UndefinedObject, match=f"number {gone}"):
        sql.column(
            "SELECT penstock.put_rows(%s, '{x,y}', '{a,b}', '{a,b}', '{x,y}', '{now,now}', '{0,0}')", [kept, gone]
        )
    assert sql.stats("kept") == {}


@pytest.mark.parametrize(
    "call",
    [
        "put('', 'x')",
        "put(NULL, 'x')",
        "put(repeat('x', 1025), 'x')",
        "put('q', NULL)",
        "put('q', NULL::bytea)",
        "put('q', 'x', NULL, '-1 second')",
        "put_many('q', ARRAY['x'::bytea, NULL])",
        "put_many('q', NULL)",
        "put_rows('{1}', '{x,y}', '{a}', '{a}', '{x}', '{now}', '{0}')",
        "put_rows('{1}', NULL, '{a}', '{a}', '{x}', '{now}', '{0}')",
        "put_at_slot('', now(), 'q', 'x')",
        "put_at_slot('s', NULL, 'q', 'x')",
        "use_queue('q', 'loose')",
        "channel_of('')",
    ],
)
def test_bad_arguments_are_refused_with_a_hint(sql: PlainSql, call: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        sql.rows(f"SELECT penstock.{call}")
    assert raised.value.diag.message_hint
    assert sql.column("SELECT id FROM penstock.messages") == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_queue_may_have_any_name(sql: PlainSql, name: str) -> None:
    ids = sql.put(name, "x")
    assert sql.reserve(name) == ids
    sql.rows("SELECT penstock.finalize(%s, %s)", name, ids[0])
    assert sql.stats(name) == {"finalized_count": 1}
    assert len(sql.one("SELECT penstock.channel_of(%s)", name).encode()) <= 63


def test_names_that_are_equal_in_their_first_63_bytes_are_two_queues_with_two_channels(sql: PlainSql) -> None:
    first, second = "n" * 63 + "1", "n" * 63 + "2"
    sql.put(first, "x")
    sql.one("SELECT penstock.use_queue(%s)", second)
    assert sql.reserve(second) == []
    assert sql.one("SELECT penstock.channel_of(%s)", first) != sql.one("SELECT penstock.channel_of(%s)", second)


def test_a_name_with_just_63_bytes_of_channel_is_not_hashed(sql: PlainSql) -> None:
    assert sql.one("SELECT penstock.channel_of(%s)", "n" * 54) == "penstock." + "n" * 54
    assert sql.one("SELECT penstock.channel_of(%s)", "n" * 55).startswith("penstock#")


def test_what_is_rolled_back_leaves_nothing_not_even_counts(sql: PlainSql) -> None:
    sql.put("q", "kept")
    with sql.connection.transaction(force_rollback=True):
        sql.put("q", "lost")
        sql.column("SELECT penstock.put_many('q', '{a,b}')")
        sql.put("new", "lost")
    assert sql.stats("q") == {"ready_count": 1}
    assert sql.column("SELECT name FROM penstock.queues") == ["q"]
    assert len(sql.reserve("q", 10)) == 1


def test_a_message_for_later_is_not_reserved_before_its_time(sql: PlainSql) -> None:
    later = sql.one("SELECT id FROM penstock.put('q', 'later', now() + interval '1 hour')")
    assert sql.reserve("q") == []
    assert sql.stats("q") == {"scheduled_count": 1}
    due = sql.one("SELECT penstock.next_due('q')")
    assert due == sql.one("SELECT ready_at FROM penstock.messages")
    sql.connection.execute("UPDATE penstock.messages SET ready_at = now()")
    assert sql.reserve("q") == [later]
    assert sql.stats("q") == {"reserved_count": 1}


def test_a_time_in_the_past_is_now(sql: PlainSql) -> None:
    number = sql.one("SELECT id FROM penstock.put('q', 'x', now() - interval '1 hour')")
    assert sql.stats("q") == {"ready_count": 1}
    assert sql.reserve("q") == [number]


def test_the_time_to_live_is_stored(sql: PlainSql) -> None:
    sql.column("SELECT id FROM penstock.put('q', 'x', NULL, interval '0')")
    assert sql.one("SELECT expires_at = ready_at FROM penstock.messages")
    assert sql.reserve("q") == []
    sql.column("SELECT penstock.put_many('q', '{x}', now() + interval '1 h', interval '1 h')")
    assert sql.one("SELECT expires_at - ready_at = interval '1 h' FROM penstock.messages WHERE state = 2")


@pytest.mark.parametrize("payload", ["'x'", "'x'::bytea"])
def test_a_put_returns_its_row(sql: PlainSql, payload: str) -> None:
    columns = "id, queue_id, state, deliveries, payload, expires_at - ready_at"
    put = sql.rows(f"SELECT {columns} FROM penstock.put('q', {payload}, NULL, interval '1 h')")
    assert put == sql.rows(f"SELECT {columns} FROM penstock.messages")
    assert put[0][4] == b"x"


def test_a_slot_is_put_once_however_many_try(penstock_url: str, sql: PlainSql) -> None:
    put: list[int | None] = []
    ready = threading.Barrier(8)

    def race() -> None:
        with PlainSql(penstock_url) as own:
            ready.wait()
            put.append(own.one("SELECT penstock.put_at_slot('nightly', '2030-01-01', 'q', 'x')"))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([number for number in put if number is not None]) == 1
    assert sql.stats("q") == {"ready_count": 1}


def test_an_earlier_slot_is_not_put_after_a_later_one(sql: PlainSql) -> None:
    assert sql.one("SELECT penstock.put_at_slot('nightly', '2030-01-02', 'q', 'x')") is not None
    assert sql.one("SELECT penstock.put_at_slot('nightly', '2030-01-01', 'q', 'x')") is None
    assert sql.one("SELECT penstock.put_at_slot('other', '2030-01-01', 'q', 'x')") is not None


def test_a_slot_that_was_rolled_back_is_free(sql: PlainSql) -> None:
    with sql.connection.transaction(force_rollback=True):
        sql.one("SELECT penstock.put_at_slot('nightly', '2030-01-01', 'q', 'x')")
    assert sql.one("SELECT penstock.put_at_slot('nightly', '2030-01-01', 'q', 'x')") is not None


def test_two_first_uses_of_a_queue_at_once_make_one_queue(penstock_url: str, sql: PlainSql) -> None:
    ready = threading.Barrier(6)

    def race() -> None:
        with PlainSql(penstock_url) as own:
            ready.wait()
            own.put("new", "x")

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sql.column("SELECT name FROM penstock.queues") == ["new"]
    assert sql.stats("new") == {"ready_count": 6}


def test_an_ordering_is_kept_until_another_is_asked_for(sql: PlainSql) -> None:
    ordering = "SELECT ordering FROM penstock.queues"
    number = sql.one("SELECT penstock.use_queue('q', 'strict')")
    assert sql.one(ordering) == "strict"
    assert sql.one("SELECT penstock.use_queue('q')") == number
    assert sql.one(ordering) == "strict"
    sql.one("SELECT penstock.use_queue('q', 'fuzzy')")
    assert sql.one(ordering) == "fuzzy"
