"""reserve, reserve_ids and browse: which messages one gets, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.postgres.plain_sql import PlainSql


@pytest.fixture
def sql(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as connection:
        yield connection


@pytest.fixture
def other(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as connection:
        yield connection


def test_reserved_messages_come_in_order_and_once(sql: PlainSql, other: PlainSql) -> None:
    ids = sql.put("q", *"abcde")
    assert sql.reserve("q", 2) == ids[:2]
    assert other.reserve("q", 2) == ids[2:4]
    assert sql.reserve("q", 10) == ids[4:]
    assert sql.reserve("q") == []
    assert sql.stats("q") == {"reserved_count": 5}


def test_a_reservation_says_who_has_it_and_how_often_it_was_had(sql: PlainSql) -> None:
    me = sql.attach("q")
    sql.put("q", "x")
    columns = "owner, deliveries, state, reserved_by, reserved_at IS NOT NULL, reserved_until"
    reserve = f"SELECT {columns} FROM penstock.reserve('q', 1, %s)"
    assert sql.rows(reserve, me) == [(me, 1, 1, f"penstock consumer {me} q", True, None)]
    sql.column("SELECT penstock.requeue('q', ARRAY[id], %s) FROM penstock.messages", me)
    assert sql.one("SELECT reserved_by IS NULL AND owner IS NULL AND reserved_at IS NULL FROM penstock.messages")
    assert sql.rows(reserve, me)[0][1] == 2


def test_without_a_consumer_a_reservation_lasts_a_quarter_of_an_hour(sql: PlainSql) -> None:
    sql.put("q", "x", "y")
    lasts = "SELECT extract(epoch FROM reserved_until - reserved_at)::integer FROM penstock.reserve"
    assert sql.one(f"{lasts}('q')") == 900
    assert sql.one(f"{lasts}('q', lease => '7 s')") == 7


def test_what_another_transaction_is_just_taking_is_passed_over(sql: PlainSql, other: PlainSql) -> None:
    ids = sql.put("q", *"abc")
    with sql.connection.transaction(force_rollback=True):
        assert sql.reserve("q") == ids[:1]
        assert other.reserve("q") == ids[1:2]
    assert other.reserve("q", 5) == [ids[0], ids[2]]
    assert sql.stats("q") == {"reserved_count": 3}


def test_a_queue_that_is_not_there_is_named_and_not_made(sql: PlainSql) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject, match='no queue "nosuch"') as raised:
        sql.reserve("nosuch")
    assert "use_queue" in str(raised.value.diag.message_hint)
    assert sql.column("SELECT name FROM penstock.queues") == []


def test_what_has_expired_is_neither_counted_nor_reserved(sql: PlainSql) -> None:
    old = sql.one("SELECT id FROM penstock.put('q', 'old', now() - interval '2 s', interval '1 s')")
    (fresh,) = sql.put("q", "fresh")
    assert sql.stats("q") == {"ready_count": 1, "expired_count": 1}
    assert sql.one("SELECT penstock.count_ready('q')") == 1
    assert sql.reserve("q", 10) == [fresh]
    assert sql.stats("q") == {"reserved_count": 1, "finalized_count": 1}
    assert sql.rows("SELECT id, finalized_note FROM penstock.messages_history") == [(old, "expired")]
    sql.one("SELECT id FROM penstock.put('q', 'old', now() - interval '2 s', interval '1 s')")
    before = sql.stats("q")
    sql.rows("SELECT penstock.update_queue_counts()")
    assert sql.stats("q") == before


def test_who_wants_what_has_expired_gets_it(sql: PlainSql) -> None:
    old = sql.one("SELECT id FROM penstock.put('q', 'old', now() - interval '2 s', interval '1 s')")
    assert sql.column("SELECT id FROM penstock.reserve('q', expired => true)") == [old]


@pytest.mark.parametrize(
    "arguments", ["'q', 0", "'q', 10001", "'q', NULL", "'q', 1, NULL, '-1 s'", "''", "'q', 1, 4711"]
)
def test_bad_arguments_are_refused_with_a_hint(sql: PlainSql, arguments: str) -> None:
    sql.put("q", "x")
    with pytest.raises(psycopg.Error) as raised:
        sql.rows(f"SELECT penstock.reserve({arguments})")
    assert raised.value.diag.message_hint
    assert sql.stats("q") == {"ready_count": 1}


def test_a_floor_hides_what_is_below_it(sql: PlainSql) -> None:
    ids = sql.put("q", *"abc")
    look = "SELECT id FROM penstock.reserve('q', 5, floor => %s)"
    assert sql.column(look, ids[1]) == ids[1:]
    assert sql.column(look, ids[1]) == []
    assert sql.column(look, 0) == ids[:1]


def test_what_has_just_become_due_is_found_below_the_floor_too(sql: PlainSql) -> None:
    number = sql.one("SELECT id FROM penstock.put('q', 'later', now() + interval '1 h')")
    after = sql.put("q", "x")
    sql.connection.execute("UPDATE penstock.messages SET ready_at = now() WHERE id = %s", (number,))
    assert sql.column("SELECT id FROM penstock.reserve('q', 5, floor => %s)", after[0]) == [*after, number]


def test_a_relative_top_leaves_so_many_at_the_head_while_there_are_more(sql: PlainSql) -> None:
    ids = sql.put("q", *"abcd")
    top = "SELECT id FROM penstock.reserve('q', %s, relative_top => %s)"
    assert sql.column(top, 1, 2) == [ids[2]]
    assert sql.column(top, 1, 9) == [ids[0]]
    assert sql.column(top, 5, 1) == [ids[3], ids[1]]


def test_an_offset_locks_nothing_that_it_leaves(sql: PlainSql, other: PlainSql) -> None:
    ids = sql.put("q", *"abcd")
    with sql.connection.transaction():
        assert sql.column("SELECT id FROM penstock.reserve('q', 1, relative_top => 2)") == [ids[2]]
        assert other.reserve("q", 4) == [ids[0], ids[1], ids[3]]


def test_a_fuzzy_queue_draws_from_as_many_as_there_are_consumers_and_never_forgets_the_head(sql: PlainSql) -> None:
    me, *_ = [sql.attach("q") for _ in range(4)]
    ids = sql.put("q", *"abcdefgh")
    sql.one("SELECT penstock.fold_stats()")
    drawn = set()
    for _ in range(300):
        (number,) = sql.reserve("q", 1, me)
        drawn.add(number)
        sql.column("SELECT penstock.requeue('q', %s, %s, seen => false)", [number], me)
    assert drawn == set(ids[:4])
    assert sql.one("SELECT max(deliveries) FROM penstock.messages") == 0


def test_with_fewer_ready_than_consumers_no_offset_goes_beyond_them(sql: PlainSql) -> None:
    me, *_ = [sql.attach("q") for _ in range(4)]
    ids = sql.put("q", "a")
    sql.one("SELECT penstock.fold_stats()")
    for _ in range(20):
        assert sql.reserve("q", 1, me) == ids
        sql.column("SELECT penstock.requeue('q', %s, %s)", ids, me)


def test_a_strict_queue_gives_the_next_only_when_the_head_is_decided(sql: PlainSql, other: PlainSql) -> None:
    sql.one("SELECT penstock.use_queue('q', 'strict')")
    ids = sql.put("q", *"abc")
    got: list[int] = []
    with sql.connection.transaction(force_rollback=True):
        assert sql.reserve("q") == ids[:1]
        thread = threading.Thread(target=lambda: got.extend(other.reserve("q", 2)))
        thread.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        while not sql.one(waits, other.connection.info.backend_pid):
            sql.rows("SELECT pg_stat_clear_snapshot()")
    thread.join()
    assert got == ids[:2]


def test_a_strict_queue_with_four_consumers_at_once_is_served_in_order(penstock_url: str, sql: PlainSql) -> None:
    sql.one("SELECT penstock.use_queue('q', 'strict')")
    ids = sql.column("SELECT penstock.put_many('q', %s)", [b"x"] * 200)

    def consume() -> None:
        with PlainSql(penstock_url) as own:
            while own.reserve("q", 3):
                pass

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sql.column("SELECT id FROM penstock.messages WHERE state = 1 ORDER BY reserved_at, id") == ids


def test_ready_messages_are_reserved_by_their_ids(sql: PlainSql) -> None:
    me = sql.attach("q")
    ids = sql.put("q", *"abc")
    foreign = sql.put("other", "x")
    sql.reserve("q", 1, me)
    by_ids = "SELECT id FROM penstock.reserve_ids('q', %s, %s)"
    assert sql.column(by_ids, [ids[2], ids[0], ids[1], ids[1], foreign[0], 99], me) == ids[1:]
    assert sql.stats("q") == {"reserved_count": 3, "consumer_count": 1}
    with pytest.raises(psycopg.Error, match="not attached"):
        sql.column(by_ids, ids, 4711)


def test_browsing_disturbs_nothing_and_minds_the_bytes(sql: PlainSql, other: PlainSql) -> None:
    ids = sql.put("q", "aa", "bb", "cc")
    browse = "SELECT id FROM penstock.browse('q', %s, %s, %s)"
    with sql.connection.transaction(force_rollback=True):
        sql.reserve("q", 1)
        assert other.column(browse, 0, 10, 100) == ids
    assert sql.column(browse, ids[1], 10, 100) == ids[1:]
    assert sql.column(browse, 0, 2, 100) == ids[:2]
    assert sql.column(browse, 0, 10, 4) == ids[:2]
    assert sql.column(browse, 0, 10, 1) == ids[:1]
    assert sql.column("SELECT id FROM penstock.browse('nowhere', 0, 1, 1)") == []
    assert sql.stats("q") == {"ready_count": 3}


def test_a_quick_reservation_does_not_weaken_the_callers_transaction(sql: PlainSql) -> None:
    sql.connection.execute("SET synchronous_commit = on")
    quick = "SELECT id, current_setting('synchronous_commit') FROM penstock.reserve('q', quick => true)"
    ids = sql.put("q", "a", "b")
    with sql.connection.transaction():
        sql.put("other", "x")
        assert sql.rows(quick) == [(ids[0], "on")]
    # A driver sends a statement in steps, which looks like a transaction unless the session says that it is none.
    sql.connection.execute("SET penstock.autocommit = on")
    assert sql.rows(quick) == [(ids[1], "off")]
    assert sql.one("SHOW synchronous_commit") == "on"
    assert sql.stats("q") == {"reserved_count": 2}


def test_plans_made_on_an_empty_table_find_the_index_of_a_full_one(sql: PlainSql) -> None:
    sql.one("SELECT penstock.use_queue('q')")
    assert sql.reserve("q") == []
    sql.connection.execute("VACUUM ANALYZE penstock.messages")
    sql.column("SELECT penstock.put_many('q', %s)", [b"x"] * 2000)
    scans = "SELECT pg_stat_get_numscans('penstock.messages'::regclass)"
    sql.rows("SELECT pg_stat_force_next_flush()")
    before = sql.one(scans)
    for _ in range(5):
        assert len(sql.reserve("q", 100)) == 100
    sql.rows("SELECT pg_stat_force_next_flush()")
    assert sql.one(scans) == before
