"""What the log says that a queue holds: the same as a plain fold, whatever the broker has written."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.pipeline.columns import GONE, RUNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

TIME = datetime(2026, 3, 1, tzinfo=UTC)
Row = dict[str, Any]
# Endings that name messages which are there; a purge is another matter.
ENDINGS = [kind for kind in GONE if kind != "purged"]
# (what, how many, which, which ending)
Operation = tuple[str, int, int, str]
OPERATIONS = st.tuples(
    st.sampled_from(["publish", "publish", "end", "end", "deliver", "requeue", "purge", "purge one by one", "delete"]),
    st.integers(1, 5),
    st.integers(0, 30),
    st.sampled_from(ENDINGS),
)
QUEUES = st.lists(st.lists(OPERATIONS, max_size=12), min_size=20, max_size=40)


@dataclass
class Scene:
    """A log of several queues, as runs, and what a plain fold of it leaves in them."""

    runs: list[Row] = field(default_factory=list)
    held: dict[int, dict[int, int]] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    next_seq: dict[int, int] = field(default_factory=dict)

    def add(self, queue_no: int, kind: str, seq: int, count: int, size: int) -> None:
        lsn = self.runs[-1]["lsn"] + self.runs[-1]["count"] if self.runs else 0
        names = {"vhost": "/", "queue": f"queue {queue_no}", "queue_no": queue_no}
        row = {"lsn": lsn, "time": TIME, **names, "seq": seq, "count": count, "kind": kind, "kind_no": 1, "bytes": size}
        self.runs.append(row)

    def apply(self, queue_no: int, operation: Operation) -> None:
        what, count, which, ending = operation
        held = self.held.setdefault(queue_no, {})
        next_seq = self.next_seq.setdefault(queue_no, 0)
        if queue_no in self.deleted:
            return
        if what == "publish":
            sizes = {next_seq + number: (which + number) * 7 for number in range(count)}
            held.update(sizes)
            self.next_seq[queue_no] = next_seq + count
            self.add(queue_no, "published", next_seq, count, sum(sizes.values()))
            self.runs[-1]["sizes"] = list(sizes.values())
        elif what == "purge" and held:
            low = min(held)
            self.add(queue_no, "purged", low, next_seq - low, sum(held.values()))
            held.clear()
        elif what == "delete":
            self.add(queue_no, "deleted", -1, 1, 0)
            self.deleted.add(queue_no)
            held.clear()
        elif held:
            first = sorted(held)[which % len(held)]
            chosen = [seq for seq in range(first, first + count) if seq in held]
            chosen = [seq for seq in chosen if seq - first == chosen.index(seq)]
            kind = {"end": ending, "purge one by one": "purged", "deliver": "delivered"}.get(what, "requeued")
            self.add(queue_no, kind, first, len(chosen), sum(held[seq] for seq in chosen))
            if kind in GONE:
                for seq in chosen:
                    del held[seq]

    def expected(self) -> dict[int, tuple[int, int]]:
        """Of each queue that has a row and was not deleted."""
        seen = {row["queue_no"] for row in self.runs} - self.deleted
        return {number: (len(self.held[number]), sum(self.held[number].values())) for number in seen}

    def messages(self) -> list[Row]:
        """What is in the queues."""
        return [
            {"queue_no": number, "seq": seq, "size": size}
            for number, held in self.held.items()
            for seq, size in held.items()
        ]


def scene_of(queues: list[list[Operation]]) -> Scene:
    """The operations of all queues, one of each at a time."""
    scene = Scene()
    for step in range(max(map(len, queues), default=0)):
        for queue_no, operations in enumerate(queues):
            if step < len(operations):
                scene.apply(queue_no, operations[step])
    return scene


def frame_of(spark: SparkSession, runs: list[Row]) -> DataFrame:
    table = pa.Table.from_pylist([{name: row.get(name) for name in RUNS.names} for row in runs], schema=RUNS)
    return spark.createDataFrame(table)


def counted(spark: SparkSession, runs: list[Row], before: list[Row] | None = None) -> dict[int, tuple[int, int]]:
    from penstock.pipeline.reconcile.counting import HELD, held

    found = held(frame_of(spark, runs), None if before is None else frame_before(spark, before))
    assert tuple(found.columns) == HELD
    return {row["queue_no"]: (row["messages"], row["bytes"]) for row in found.collect()}


def counted_exactly(spark: SparkSession, runs: list[Row], before: list[Row]) -> dict[int, tuple[int, int]]:
    """By events: one for each message of a run; those that publish know its size."""
    from penstock.pipeline.reconcile.counting import exactly

    events = [
        (row["queue_no"], row["seq"] + number, row["kind"], size)
        for row in runs
        for number, size in enumerate(row.get("sizes") or [None] * row["count"])
    ]
    frame = spark.createDataFrame(events, "queue_no int, seq long, kind string, size long")
    found = exactly(frame, frame_before(spark, before))
    return {row["queue_no"]: (row["messages"], row["bytes"]) for row in found.collect()}


def frame_before(spark: SparkSession, before: list[Row]) -> DataFrame:
    rows = [(row["queue_no"], row["seq"], row["size"]) for row in before]
    return spark.createDataFrame(rows, "queue_no int, seq long, size long")


def run(queue_no: int, kind: str, seq: int, count: int, size: int, lsn: int = 0) -> Row:
    scene = Scene()
    scene.add(queue_no, kind, seq, count, size)
    return {**scene.runs[0], "lsn": lsn}


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(queues=QUEUES, cut=st.integers(0, 12))
def test_sums_over_runs_and_counts_of_events_are_those_of_a_plain_fold(
    spark: SparkSession, queues: list[list[Operation]], cut: int
) -> None:
    scene = scene_of(queues)
    assert counted(spark, scene.runs) == scene.expected()
    # The same when it begins in the middle, with what was there then.
    earlier = scene_of([operations[:cut] for operations in queues])
    before = earlier.messages()
    later = scene.runs[len(earlier.runs) :]
    seen = {row["queue_no"] for row in (*later, *before)}
    wanted = {number: found for number, found in scene.expected().items() if number in seen}
    assert counted(spark, later, before) == wanted
    assert counted_exactly(spark, later, before) == wanted


def test_a_purged_range_names_messages_that_are_gone_already_and_they_count_once(spark: SparkSession) -> None:
    runs = [
        run(1, "published", 0, 5, 50, 0),
        run(1, "acked", 1, 2, 20, 5),
        run(1, "purged", 0, 5, 30, 7),
        run(1, "published", 5, 2, 9, 12),
        run(2, "published", 0, 1, 4, 14),
    ]
    assert counted(spark, runs) == {1: (2, 9), 2: (1, 4)}


def test_what_was_there_before_the_first_run_is_counted_too(spark: SparkSession) -> None:
    before = [{"queue_no": 1, "seq": 7, "size": 70}, {"queue_no": 1, "seq": 9, "size": 90}]
    before += [{"queue_no": 2, "seq": 0, "size": 5}, {"queue_no": 3, "seq": 0, "size": 6}]
    runs = [
        run(1, "acked", 7, 1, 70, 100),
        run(1, "published", 10, 1, 1, 101),
        run(3, "deleted", -1, 1, 0, 102),
    ]
    assert counted(spark, runs, before) == {1: (2, 91), 2: (1, 5)}


def test_a_purge_after_the_beginning_takes_what_was_there_before_it(spark: SparkSession) -> None:
    before = [{"queue_no": 1, "seq": seq, "size": 10} for seq in (3, 5)]
    assert counted(spark, [run(1, "purged", 3, 4, 20, 50)], before) == {1: (0, 0)}


def test_the_bytes_of_a_run_that_a_bound_cuts_are_exact_when_events_are_counted(spark: SparkSession) -> None:
    # Of a run that acknowledges 10 and 30 bytes the second half is 20, by proportion.
    before = [{"queue_no": 1, "seq": 1, "size": 30}, {"queue_no": 1, "seq": 2, "size": 5}]
    runs = [run(1, "acked", 1, 1, 20, 100)]
    assert counted(spark, runs, before) == {1: (1, 15)}
    assert counted_exactly(spark, runs, before) == {1: (1, 5)}


def test_damage_in_the_log_is_no_event_of_any_queue(spark: SparkSession) -> None:
    runs = [run(-1, "unreadable", -1, 9, 0, 0), run(1, "published", 0, 1, 3, 9)]
    assert counted(spark, runs) == {1: (1, 3)}


def test_a_log_without_a_run_holds_nothing(spark: SparkSession) -> None:
    assert counted(spark, []) == {}
