"""What a hostile look at the SQL has found: foreign functions, circles of locks, sweeps that one bad day stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.postgres.plain_sql import PlainSql
from tests.postgres_server import wait_until

# Each would fit better than PostgreSQL's own, which is of any type or has to cast, and is found in the caller's path.
FOREIGN_FUNCTIONS = (
    ("format(text, text)", "text"),
    ("format(text, text, bigint, text)", "text"),
    ("format(text, text, timestamptz, timestamptz)", "text"),
    ("to_char(date, text)", "text"),
    ("unnest(bytea[])", "SETOF bytea"),
    ("unnest(integer[])", "SETOF integer"),
    ("unnest(bigint[])", "SETOF bigint"),
    ("cardinality(bytea[])", "integer"),
    ("cardinality(integer[])", "integer"),
    ("array_position(bytea[], bytea)", "integer"),
    ("nextval(text)", "bigint"),
    ("convert_to(text, text)", "bytea"),
)
FOREIGN_OPERATORS = (
    ("*", "float8", "bigint"),
    ("*", "integer", "interval"),
    ("/", "interval", "integer"),
    ("%", "bigint", "integer"),
    ("&", "bigint", "integer"),
    ("||", "text", "bigint"),
)
BODY = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'somebody else''s function was called'; END $$"


@pytest.fixture
def sql(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as connection:
        yield connection


@pytest.fixture
def other(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as connection:
        yield connection


class Background:
    """A statement on a connection of its own, on a thread."""

    def __init__(self, url: str, query: str) -> None:
        self.answer: Any = None
        self.error: Exception | None = None
        self._sql = PlainSql(url)
        self.pid = self._sql.connection.info.backend_pid
        self._thread = threading.Thread(target=self._run, args=(query,))
        self._thread.start()

    def _run(self, query: str) -> None:
        try:
            self.answer = self._sql.one(query)
        except Exception as error:
            self.error = error
        finally:
            self._sql.close()

    def result(self) -> Any:
        self._thread.join()
        assert self.error is None
        return self.answer

    def waits(self, sql: PlainSql) -> bool:
        return bool(sql.one("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)", self.pid))


def make_foreign(sql: PlainSql) -> None:
    for signature, returned in FOREIGN_FUNCTIONS:
        sql.connection.execute(f"CREATE FUNCTION public.{signature} RETURNS {returned} {BODY}".encode())
    for number, (name, left, right) in enumerate(FOREIGN_OPERATORS):
        function = f"public.foreign_{number}"
        sql.connection.execute(f"CREATE FUNCTION {function}({left}, {right}) RETURNS {left} {BODY}".encode())
        sql.connection.execute(
            f"CREATE OPERATOR public.{name} (FUNCTION = {function}, LEFTARG = {left}, RIGHTARG = {right})".encode()
        )


def test_no_function_that_somebody_has_put_into_public_is_called_by_ours(sql: PlainSql) -> None:
    make_foreign(sql)
    sql.put("q", "a")
    sql.connection.execute("SELECT penstock.put_many('q', %s)", ([b"b", b"c", b"d"],))
    queue_id = sql.one("SELECT penstock.use_queue('q')")
    rows = "SELECT penstock.put_rows(ARRAY[%s::int], ARRAY['e']::bytea[], '{x}', '{x}', '{x}', '{NULL}', '{0}')"
    sql.column(rows, queue_id)
    sql.put("a name that is too long for a channel of its own, which has 63 bytes", "x")
    consumer = sql.attach("q", lease="1 hour")
    sql.column("SELECT penstock.fold_stats()")
    first, second, third = sql.reserve("q", 3, consumer)
    sql.column("SELECT penstock.finalize_many('q', ARRAY[%s::bigint], 'done', %s)", first, consumer)
    sql.column("SELECT penstock.requeue('q', ARRAY[%s::bigint], %s, '1 s')", second, consumer)
    sql.column("SELECT penstock.bury('q', ARRAY[%s::bigint], 'why', %s)", third, consumer)
    sql.column("SELECT penstock.kick('q')")
    sql.column("SELECT penstock.browse('q', 0, 10, 100)")
    sql.column("SELECT penstock.next_due('q')")
    sql.column("SELECT penstock.seen(%s)", consumer)
    sql.column("SELECT penstock.update_queue_counts()")
    sql.column("SELECT penstock.update_participant_counts()")
    sql.connection.execute("INSERT INTO penstock.upkeep VALUES ('leases', now(), '1 day'), ('fold', now(), '1 day')")
    day = sql.one("SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhrelid::regclass::text ~ '[0-9]{8}$'")
    sql.connection.execute(f"DROP TABLE {day}".encode())
    assert sql.rows("SELECT partitions FROM penstock.sweep()") == [(1,)]
    sql.column("SELECT penstock.detach(%s)", consumer)
    sql.column("SELECT penstock.drop_queue('q')")


def test_dropping_a_queue_and_folding_its_counts_do_not_wait_for_each_other_in_a_circle(
    sql: PlainSql, other: PlainSql, penstock_url: str
) -> None:
    sql.put("q", "a", "b")
    sql.column("SELECT penstock.fold_stats()")
    sql.put("q", "c", "d", "e")
    # One of the differences is held, so that whoever drops the queue has to wait there.
    with other.connection.transaction():
        other.rows("SELECT * FROM penstock.stats_deltas LIMIT 1 FOR UPDATE")
        dropping = Background(penstock_url, "SELECT penstock.drop_queue('q')")
        wait_until(lambda: dropping.waits(sql))
        folding = Background(penstock_url, "SELECT penstock.fold_stats()")
        wait_until(lambda: folding.answer is not None or folding.error is not None or folding.waits(sql))
    assert dropping.result() == 5
    folding.result()
    assert sql.column("SELECT name FROM penstock.queues") == []


def test_a_day_of_the_history_that_somebody_has_detached_does_not_stop_the_sweep(sql: PlainSql) -> None:
    day = sql.one("SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhrelid::regclass::text ~ '[0-9]{8}$'")
    sql.connection.execute(f"ALTER TABLE penstock.messages_history DETACH PARTITION {day}".encode())
    sql.connection.execute("SELECT id FROM penstock.put('q', 'x', now() - interval '1 s')")
    sql.rows("SELECT * FROM penstock.reserve('q', lease => '0')")
    assert sql.rows("SELECT returned, partitions FROM penstock.sweep()") == [(1, 0)]


def test_an_old_day_that_somebody_has_a_view_on_does_not_stop_the_sweep(sql: PlainSql) -> None:
    sql.connection.execute(
        "CREATE TABLE penstock.messages_history_20200101 PARTITION OF penstock.messages_history"
        " FOR VALUES FROM ('2020-01-01 00:00+0') TO ('2020-01-02 00:00+0')"
    )
    sql.connection.execute("CREATE VIEW public.archive AS SELECT * FROM penstock.messages_history_20200101")
    sql.put("q", "x")
    sql.rows("SELECT * FROM penstock.reserve('q', lease => '0')")
    assert sql.rows("SELECT returned, partitions FROM penstock.sweep()") == [(1, 0)]
    sql.connection.execute("DROP VIEW public.archive")
    assert sql.rows("SELECT partitions FROM penstock.sweep()") == [(1,)]


def test_a_quick_reservation_does_not_weaken_what_its_transaction_writes_afterwards(sql: PlainSql) -> None:
    (message_id,) = sql.put("q", "a")
    sql.connection.execute("SET synchronous_commit = on")
    with sql.connection.transaction():
        assert sql.column("SELECT id FROM penstock.reserve('q', quick => true)") == [message_id]
        assert sql.one("SELECT current_setting('synchronous_commit')") == "on"


def test_who_leaves_a_queue_that_was_dropped_leaves_no_counts_of_it_behind(sql: PlainSql, other: PlainSql) -> None:
    consumer = sql.attach("q")
    queue_id = sql.one("SELECT penstock.use_queue('q')")
    other.one("SELECT penstock.drop_queue('q')")
    # As it is for who had found the queue before it was dropped.
    sql.column("SELECT penstock._count_participants(%s)", queue_id)
    sql.column("SELECT penstock.detach(%s)", consumer)
    assert sql.rows("SELECT * FROM penstock.stats_totals") == []
    sql.connection.execute("INSERT INTO penstock.stats_totals VALUES (%s, 'ready', 1)", (queue_id,))
    sql.column("SELECT penstock.update_queue_counts()")
    assert sql.rows("SELECT * FROM penstock.stats_totals") == []


def test_a_queue_is_dropped_although_somebody_settles_its_messages_in_another_order(
    sql: PlainSql, other: PlainSql, penstock_url: str
) -> None:
    first, second = sql.put("q", "a", "b")
    # In the table the second one now stands before the first.
    for message_id in (second, first):
        sql.rows("SELECT * FROM penstock.reserve_ids('q', ARRAY[%s::bigint], NULL)", message_id)
    # Whoever drops the queue is to be the one who has to give way.
    other.connection.execute("SET deadlock_timeout = '60s'")
    with other.connection.transaction():
        other.one("SELECT penstock.finalize('q', %s)", first)
        dropping = Background(f"{penstock_url}&options=-cdeadlock_timeout%3D2s", "SELECT penstock.drop_queue('q')")
        wait_until(lambda: dropping.waits(sql))
        other.one("SELECT penstock.finalize('q', %s)", second)
    assert dropping.result() == 0
    assert sql.rows("SELECT FROM penstock.messages") == []
    assert len(sql.rows("SELECT FROM penstock.messages_history")) == 2


def test_nothing_is_put_by_number_into_a_queue_that_was_dropped_since_the_transaction_began(
    sql: PlainSql, other: PlainSql
) -> None:
    queue_id = sql.one("SELECT penstock.use_queue('q')")
    rows = "SELECT penstock.put_rows(ARRAY[%s::int], ARRAY['e']::bytea[], '{x}', '{x}', '{x}', '{NULL}', '{0}')"
    sql.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with sql.connection.transaction(force_rollback=True):
        assert sql.one("SELECT count(*) FROM penstock.queues") == 1
        other.one("SELECT penstock.drop_queue('q')")
        with pytest.raises(psycopg.errors.SerializationFailure):
            sql.column(rows, queue_id)
    assert other.rows("SELECT FROM penstock.messages") == []


def test_a_queue_is_not_dropped_by_who_cannot_see_all_its_messages(sql: PlainSql, other: PlainSql) -> None:
    other.one("SELECT penstock.use_queue('q')")
    sql.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with sql.connection.transaction(force_rollback=True):
        assert sql.one("SELECT count(*) FROM penstock.queues") == 1
        other.put("q", "x")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            sql.one("SELECT penstock.drop_queue('q')")
    assert other.one("SELECT penstock.drop_queue('q')") == 1
    assert other.rows("SELECT FROM penstock.messages") == []
