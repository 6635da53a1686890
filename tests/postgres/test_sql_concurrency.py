"""Many at once: no message twice, none lost, counts exact, whatever is killed meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest

from tests.postgres.plain_sql import PlainSql

PRODUCERS = 3
EACH = 200
ALL = PRODUCERS * EACH


def run_all(tasks: list[Callable[[], None]]) -> None:
    """Run them at once; the first error is raised here."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Crowd:
    """Producers and consumers of queue "q", each with a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lock = threading.Lock()
        self.taken: Counter[int] = Counter()
        self.done = threading.Event()

    def produce(self) -> None:
        with PlainSql(self.url) as sql:
            for number in range(0, EACH, 4):
                sql.put("q", "single")
                sql.column("SELECT penstock.put_many('q', %s)", [b"many"] * 2)
                with sql.connection.transaction():
                    sql.put("q", "in a transaction")
                with sql.connection.transaction(force_rollback=number % 8 == 0):
                    sql.put("q", "taken back half the time")

    def take(self, ids: list[int]) -> None:
        with self.lock:
            self.taken.update(ids)
            if len(self.taken) == ALL + PRODUCERS * EACH // 8:
                self.done.set()

    def consume(self) -> None:
        with PlainSql(self.url) as sql:
            me = sql.attach("q")
            ids: list[int] = []
            while not self.done.is_set():
                sql.column("SELECT penstock.finalize_many('q', %s, 'done', %s)", ids, me)
                ids = sql.reserve("q", 7, me)
                self.take(ids)
            sql.column("SELECT penstock.finalize_many('q', %s, 'done', %s)", ids, me)

    def consume_one_by_one(self) -> None:
        with PlainSql(self.url) as sql:
            me = sql.attach("q")
            ids: list[int] = []
            step = "SELECT id FROM penstock.finalize_and_reserve('q', %s, 'done', 1, %s, NULL)"
            while not self.done.is_set():
                ids = sql.column(step, ids, me)
                self.take(ids)
            sql.column("SELECT penstock.finalize_many('q', %s, 'done', %s)", ids, me)

    def sweep(self) -> None:
        with PlainSql(self.url) as sql:
            while not self.done.is_set():
                sql.rows("SELECT * FROM penstock.sweep()")


@pytest.mark.parametrize("ordering", ["fuzzy", "strict"])
def test_no_message_is_given_twice_and_none_is_lost(penstock_url: str, ordering: str) -> None:
    with PlainSql(penstock_url) as sql:
        sql.one("SELECT penstock.use_queue('q', %s)", ordering)
        crowd = Crowd(penstock_url)
        run_all(
            [crowd.produce] * PRODUCERS + [crowd.consume] * 2 + [crowd.consume_one_by_one] * 2 + [crowd.sweep] * 2,
        )
        expected = ALL + PRODUCERS * EACH // 8
        assert set(crowd.taken.values()) == {1}
        assert sql.column("SELECT id FROM penstock.messages_history ORDER BY id") == sorted(crowd.taken)
        while sql.one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"):
            pass
        sql.one("SELECT penstock.return_orphans()")
        assert sql.stats("q") == {"finalized_count": expected}
        sql.rows("SELECT * FROM penstock.update_queue_counts()")
        assert sql.stats("q") == {"finalized_count": expected}


def test_consumers_that_are_killed_again_and_again_lose_nothing(penstock_url: str) -> None:
    finished: Counter[int] = Counter()
    lock = threading.Lock()
    done = threading.Event()

    def consume() -> None:
        while not done.is_set():
            try:
                with PlainSql(penstock_url) as own:
                    me = own.attach("q")
                    while not done.is_set():
                        own.rows("SELECT * FROM penstock.sweep()")
                        ids = own.column(
                            "SELECT penstock.finalize_many('q', %s, NULL, %s)", own.reserve("q", 3, me), me
                        )
                        with lock:
                            finished.update(ids)
            except psycopg.OperationalError:
                continue

    def put_and_kill() -> None:
        with PlainSql(penstock_url) as own:
            while killed.total() < 10:
                ids.extend(own.column("SELECT penstock.put_many('q', %s)", [b"x"] * 30))
                victims = "SELECT pid FROM penstock.participants ORDER BY random() LIMIT 1"
                hit = own.rows(f"SELECT v.pid FROM ({victims}) AS v WHERE pg_terminate_backend(v.pid)")
                killed.update([pid for (pid,) in hit])
            while own.one("SELECT count(*) FROM penstock.messages"):
                own.rows("SELECT * FROM penstock.sweep()")
            done.set()

    ids: list[int] = []
    killed: Counter[int] = Counter()
    run_all([consume] * 3 + [put_and_kill])
    # What was finalized at the very moment of the kill is in the history, though nobody was told.
    assert set(finished.values()) == {1}
    assert set(finished) <= set(ids)
    with PlainSql(penstock_url) as sql:
        assert sql.column("SELECT id FROM penstock.messages_history ORDER BY id") == ids
        counts = sql.rows("SELECT ready_count, reserved_count, finalized_count FROM penstock.queue_stats")
        assert counts == [(0, 0, len(ids))]


def test_with_a_floor_a_reserve_does_not_walk_over_the_dead_that_an_old_snapshot_keeps(penstock_url: str) -> None:
    with PlainSql(penstock_url) as sql, psycopg.connect(penstock_url) as pin:
        pin.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        pin.execute("SELECT 1")
        ids = sql.column("SELECT penstock.put_many('q', %s)", [b"x" * 1000] * 1000)
        sql.column("SELECT penstock.finalize_many('q', %s)", sql.reserve("q", 990))
        plan = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT penstock.reserve('q', 1, floor => %s)"

        def pages(floor: int) -> int:
            with sql.connection.transaction(force_rollback=True):
                return int(sql.one(plan, floor)[0]["Plan"]["Shared Hit Blocks"])

        # Once for the plans that are made at the first use.
        pages(0)
        assert pages(ids[990]) + 100 < pages(0)
