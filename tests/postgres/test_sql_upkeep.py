"""Counts that are folded and set right, the history's partitions, and the sweeper."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.postgres.plain_sql import PlainSql

PARTITIONS = (
    "SELECT right(inhrelid::regclass::text, 8) FROM pg_inherits"
    " WHERE inhparent = 'penstock.messages_history'::regclass AND inhrelid::regclass::text ~ '[0-9]{8}$' ORDER BY 1"
)
# Day numbers from today, in UTC, as the partitions are named.
DAY = "SELECT to_char((now() AT TIME ZONE 'UTC')::date + %s::integer, 'YYYYMMDD')"


@pytest.fixture
def sql(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as connection:
        yield connection


@pytest.fixture
def other(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as connection:
        yield connection


def finalized(sql: PlainSql, queue: str, count: int) -> None:
    sql.put(queue, *["x"] * count)
    sql.column("SELECT penstock.finalize_many(%s, %s)", queue, sql.reserve(queue, count))


def test_folding_changes_where_counts_stand_and_not_what_they_are(sql: PlainSql) -> None:
    sql.put("q", *"abc")
    sql.put("r", "x")
    sql.reserve("q", 2)
    before = sql.rows("SELECT * FROM penstock.stats ORDER BY 1, 2")
    assert sql.one("SELECT penstock.fold_stats()") == 5
    assert sql.rows("SELECT * FROM penstock.stats ORDER BY 1, 2") == before
    assert sql.one("SELECT count(*) FROM penstock.stats_deltas") == 0
    assert sql.one("SELECT penstock.fold_stats()") == 0
    assert sql.stats("q") == {"ready_count": 1, "reserved_count": 2}


def test_folding_leaves_what_another_is_just_folding(sql: PlainSql, other: PlainSql) -> None:
    sql.put("q", *"abc")
    with other.connection.transaction(force_rollback=True):
        assert other.one("SELECT penstock.fold_stats()") == 3
        sql.put("q", "d")
        assert sql.one("SELECT count(*) FROM penstock.stats_deltas") == 4
    assert sql.one("SELECT penstock.fold_stats()") == 4
    assert sql.stats("q") == {"ready_count": 4}


def test_counts_of_a_queue_that_was_dropped_are_not_kept(sql: PlainSql) -> None:
    sql.put("q", "x")
    sql.one("SELECT penstock.drop_queue('q')")
    sql.connection.execute("INSERT INTO penstock.stats_deltas (queue_id, ready) VALUES (1, 1)")
    assert sql.one("SELECT penstock.fold_stats()") == 1
    assert sql.one("SELECT count(*) FROM penstock.stats_totals") == 0


def test_counts_are_set_right(sql: PlainSql) -> None:
    finalized(sql, "q", 2)
    ids = sql.put("q", *"abcdef")
    sql.reserve("q", 2)
    sql.column("SELECT penstock.bury('q', %s)", ids[:1])
    sql.one("SELECT id FROM penstock.put('q', 'later', now() + interval '1 h')")
    right = {"ready_count": 4, "reserved_count": 1, "buried_count": 1, "scheduled_count": 1, "finalized_count": 2}
    assert sql.stats("q") == right
    sql.connection.execute("UPDATE penstock.stats_totals SET value = value + 7")
    sql.connection.execute("INSERT INTO penstock.stats_deltas VALUES (1, 10, -20, 30, -40, 50)")
    counts = "name, ready_count, reserved_count, scheduled_count, buried_count, finalized_count"
    assert sql.rows(f"SELECT {counts} FROM penstock.update_queue_counts()") == [("q", 4, 1, 1, 1, 2)]
    assert sql.stats("q") == right


def test_counts_are_set_right_exactly_while_others_work(penstock_url: str, sql: PlainSql) -> None:
    sql.connection.execute("INSERT INTO penstock.stats_deltas (queue_id, ready) SELECT penstock.use_queue('q'), 1000")
    stop = threading.Event()

    def work() -> None:
        with PlainSql(penstock_url) as own:
            while not stop.is_set():
                own.put("q", "a", "b")
                own.column("SELECT penstock.finalize_many('q', %s)", own.reserve("q", 1))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        sql.rows("SELECT * FROM penstock.update_queue_counts()")
        sql.rows("SELECT * FROM penstock.sweep()")
    stop.set()
    for thread in threads:
        thread.join()
    truth = {
        "ready_count": sql.one("SELECT count(*) FROM penstock.messages WHERE state = 0"),
        "finalized_count": sql.one("SELECT count(*) FROM penstock.messages_history"),
    }
    assert sql.stats("q") == truth


def test_two_corrections_at_once_correct_once(penstock_url: str, sql: PlainSql) -> None:
    sql.put("q", "x")
    sql.connection.execute("INSERT INTO penstock.stats_deltas (queue_id, ready) VALUES (1, 1000)")
    ready = threading.Barrier(4)

    def correct() -> None:
        with PlainSql(penstock_url) as own:
            ready.wait()
            own.rows("SELECT * FROM penstock.update_queue_counts()")

    threads = [threading.Thread(target=correct) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sql.stats("q") == {"ready_count": 1}


def test_counting_with_an_old_snapshot_is_refused(sql: PlainSql) -> None:
    sql.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(psycopg.Error, match="repeatable read") as raised, sql.connection.transaction():
        sql.rows("SELECT * FROM penstock.update_queue_counts()")
    assert raised.value.diag.message_hint


def test_partitions_of_today_and_the_next_days_are_there_from_the_start(sql: PlainSql) -> None:
    assert sql.column(PARTITIONS) == [sql.one(DAY, ahead) for ahead in range(4)]
    finalized(sql, "q", 3)
    assert sql.one("SELECT count(*) FROM penstock.messages_history_other") == 0
    assert sql.one("SELECT penstock.keep_history()") == 0


def test_a_finalize_never_fails_for_want_of_a_partition(sql: PlainSql) -> None:
    for name in sql.column(PARTITIONS):
        sql.connection.execute(f"DROP TABLE penstock.messages_history_{name}".encode())
    finalized(sql, "q", 2)
    assert sql.one("SELECT count(*) FROM penstock.messages_history_other") == 2
    # Today's rows stay where they are; the days to come get their own.
    assert sql.one("SELECT penstock.keep_history()") == 3
    finalized(sql, "q", 1)
    assert sql.one("SELECT count(*) FROM penstock.messages_history_other") == 3


def test_old_days_are_dropped_and_taken_out_of_the_counts(sql: PlainSql) -> None:
    finalized(sql, "q", 2)
    sql.one("SELECT penstock._make_day((now() AT TIME ZONE 'UTC')::date - 9)")
    sql.one("SELECT penstock._make_day((now() AT TIME ZONE 'UTC')::date - 10)")
    for days in (9, 10, 11):
        sql.connection.execute(
            "INSERT INTO penstock.messages_history (id, queue_id, ready_at, deliveries, state, payload, finalized_at,"
            " xid) VALUES (1, 1, now(), 1, 1, 'x', (now() AT TIME ZONE 'UTC')::date::timestamp AT TIME ZONE 'UTC'"
            " - make_interval(days => %s) + interval '1 hour', '3')",
            (days,),
        )
    sql.rows("SELECT * FROM penstock.update_queue_counts()")
    assert sql.stats("q") == {"finalized_count": 5}
    sql.connection.execute("UPDATE penstock.settings SET history_days = 9")
    assert sql.one("SELECT penstock.keep_history()") == 1
    assert sql.stats("q") == {"finalized_count": 3}
    assert sql.column(PARTITIONS)[0] == sql.one(DAY, -9)
    assert sql.one("SELECT count(*) FROM penstock.messages_history_other") == 0
    sql.connection.execute("UPDATE penstock.settings SET history_days = NULL")
    assert sql.one("SELECT penstock.keep_history()") == 0


def test_a_reader_of_the_history_holds_up_nobody(sql: PlainSql, other: PlainSql) -> None:
    sql.one("SELECT penstock._make_day((now() AT TIME ZONE 'UTC')::date - 50)")
    with other.connection.transaction():
        other.rows("SELECT count(*) FROM penstock.messages_history")
        assert sql.one("SELECT penstock.keep_history()") == 0
        finalized(sql, "q", 1)
    assert sql.one("SELECT penstock.keep_history()") == 1


def test_a_role_that_may_only_use_the_tables_can_do_everything_but_make_partitions(sql: PlainSql) -> None:
    role = "app_" + sql.one("SELECT current_database()")
    sql.connection.execute(f"DROP TABLE penstock.messages_history_{sql.one(DAY, 3)}".encode())
    sql.connection.execute(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA penstock TO {role};"
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA penstock TO {role};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO {role}; SET ROLE {role}".encode(),
        prepare=False,
    )
    finalized(sql, "q", 2)
    assert sql.rows("SELECT returned, partitions FROM penstock.sweep()") == [(0, 0)]
    assert sql.rows("SELECT finalized_count FROM penstock.update_queue_counts()") == [(2,)]
    sql.one("SELECT penstock.drop_queue('q')")
    sql.connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}".encode(), prepare=False)
    assert sql.rows("SELECT partitions FROM penstock.sweep()") == [(1,)]


def test_the_history_is_written_once(sql: PlainSql) -> None:
    finalized(sql, "q", 1)
    today = sql.one(DAY, 0)
    for table in ("messages_history", f"messages_history_{today}"):
        with pytest.raises(psycopg.Error, match="written once"):
            sql.connection.execute(f"UPDATE penstock.{table} SET finalized_note = 'better'".encode())


def test_one_sweep_does_all(sql: PlainSql) -> None:
    sql.put("q", "a")
    sql.column("SELECT penstock.reserve('q', lease => '0')")
    sql.one("SELECT id FROM penstock.put('q', 'later', now() + interval '1 hour')")
    sql.connection.execute("UPDATE penstock.messages SET ready_at = now() WHERE state = 2")
    sql.connection.execute(f"DROP TABLE penstock.messages_history_{sql.one(DAY, 3)}".encode())
    # Five differences: put, reserve, put for later; and those of the sweep itself.
    assert sql.rows("SELECT * FROM penstock.sweep()") == [(1, 1, 5, 1)]
    assert sql.stats("q") == {"ready_count": 2}


def test_while_one_sweeps_another_has_nothing_to_do(sql: PlainSql, other: PlainSql) -> None:
    sql.put("q", "a")
    with other.connection.transaction():
        assert other.rows("SELECT folded FROM penstock.sweep()") == [(1,)]
        sql.put("q", "b")
        assert sql.rows("SELECT * FROM penstock.sweep()") == [(0, 0, 0, 0)]
    assert sql.rows("SELECT folded FROM penstock.sweep()") == [(1,)]


def test_a_walk_that_took_long_is_not_done_again_at_once(sql: PlainSql) -> None:
    sql.put("q", "a")
    sql.column("SELECT penstock.reserve('q', lease => '0')")
    sql.connection.execute(
        "INSERT INTO penstock.upkeep VALUES ('leases', now(), '1 minute'), ('fold', now(), '1 minute')"
    )
    assert sql.rows("SELECT returned, folded FROM penstock.sweep()") == [(0, 0)]
    assert sql.one("SELECT penstock.next_due('q')") is None
    sql.connection.execute("UPDATE penstock.upkeep SET ran_at = now() - interval '20 minutes'")
    assert sql.rows("SELECT returned FROM penstock.sweep()") == [(1,)]
    assert sql.stats("q") == {"ready_count": 1}
    sql.column("SELECT penstock.reserve('q', lease => '1 hour')")
    assert sql.one("SELECT penstock.next_due('q')") is not None


def test_every_function_and_table_says_what_it_is(sql: PlainSql) -> None:
    without = sql.column(
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'penstock'::regnamespace"
        " AND obj_description(p.oid, 'pg_proc') IS NULL"
    )
    assert without == []
