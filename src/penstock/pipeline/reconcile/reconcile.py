"""`penstock pipeline reconcile`: every counter recomputed, and compared with what is reported.

The counters of the broker are taken in one turn of its loop, with the LSN at which they hold. The fold of all events
below that LSN must give the same numbers; if history no longer reaches back to the beginning, the open lives of a lake
that was refined take its place. Counters of PostgreSQL are compared with the rows that they count.

A difference is a bug or damage. It is told by the exit code, and noted in the lake, where `penstock pipeline status`
shows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import StartupError
from penstock.history.http_log import HttpLog
from penstock.history.log import HistoryError, Log, LogState
from penstock.history.opening import open_log
from penstock.pipeline import defaults
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import Lake, open_lake
from penstock.pipeline.reconcile.counting import exactly, held
from penstock.pipeline.reconcile.postgres import recount, repair
from penstock.pipeline.reconcile.result import BROKER, Difference, Reconciliation, compare
from penstock.pipeline.refine import progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The counters hold at an LSN that is durable a moment later.
DURABLE_S: Final = 30.0
LOOK_S: Final = 0.02

# Rows of `held` by the queue's number.
Counted = dict[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    # The broker's URL; None: PostgreSQL only.
    source: str | None = None
    # A lake of the same log, refined: needed when history does not reach back to the beginning.
    lake: str | None = None
    postgres: str | None = None
    schema: str = defaults.SCHEMA
    # Set PostgreSQL's counters right if they are not.
    repair: bool = False
    user: str | None = None


def reconcile(make_spark: Callable[[], SparkSession], options: ReconcileOptions) -> Reconciliation:
    """Compare everything that the options name. Spark is started only if there is a log to fold."""
    if options.source is None and options.postgres is None:
        raise StartupError("there is nothing to compare: give --source URL, or --postgres URL, or both")
    result = Reconciliation()
    if options.source is not None:
        result = result.and_also(with_broker(make_spark, options))
    if options.postgres is not None:
        found = recount(options.postgres, options.schema)
        if options.repair and found.differences:
            repair(options.postgres, options.schema)
            found = replace(found, repaired=True)
        result = result.and_also(found)
    if options.lake is not None:
        note(Lake(options.lake), result)
    return result


def note(lake: Lake, result: Reconciliation) -> None:
    """Leave the result where `penstock pipeline status` finds it."""
    told = {**asdict(result), "standing": result.standing, "updated_us": time.time_ns() // 1000}
    durable.replace_json(note_file(lake), told)


def note_file(lake: Lake) -> Path:
    return lake.own / "progress" / "reconcile.json"


def with_broker(make_spark: Callable[[], SparkSession], options: ReconcileOptions) -> Reconciliation:
    """Return the broker's counters, and the fold of its log."""
    assert options.source is not None
    with closing(open_log(options.source, options.user)) as log:
        if not isinstance(log, HttpLog):
            raise StartupError(
                "counters are those of a running broker: give --source http://HOST:PORT of one that was started"
                " with --http-port"
            )
        counters = log.counters()
        lsn = int(counters["lsn"])
        wait_until_durable(log, lsn)
        start, open_files = beginning(log.state(), options.lake, lsn)
    spark = make_spark()
    before = None
    if open_files:
        from penstock.pipeline.refine.refine_step import read_open

        before = read_open(spark, open_files).select("queue_no", "seq", "size")
    found = held(view(spark, options, "runs", start, lsn), before)
    counted = {row["queue_no"]: row.asDict() for row in found.collect()}
    if numbers := suspects(counters["queues"], counted):
        # A run across one of the bounds has made the sums inexact; or they are right, and a counter is not.
        events = view(spark, options, "events", start, lsn, "queue_no int, seq long, kind string, size long")
        recount_exactly(counted, numbers, events, before)
    return compared(lsn, counters["queues"], counted)


def wait_until_durable(log: Log, lsn: int) -> None:
    deadline_s = time.monotonic() + DURABLE_S
    while log.state().end_lsn < lsn:
        if time.monotonic() > deadline_s:
            raise HistoryError(f"the log has not become durable up to LSN {lsn} within {DURABLE_S:g} s; try again")
        time.sleep(LOOK_S)


def beginning(state: LogState, lake: str | None, lsn: int) -> tuple[int, list[str]]:
    """Where to begin, and the files of the lives that were open there."""
    first_lsn = state.first_lsn
    if first_lsn == 0:
        return 0, []
    if lake is None:
        raise StartupError(
            f"history begins at LSN {first_lsn}, and what was in the queues then is not known;"
            " give --lake of a lake that was archived from the beginning, and refined"
        )
    found = open_lake(lake)
    if found.log_id != state.log_id:
        raise StartupError(f"the lake {found.path} has the events of another log: give that of this broker")
    done = progress.refined(found)
    if not first_lsn <= done.lsn <= lsn:
        raise StartupError(
            f"the lake is refined up to LSN {done.lsn}, and history begins at {first_lsn};"
            " run `penstock pipeline archive --once` and `penstock pipeline refine` first"
        )
    return done.lsn, progress.open_life_files(found, done)


def view(
    spark: SparkSession, options: ReconcileOptions, name: str, start: int, end: int, columns: str | None = None
) -> DataFrame:
    """Return the events [start, end) of the log."""
    given = {
        "source": options.source,
        "view": name,
        "user": options.user,
        "bodies": "false",
        "startingOffsets": start,
        "endingOffsets": end,
    }
    reader = spark.read.format("penstock")
    if columns is not None:
        reader = reader.schema(columns)
    return reader.options(**{option: str(value) for option, value in given.items() if value is not None}).load()


def suspects(reported: Sequence[dict[str, Any]], counted: Counted) -> list[int]:
    """Return numbers of the queues of which the sums are not what is reported."""
    told = {queue["queue_no"]: (queue["persistent_count"], queue["persistent_bytes"]) for queue in reported}
    return [number for number in {*told, *counted} if told.get(number, (0, 0)) != held_by(counted.get(number))]


def recount_exactly(counted: Counted, numbers: Sequence[int], events: DataFrame, before: DataFrame | None) -> None:
    """Put numbers that are right beyond doubt in the place of the sums."""
    earlier = None if before is None else before.where(before.queue_no.isin(*numbers))
    found = exactly(events.where(events.queue_no.isin(*numbers)), earlier)
    for row in found.collect():
        counted[row["queue_no"]].update(messages=row["messages"], bytes=row["bytes"])


def held_by(row: dict[str, Any] | None) -> tuple[int, int]:
    """Return messages and bytes."""
    return (0, 0) if row is None else (row["messages"], row["bytes"])


def compared(lsn: int, reported: Sequence[dict[str, Any]], counted: Counted) -> Reconciliation:
    """Return the broker's queues beside those of the log."""
    differences: list[Difference] = []
    for queue in reported:
        messages, size = held_by(counted.get(queue["queue_no"]))
        pairs = {
            "persistent_count": (queue["persistent_count"], messages),
            "persistent_bytes": (queue["persistent_bytes"], size),
        }
        differences += compare(BROKER, queue["vhost"], queue["queue"], pairs)
    known = {queue["queue_no"] for queue in reported}
    for number, row in counted.items():
        # By the log it was never deleted, and the broker does not know it.
        if number not in known and row["messages"]:
            name = row["queue"] or f"number {number}"
            differences.append(Difference(BROKER, row["vhost"], name, "persistent_count", None, row["messages"]))
    queues = len(reported)
    return Reconciliation(lsn, queues, 2 * queues, tuple(differences))
