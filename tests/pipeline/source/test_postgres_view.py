"""Finished messages of queues in PostgreSQL: by transactions, each once, whatever commits late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from penstock.pipeline.source import postgres
from penstock.pipeline.source.options import OptionError, read_options
from penstock.pipeline.source.postgres import PostgresReader, PostgresStreamReader
from penstock.pipeline.source.shape import spark_schema
from tests.postgres_server import wait_until

SCHEMA = spark_schema("postgres")
StreamOf = Callable[..., PostgresStreamReader]


@pytest.fixture
def plain(penstock_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(penstock_url, autocommit=True) as connection:
        connection.execute("SELECT penstock.use_queue('orders'), penstock.use_queue('other')")
        yield connection


def finish(connection: psycopg.Connection, count: int, queue: str = "orders", note: str | None = None) -> list[int]:
    """Put so many messages and finalize them, in the connection's transaction; their ids."""
    for number in range(count):
        connection.execute("SELECT penstock.put(%s, %s)", (queue, b"body %d" % number))
    reserved = connection.execute("SELECT id FROM penstock.reserve(%s, %s, NULL, '1 min')", (queue, count)).fetchall()
    ids = [row[0] for row in reserved]
    assert len(ids) == count
    connection.execute("SELECT penstock.finalize_many(%s, %s, %s)", (queue, ids, note))
    return sorted(ids)


def wait_for_readers(connection: psycopg.Connection) -> None:
    """Until all that is committed can be read: a transaction of the server's own may hold it back for a moment."""
    query = "SELECT coalesce(max(xid) < pg_snapshot_xmin(pg_current_snapshot()), true) FROM penstock.messages_history"
    wait_until(lambda: (connection.execute(query.encode()).fetchone() or (False,))[0])


@pytest.fixture
def stream_of(penstock_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamOf]:
    """Makes stream readers, which see at once what is new, and stops them."""
    monkeypatch.setattr(postgres, "ASK_DATABASE_S", 0.0)
    with ExitStack() as made:

        def make(**options: str) -> PostgresStreamReader:
            given = {"view": "postgres", "url": penstock_url, **options}
            reader = PostgresStreamReader(read_options(given), SCHEMA)
            made.callback(reader.stop)
            return reader

        yield make


def read_between(reader: PostgresStreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    """Ids of all rows of a batch, as its tasks read them."""
    found = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += batch.column("id").to_pylist()
    return sorted(found)


def test_a_batch_has_every_column(plain: psycopg.Connection, penstock_url: str) -> None:
    ids = finish(plain, 3, note="done")
    wait_for_readers(plain)
    reader = PostgresReader(read_options({"view": "postgres", "url": penstock_url}), SCHEMA)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(row["id"] for row in rows) == ids
    assert {row["body"] for row in rows} == {b"body 0", b"body 1", b"body 2"}
    assert {(row["queue"], row["note"], row["deliveries"]) for row in rows} == {("orders", "done", 1)}
    known = plain.execute(
        "SELECT id, xid::text::bigint, finalized_at, ready_at FROM penstock.messages_history"
    ).fetchall()
    assert {row["id"]: (row["xid"], row["finalized_at"], row["ready_at"]) for row in rows} == {
        row[0]: row[1:] for row in known
    }


def test_the_parts_of_a_batch_are_read_apart(plain: psycopg.Connection, penstock_url: str) -> None:
    ids = finish(plain, 7)
    wait_for_readers(plain)
    reader = PostgresReader(read_options({"view": "postgres", "url": penstock_url, "partitions": "3"}), SCHEMA)
    parts = [[i for batch in reader.read(part) for i in batch.column("id").to_pylist()] for part in reader.partitions()]
    assert len(parts) == 3
    assert all(parts)
    assert sorted(i for part in parts for i in part) == ids


def test_rows_come_in_the_same_order_each_time(plain: psycopg.Connection, penstock_url: str) -> None:
    first, second = finish(plain, 6), finish(plain, 3)
    # They stand in another order in the table now: something that history does not allow to others.
    plain.execute("SET session_replication_role = replica")
    plain.execute("UPDATE penstock.messages_history SET note = note WHERE id = ANY(%s)", (first[1:3],))
    wait_for_readers(plain)
    given = {"view": "postgres", "url": penstock_url, "partitions": "1"}
    for schema in (SCHEMA, StructType([SCHEMA["body"], SCHEMA["id"]])):
        reader = PostgresReader(read_options(given), schema)
        found = [i for part in reader.partitions() for batch in reader.read(part) for i in batch["id"].to_pylist()]
        assert found == first + second


def test_a_queue_that_was_dropped_is_known_by_its_number(plain: psycopg.Connection, penstock_url: str) -> None:
    finish(plain, 1)
    (number,) = plain.execute("SELECT id FROM penstock.queues WHERE name = 'orders'").fetchone() or (None,)
    plain.execute("SELECT penstock.drop_queue('orders')")
    finish(plain, 1, queue="other")
    wait_for_readers(plain)

    def queues(**options: str) -> list[str]:
        reader = PostgresReader(read_options({"view": "postgres", "url": penstock_url, **options}), SCHEMA)
        return [
            q for part in reader.partitions() for batch in reader.read(part) for q in batch.column("queue").to_pylist()
        ]

    assert sorted(queues()) == sorted([str(number), "other"])
    assert queues(queue=str(number)) == [str(number)]
    assert queues(queue="other") == ["other"]
    assert queues(queue="nobody's") == []


def test_bodies_are_left_out_when_they_are_not_wanted(plain: psycopg.Connection, penstock_url: str) -> None:
    finish(plain, 2)
    wait_for_readers(plain)
    reader = PostgresReader(read_options({"view": "postgres", "url": penstock_url, "bodies": "false"}), SCHEMA)
    bodies = [
        b for part in reader.partitions() for batch in reader.read(part) for b in batch.column("body").to_pylist()
    ]
    assert bodies == [None, None]


def test_a_row_that_commits_late_is_not_lost(plain: psycopg.Connection, penstock_url: str, stream_of: StreamOf) -> None:
    reader = stream_of()
    start = reader.initialOffset()
    with psycopg.connect(penstock_url) as slow:
        # A has its transaction id before B, and commits after B was read.
        late = finish(slow, 2)
        early = finish(plain, 3, queue="other")
        between = reader.latestOffset(start, ReadAllAvailable())
        first = read_between(reader, start, between)
        slow.commit()
    wait_for_readers(plain)
    end = reader.latestOffset(between, ReadAllAvailable())
    second = read_between(reader, between, end)
    assert sorted(first + second) == sorted(late + early)
    assert not set(late) & set(first)
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_what_was_rolled_back_is_never_read(plain: psycopg.Connection, penstock_url: str, stream_of: StreamOf) -> None:
    reader = stream_of()
    with psycopg.connect(penstock_url) as slow:
        finish(slow, 2)
        slow.rollback()
    kept = finish(plain, 1)
    wait_for_readers(plain)
    end = reader.latestOffset({"xid": 0}, ReadAllAvailable())
    assert read_between(reader, {"xid": 0}, end) == kept


def test_a_trigger_ends_between_transactions(plain: psycopg.Connection, stream_of: StreamOf) -> None:
    with plain.transaction():
        large = finish(plain, 5)
    for _ in range(4):
        with plain.transaction():
            finish(plain, 2)
    wait_for_readers(plain)
    reader = stream_of(maxrecordspertrigger="3")
    assert reader.getDefaultReadLimit() == ReadMaxRows(3)
    offset, sizes, found = reader.initialOffset(), [], []
    while (after := reader.latestOffset(offset, ReadMaxRows(3))) != offset:
        batch = read_between(reader, offset, after)
        sizes.append(len(batch))
        found += batch
        offset = after
    # The first transaction is larger than the limit, and is not cut; two of the others would be.
    assert sizes == [5, 2, 2, 2, 2]
    assert (len(set(found)), found[:5]) == (13, large)


def test_a_stream_stands_still_where_nothing_was_finished(plain: psycopg.Connection, stream_of: StreamOf) -> None:
    reader = stream_of(startingoffsets="latest")
    start = reader.initialOffset()
    plain.execute("SELECT penstock.put('orders', 'x')")
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert (reader.reportLatestOffset() or {})["xid"] > start["xid"]


def test_a_run_of_what_is_there_ends_although_more_comes(plain: psycopg.Connection, stream_of: StreamOf) -> None:
    before = finish(plain, 2)
    wait_for_readers(plain)
    reader = stream_of()
    reader.prepareForTriggerAvailableNow()
    finish(plain, 3)
    end = reader.latestOffset({"xid": 0}, ReadAllAvailable())
    assert read_between(reader, {"xid": 0}, end) == before
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_question_survives_a_connection_that_was_cut(plain: psycopg.Connection, stream_of: StreamOf) -> None:
    reader = stream_of()
    before = reader.initialOffset()
    assert reader.latestOffset(before, ReadAllAvailable()) == before
    plain.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    finish(plain, 2)
    wait_for_readers(plain)
    assert len(read_between(reader, before, reader.latestOffset(before, ReadAllAvailable()))) == 2


@pytest.mark.parametrize("schema", ['x"; DROP SCHEMA penstock; --', "a" * 64, "", "x'y", "{columns}"])
def test_a_schema_with_another_name_than_ours_can_have_is_refused(schema: str) -> None:
    with pytest.raises(OptionError, match="schema is"):
        PostgresReader(read_options({"view": "postgres", "url": "postgresql://h/d", "schema": schema}), SCHEMA)


# --- on Spark -------------------------------------------------------------------------------------------


def history(spark: SparkSession, url: str) -> DataFrame:
    return spark.read.format("penstock").options(view="postgres", url=url).load()


def test_spark_reads_what_is_finished(spark: SparkSession, plain: psycopg.Connection, penstock_url: str) -> None:
    ids = finish(plain, 5)
    wait_for_readers(plain)
    found = history(spark, penstock_url).where("queue = 'orders'").collect()
    assert sorted(row.id for row in found) == ids
    few = spark.read.format("penstock").options(view="postgres", url=penstock_url).schema("body binary, id long").load()
    assert few.columns == ["body", "id"]
    assert {bytes(row.body) for row in few.collect()} == {b"body %d" % n for n in range(5)}


def test_a_stream_reads_each_row_once_over_restarts(
    spark: SparkSession, plain: psycopg.Connection, penstock_url: str, tmp_path: Path
) -> None:
    seen: list[int] = []

    def run() -> int:
        """Read what is there; in how many batches."""
        stream = spark.readStream.format("penstock").options(view="postgres", url=penstock_url, maxRecordsPerTrigger=2)
        query = (
            stream.load()
            .writeStream.foreachBatch(lambda frame, _: seen.extend(row.id for row in frame.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        assert query.exception() is None
        return len([progress for progress in query.recentProgress if progress.numInputRows])

    ids = []
    for _ in range(3):
        with plain.transaction():
            ids += finish(plain, 2)
    wait_for_readers(plain)
    assert run() == 3
    with psycopg.connect(penstock_url) as slow:
        late = finish(slow, 1)
        with plain.transaction():
            ids += finish(plain, 2, queue="other")
        run()
        slow.commit()
    wait_for_readers(plain)
    run()
    assert run() == 0
    assert sorted(seen) == sorted(ids + late)


def test_a_database_that_is_not_there_is_an_error(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1"):
        history(spark, "postgresql://127.0.0.1:1/none").collect()
