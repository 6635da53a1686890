"""Who is attached, who is taken for gone, and what then becomes of their messages."""

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


def end_backend(by: PlainSql, victim: PlainSql) -> None:
    """End the other's backend, and wait until it is gone."""
    pid = victim.connection.info.backend_pid
    assert by.one("SELECT pg_terminate_backend(%s)", pid)
    while by.one("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid):
        pass


def test_attaching_is_seen_in_the_counts_and_in_the_sessions_name(sql: PlainSql, other: PlainSql) -> None:
    producer = sql.attach("q", "producer")
    assert sql.one("SHOW application_name") == f"penstock producer {producer} q"
    consumer = other.attach("q")
    assert sql.stats("q") == {"producer_count": 1, "consumer_count": 1}
    other.rows("SELECT penstock.detach(%s)", consumer)
    assert sql.stats("q") == {"producer_count": 1}


def test_of_two_who_attach_at_once_both_are_counted(sql: PlainSql, other: PlainSql) -> None:
    sql.attach("q")
    with other.connection.transaction():
        other.attach("q")
        thread = threading.Thread(target=sql.attach, args=("q",))
        thread.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        while not other.one(waits, sql.connection.info.backend_pid):
            other.rows("SELECT pg_stat_clear_snapshot()")
    thread.join()
    assert sql.one("SELECT value FROM penstock.stats_totals WHERE name = 'consumers'") == 3


def test_a_long_name_is_cut_to_63_bytes_by_whole_characters(sql: PlainSql) -> None:
    sql.attach("☃" * 100)
    name = sql.one("SELECT name FROM penstock.participants")
    assert 61 <= len(name.encode()) <= 63
    assert name.endswith("☃")


@pytest.mark.parametrize(
    "arguments", ["'q', 'boss', '0'", "'q', NULL, '0'", "'q', 'consumer', '-1 s'", "'q', 'consumer', '0', '-1 s'"]
)
def test_bad_arguments_are_refused_with_a_hint(sql: PlainSql, arguments: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        sql.rows(f"SELECT penstock.attach({arguments})")
    assert raised.value.diag.message_hint


def test_who_detaches_gives_back_what_it_has_reserved(sql: PlainSql) -> None:
    me, you = sql.attach("q"), sql.attach("q")
    ids = sql.put("q", *"abc")
    sql.reserve("q", 2, me)
    sql.reserve("q", 1, you)
    sql.rows("SELECT penstock.detach(%s)", me)
    sql.rows("SELECT penstock.detach(%s)", me)
    assert sql.stats("q") == {"ready_count": 2, "reserved_count": 1, "consumer_count": 1}
    assert sorted(sql.reserve("q", 5, you)) == ids[:2]


def test_a_backend_that_is_killed_gives_back_what_it_had_reserved(sql: PlainSql, other: PlainSql) -> None:
    me = other.attach("q")
    ids = sql.put("q", *"abc")
    assert other.reserve("q", 2, me) == ids[:2]
    assert sql.one("SELECT penstock.return_orphans()") == 0
    end_backend(sql, other)
    assert sql.one("SELECT penstock.return_orphans()") == 2
    assert sql.stats("q") == {"ready_count": 3}
    assert sql.one("SELECT count(*) FROM penstock.participants") == 0
    assert sql.rows("SELECT id, deliveries FROM penstock.reserve('q', 3)") == [(ids[0], 2), (ids[1], 2), (ids[2], 1)]


def test_a_session_that_holds_its_own_lock_twice_is_not_taken_for_gone_by_itself(sql: PlainSql) -> None:
    me = sql.attach("q")
    sql.put("q", "a")
    sql.reserve("q", 1, me)
    assert sql.one("SELECT penstock.attach('q', 'consumer', '0', NULL, %s)", me) == me
    assert sql.one("SELECT penstock.return_orphans()") == 0
    assert sql.one("SELECT penstock.seen(%s)", me)


def test_within_its_grace_a_number_can_be_taken_up_again(penstock_url: str, sql: PlainSql, other: PlainSql) -> None:
    me = other.attach("q", grace="1 hour")
    ids = sql.put("q", "a")
    assert other.reserve("q", 1, me) == ids
    end_backend(sql, other)
    assert sql.one("SELECT penstock.return_orphans()") == 0
    with PlainSql(penstock_url) as anew:
        assert anew.one("SELECT penstock.attach('q', 'consumer', '0', NULL, %s)", me) == me
        assert anew.one("SHOW application_name") == f"penstock consumer {me} q"
        assert sql.one("SELECT penstock.return_orphans()") == 0
        assert anew.column("SELECT penstock.finalize_many('q', %s, NULL, %s)", ids, me) == ids


def test_a_number_that_is_gone_is_not_given_again(sql: PlainSql, other: PlainSql) -> None:
    me = other.attach("q")
    end_backend(sql, other)
    sql.one("SELECT penstock.return_orphans()")
    assert sql.one("SELECT penstock.seen(%s)", me) is False
    again = sql.one("SELECT penstock.attach('q', 'consumer', '0', NULL, %s)", me)
    assert again > me
    assert sql.one("SELECT penstock.seen(%s)", again)


def test_a_number_is_not_taken_up_for_another_queue_or_role(sql: PlainSql) -> None:
    me = sql.attach("q")
    assert sql.one("SELECT penstock.attach('other', 'consumer', '0', NULL, %s)", me) != me
    assert sql.one("SELECT penstock.attach('q', 'producer', '0', NULL, %s)", me) != me


def test_a_number_whose_lock_is_somebody_elses_is_passed_over(sql: PlainSql, other: PlainSql) -> None:
    upcoming = sql.one("SELECT last_value + 1 FROM penstock.participant_ids")
    key = other.one("SELECT penstock._lock_key(%s)", upcoming)
    other.rows("SELECT pg_advisory_lock(penstock._lock_class(), %s)", key)
    sql.attach("q")
    assert sql.attach("q") > upcoming


def test_a_consumer_that_hangs_loses_its_messages_when_its_lease_is_over(sql: PlainSql, other: PlainSql) -> None:
    me = other.attach("q", lease="1 hour")
    ids = sql.put("q", "a")
    assert other.reserve("q", 1, me) == ids
    assert sql.one("SELECT penstock.return_orphans()") == 0
    sql.connection.execute("UPDATE penstock.participants SET seen_at = now() - interval '1 hour'")
    assert sql.one("SELECT penstock.return_orphans()") == 1
    assert other.one("SELECT penstock.seen(%s)", me) is False
    assert other.column("SELECT penstock.finalize_many('q', %s, NULL, %s)", ids, me) == []
    with pytest.raises(psycopg.Error, match="not attached"):
        other.reserve("q", 1, me)


def test_a_sign_of_life_prolongs_the_lease(sql: PlainSql, other: PlainSql) -> None:
    me = other.attach("q", lease="1 hour")
    sql.connection.execute("UPDATE penstock.participants SET seen_at = now() - interval '1 hour'")
    assert other.one("SELECT penstock.seen(%s)", me)
    assert sql.one("SELECT penstock.return_orphans()") == 0
    assert sql.one("SELECT count(*) FROM penstock.participants") == 1


def test_signs_of_life_in_quick_succession_are_written_once(sql: PlainSql) -> None:
    me = sql.attach("q", lease="1 hour")
    version = "SELECT xmin FROM penstock.participants"
    before = sql.one(version)
    assert sql.one("SELECT penstock.seen(%s)", me)
    assert sql.one(version) == before
    sql.connection.execute("UPDATE penstock.participants SET seen_at = seen_at - interval '6 minutes'")
    before = sql.one(version)
    assert sql.one("SELECT penstock.seen(%s)", me)
    assert sql.one(version) != before


def test_saying_again_that_one_waits_writes_nothing(sql: PlainSql) -> None:
    me = sql.attach("q")
    version = "SELECT xmin, waiting FROM penstock.participants"
    sql.rows("SELECT penstock.set_waiting(%s, true)", me)
    before = sql.rows(version)
    assert before[0][1] is True
    sql.rows("SELECT penstock.set_waiting(%s, true)", me)
    assert sql.rows(version) == before


def test_a_reservation_ends_with_its_own_lease_also_while_its_owner_lives(sql: PlainSql) -> None:
    me = sql.attach("q")
    sql.put("q", "a", "b")
    sql.column("SELECT penstock.reserve('q', 1, %s, '0')", me)
    sql.column("SELECT penstock.reserve('q', 1, %s, '1 hour')", me)
    assert sql.one("SELECT penstock.return_orphans()") == 1
    assert sql.stats("q") == {"ready_count": 1, "reserved_count": 1, "consumer_count": 1}


def test_what_was_reserved_while_its_owner_was_removed_comes_back_too(sql: PlainSql, other: PlainSql) -> None:
    me = other.attach("q")
    sql.put("q", "a")
    with other.connection.transaction():
        other.reserve("q", 1, me)
        sql.rows("SELECT penstock.detach(%s)", me)
    assert sql.stats("q") == {"reserved_count": 1}
    assert sql.one("SELECT penstock.return_orphans()") == 1
    assert sql.stats("q") == {"ready_count": 1}


def test_a_message_that_is_just_being_finalized_is_not_waited_for(sql: PlainSql, other: PlainSql) -> None:
    ids = sql.put("q", "a")
    other.column("SELECT penstock.reserve('q', lease => '0')")
    with other.connection.transaction():
        other.column("SELECT penstock.finalize_many('q', %s)", ids)
        assert sql.one("SELECT penstock.return_orphans()") == 0
    assert sql.stats("q") == {"finalized_count": 1}


def test_counting_participants_removes_the_gone(sql: PlainSql, other: PlainSql) -> None:
    other.attach("q")
    sql.attach("q", "producer")
    end_backend(sql, other)
    counted = sql.rows("SELECT name, producer_count, consumer_count FROM penstock.update_participant_counts()")
    assert counted == [("q", 1, 0)]


def test_two_schemas_in_one_database_do_not_take_each_others_locks_for_their_own(
    penstock_url: str, sql: PlainSql, other: PlainSql
) -> None:
    from penstock.pg.install import install

    install(sql.connection, "second")
    other.rows("SELECT second.attach('q', 'consumer', '0')")
    me = sql.attach("q")
    assert me == other.one("SELECT id FROM second.participants")
    sql.close()
    with PlainSql(penstock_url) as third:
        pid = other.connection.info.backend_pid
        while third.one(
            "SELECT count(*) FROM pg_stat_activity WHERE pid NOT IN (%s, pg_backend_pid())"
            " AND datname = current_database() AND backend_type = 'client backend'",
            pid,
        ):
            pass
        third.one("SELECT penstock.return_orphans()")
        third.one("SELECT second.return_orphans()")
        assert third.one("SELECT count(*) FROM penstock.participants") == 0
        assert third.one("SELECT count(*) FROM second.participants") == 1
