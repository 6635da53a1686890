"""finalize, requeue, bury, kick, touch, purge and drop_queue."""

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


def test_a_finalized_message_is_in_the_history_with_its_note(sql: PlainSql) -> None:
    me = sql.attach("q")
    (number,) = sql.put("q", "x")
    sql.reserve("q", 1, me)
    sql.rows("SELECT penstock.finalize('q', %s, 'done well', %s)", number, me)
    kept = sql.rows(
        "SELECT id, payload, finalized_note, deliveries, owner, finalized_at >= reserved_at,"
        " pg_visible_in_snapshot(xid, pg_current_snapshot()) FROM penstock.messages_history"
    )
    assert kept == [(number, b"x", "done well", 1, me, True, True)]
    assert sql.column("SELECT id FROM penstock.messages") == []
    assert sql.stats("q") == {"finalized_count": 1, "consumer_count": 1}


def test_finalize_returns_the_row_of_the_history(sql: PlainSql) -> None:
    me = sql.attach("q")
    sql.put("q", "x")
    (number,) = sql.reserve("q", 1, me)
    done = sql.rows("SELECT * FROM penstock.finalize('q', %s, 'sent', %s)", number, me)
    assert done == sql.rows("SELECT * FROM penstock.messages_history")
    assert sql.rows("SELECT id, payload, finalized_note FROM penstock.messages_history") == [(number, b"x", "sent")]


@pytest.mark.parametrize(
    ("consumer", "words"),
    [(None, "is not reserved, or a consumer has reserved it"), (4711, "is not reserved by consumer 4711")],
)
def test_who_cannot_finalize_is_told_why(sql: PlainSql, consumer: int | None, words: str) -> None:
    me = sql.attach("q")
    sql.put("q", "x")
    (number,) = sql.reserve("q", 1, me)
    with pytest.raises(psycopg.errors.NoDataFound, match=words) as raised:
        sql.rows("SELECT penstock.finalize('q', %s, NULL, %s)", number, consumer)
    assert "consumer => NUMBER" in str(raised.value.diag.message_hint)


def test_only_the_owner_can_settle_and_only_in_the_right_queue(sql: PlainSql) -> None:
    me, you = sql.attach("q"), sql.attach("q")
    ids = sql.put("q", "x")
    assert sql.reserve("q", 1, me) == ids
    for owner, queue in ((you, "q"), (None, "q"), (me, "other"), (me, "nowhere")):
        sql.one("SELECT penstock.use_queue('other')")
        assert sql.column("SELECT penstock.finalize_many(%s, %s, NULL, %s)", queue, ids, owner) == []
        assert sql.column("SELECT penstock.requeue(%s, %s, %s)", queue, ids, owner) == []
        assert sql.column("SELECT penstock.bury(%s, %s, NULL, %s)", queue, ids, owner) == []
        assert sql.column("SELECT penstock.touch(%s, %s, '1 s', %s)", queue, ids, owner) == []
        with pytest.raises(psycopg.errors.NoDataFound, match="not reserved"):
            sql.rows("SELECT penstock.finalize(%s, %s, NULL, %s)", queue, ids[0], owner)
    assert sql.stats("q") == {"reserved_count": 1, "consumer_count": 2}
    assert sql.column("SELECT penstock.finalize_many('q', %s, NULL, %s)", ids, me) == ids


def test_ids_that_do_not_fit_are_left_out(sql: PlainSql) -> None:
    ids = sql.put("q", *"abcd")
    sql.reserve("q", 3)
    asked = [ids[2], ids[0], ids[0], ids[3], 4711]
    assert sql.column("SELECT penstock.finalize_many('q', %s)", asked) == [ids[0], ids[2]]
    assert sql.column("SELECT penstock.finalize_many('q', %s)", asked) == []
    assert sql.stats("q") == {"ready_count": 1, "reserved_count": 1, "finalized_count": 2}


def test_finalizing_and_reserving_in_one_call_goes_on_with_the_next(sql: PlainSql) -> None:
    me = sql.attach("q")
    ids = sql.put("q", *"abcd")
    step = "SELECT id FROM penstock.finalize_and_reserve('q', %s, 'n', 2, %s, '1 minute', 0)"
    assert sql.column(step, [], me) == ids[:2]
    assert sql.column(step, ids[:2], me) == ids[2:]
    assert sql.column(step, ids[2:], me) == []
    assert sql.stats("q") == {"finalized_count": 4, "consumer_count": 1}
    assert sql.one("SELECT count(*) FROM penstock.messages_history WHERE reserved_until IS NOT NULL") == 4


def test_a_message_that_is_given_back_has_its_old_place(sql: PlainSql) -> None:
    ids = sql.put("q", *"abc")
    sql.reserve("q", 2)
    assert sql.column("SELECT penstock.requeue('q', %s, note => 'not today')", [ids[0]]) == [ids[0]]
    assert sql.rows("SELECT id, deliveries, note FROM penstock.reserve('q', 5)") == [
        (ids[0], 2, "not today"),
        (ids[2], 1, None),
    ]


def test_a_message_that_nobody_looked_at_is_not_counted_as_delivered(sql: PlainSql) -> None:
    ids = sql.put("q", "a")
    sql.reserve("q")
    sql.column("SELECT penstock.requeue('q', %s, seen => false)", ids)
    assert sql.column("SELECT deliveries FROM penstock.reserve('q')") == [1]


def test_a_delay_makes_it_scheduled(sql: PlainSql) -> None:
    ids = sql.put("q", "a")
    sql.reserve("q")
    assert sql.column("SELECT penstock.requeue('q', %s, delay => '1 hour')", ids) == ids
    assert sql.stats("q") == {"scheduled_count": 1}
    assert sql.reserve("q") == []
    sql.connection.execute("UPDATE penstock.messages SET ready_at = now()")
    assert sql.one("SELECT penstock.promote_due()") == 1
    assert sql.stats("q") == {"ready_count": 1}


def test_buried_messages_stay_until_they_are_kicked_oldest_first(sql: PlainSql) -> None:
    ids = sql.put("q", *"abc")
    sql.reserve("q", 3)
    assert sql.column("SELECT penstock.bury('q', %s, 'broken')", ids) == ids
    assert sql.stats("q") == {"buried_count": 3}
    assert sql.reserve("q") == []
    assert sql.one("SELECT penstock.kick('q', 2)") == 2
    assert sql.stats("q") == {"buried_count": 1, "ready_count": 2}
    assert sql.rows("SELECT id, note FROM penstock.reserve('q', 5)") == [(ids[0], "broken"), (ids[1], "broken")]
    assert sql.one("SELECT penstock.kick('q', 10)") == 1
    assert sql.one("SELECT penstock.kick('nowhere')") == 0


def test_a_touched_reservation_lasts_longer(sql: PlainSql) -> None:
    ids = sql.put("q", "a")
    sql.column("SELECT penstock.reserve('q', lease => '0')")
    assert sql.column("SELECT penstock.touch('q', %s, '1 hour')", ids) == ids
    assert sql.one("SELECT penstock.return_orphans()") == 0
    assert sql.one("SELECT penstock.next_due('q') > now() + interval '59 minutes'")


@pytest.mark.parametrize(
    "call",
    [
        "requeue('q', '{1}', NULL, '-1 s')",
        "touch('q', '{1}', '-1 s')",
        "touch('q', '{1}', NULL)",
        "kick('q', 0)",
        "kick('q', 10001)",
        "browse('q', 0, 0, 1)",
        "finalize('q', 1)",
        "finalize('nowhere', 1)",
    ],
)
def test_bad_arguments_are_refused_with_a_hint(sql: PlainSql, call: str) -> None:
    sql.put("q", "x")
    with pytest.raises(psycopg.Error) as raised:
        sql.rows(f"SELECT penstock.{call}")
    assert raised.value.diag.message_hint


def test_a_finalize_that_is_rolled_back_leaves_the_message_reserved(sql: PlainSql) -> None:
    ids = sql.put("q", "a")
    sql.reserve("q")
    with sql.connection.transaction(force_rollback=True):
        sql.rows("SELECT penstock.finalize('q', %s)", ids[0])
    assert sql.stats("q") == {"reserved_count": 1}
    assert sql.column("SELECT penstock.finalize_many('q', %s)", ids) == ids


def test_purging_takes_the_ready_ones_and_leaves_what_others_are_taking(sql: PlainSql, other: PlainSql) -> None:
    sql.put("q", *"abcde")
    sql.one("SELECT id FROM penstock.put('q', 'later', now() + interval '1 h')")
    sql.reserve("q")
    with other.connection.transaction(force_rollback=True):
        other.reserve("q")
        assert sql.one("SELECT penstock.purge('q')") == 3
    assert sql.stats("q") == {"ready_count": 1, "reserved_count": 1, "scheduled_count": 1}
    assert sql.one("SELECT penstock.count_ready('q')") == 1
    assert sql.one("SELECT penstock.purge('nowhere')") == 0
    assert sql.column("SELECT id FROM penstock.messages_history") == []


def test_a_dropped_queue_takes_messages_of_all_states_with_it(sql: PlainSql) -> None:
    sql.put("kept", "x")
    ids = sql.put("q", *"abc")
    sql.one("SELECT id FROM penstock.put('q', 'later', now() + interval '1 h')")
    sql.reserve("q", 2)
    sql.column("SELECT penstock.bury('q', %s)", ids[:1])
    assert sql.one("SELECT penstock.drop_queue('q')") == 4
    assert sql.one("SELECT penstock.drop_queue('q')") is None
    assert sql.column("SELECT name FROM penstock.queue_stats") == ["kept"]
    assert sql.one("SELECT count(*) FROM penstock.messages") == 1
    sql.put("q", "new")
    assert sql.stats("q") == {"ready_count": 1}


@pytest.mark.parametrize("isolation", [psycopg.IsolationLevel.READ_COMMITTED, psycopg.IsolationLevel.REPEATABLE_READ])
def test_a_queue_is_not_dropped_under_a_put_that_is_not_committed(
    sql: PlainSql, other: PlainSql, isolation: psycopg.IsolationLevel
) -> None:
    sql.one("SELECT penstock.use_queue('q')")
    sql.connection.isolation_level = isolation
    dropped: list[int] = []
    with sql.connection.transaction():
        sql.put("q", "x")
        thread = threading.Thread(target=lambda: dropped.append(other.one("SELECT penstock.drop_queue('q')")))
        thread.start()
        with psycopg.connect(sql.connection.info.dsn, autocommit=True) as third:
            waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            while third.execute(waits, (other.connection.info.backend_pid,)).fetchone() == (0,):
                pass
    thread.join()
    assert dropped == [1]
    assert sql.one("SELECT count(*) FROM penstock.messages") == 0


def test_a_snapshot_from_before_the_drop_cannot_put(sql: PlainSql, other: PlainSql) -> None:
    sql.one("SELECT penstock.use_queue('q')")
    sql.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with sql.connection.transaction(force_rollback=True):
        sql.one("SELECT 1")
        other.one("SELECT penstock.drop_queue('q')")
        with pytest.raises(psycopg.errors.SerializationFailure):
            sql.put("q", "x")
    assert other.one("SELECT count(*) FROM penstock.messages") == 0
