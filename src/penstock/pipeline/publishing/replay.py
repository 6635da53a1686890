"""`penstock pipeline replay`: messages of the past from the lake or the journal back into queues.

Chosen are published events; each goes back into the queue that it was in, or to a queue or an exchange that is named.
They are published in slices of positions, each a job of Spark through the sink `penstock`: with confirms, and with the
key `replay/<name>/<lsn>`. A replay that was killed and is started again with its name goes on behind its last whole
slice (from a lake), and a queue with deduplication has each message once.

What cannot be published again is counted and named, and stops nothing: a large body that had left the disk before it
was archived, and rows with a problem.

Dead letters that lie in a queue stay there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from penstock.client.amqp.address import parse_address
from penstock.pipeline import defaults
from penstock.pipeline.publishing.planning import (
    SKIPPED_SHOWN,
    Plan,
    Planned,
    Skipped,
    is_whole,
    plan_of,
    sample_of,
    skipped_by_queue,
    skipped_messages,
)
from penstock.pipeline.publishing.replayed import INCOMING, OUTGOING_DDL, Destination, replaying
from penstock.pipeline.publishing.resuming import START, ReplayState, Resuming, check_name
from penstock.pipeline.publishing.selection import (
    NAME_HEADER,
    Selection,
    SelectionError,
    check_selection,
    existing_lake,
    published_in_lake,
    published_in_log,
    replayed_before,
    without_header,
)
from penstock.pipeline.publishing.slices import Slice
from penstock.pipeline.sink.options import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLICE_ROWS_LEAST: Final = 100
# A slice of a slow replay takes about so long: no more than this is repeated after a kill.
SLICE_S: Final = 10
SINK_WORDS: Final = re.compile(r"SinkError: ([^\n]+)")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What to publish again, where to, and how."""

    # amqp://user:password@host:port/vhost
    broker: str = field(repr=False)
    # One of the two: a lake, or a data folder or http URL.
    lake: str | None = None
    source: str | None = None
    selection: Selection = field(default_factory=Selection)
    destination: Destination = field(default_factory=Destination)
    # The same replay has the same name, however often it is started. One is made up when none is given.
    name: str = ""
    dry_run: bool = False
    # In the order in which they were published, by one task.
    ordered: bool = False
    # Messages in a second.
    rate_limit: float | None = None
    slice_rows: int = defaults.SLICE_ROWS
    # Instead of going on where a run of this name was: leave out what it has published, as far as the lake has heard
    # of it. For a name that is used again and again, since messages come to be chosen later than others behind them.
    skip_replayed: bool = False
    user: str | None = None


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """After a slice."""

    published: int
    skipped: int
    total: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What was done, or with `dry_run` what would be."""

    name: str
    destination: str
    dry_run: bool
    # Confirmed by the broker in this run. What a queue with deduplication knew from a run before is among them.
    published: int
    skipped: int
    # From a run of the same name that was over before; nothing was done now.
    already_done: bool
    # Chosen messages by the queue that they were in, without those that are skipped.
    by_queue: dict[str, int]
    # The same by queue, exchange and routing key: the most frequent ones.
    by_key: list[Planned]
    # The first of those that cannot be published again.
    skipped_messages: list[Skipped]
    # With `dry_run`: some messages.
    sample: list[dict[str, Any]]


OnProgress = Callable[[ReplayProgress], None]


def replay(spark: SparkSession, options: ReplayOptions, on_progress: OnProgress | None = None) -> ReplayResult:
    """Publish what is chosen. SelectionError, SinkError, LakeError, HistoryError when it cannot be done."""
    return Replay(spark, options).run(on_progress)


class Replay:
    def __init__(self, spark: SparkSession, options: ReplayOptions) -> None:
        if (options.lake is None) == (options.source is None):
            raise SelectionError("messages come from --lake or from --source: give one of them")
        if options.slice_rows < 1 or (options.rate_limit is not None and options.rate_limit <= 0):
            raise SelectionError("a slice has at least one row, and a rate is more than 0")
        self._spark = spark
        self._options = options
        self._name = options.name or uuid4().hex
        check_name(self._name)
        try:
            self._address = parse_address(options.broker)
        except ValueError as error:
            raise SelectionError(f"the broker's URL: {error}") from None
        # An exchange or queue of that name in another vhost is another one.
        self._selection = replace(options.selection, vhost=options.selection.vhost or self._address.vhost)
        check_selection(self._selection)
        self._lake = None if options.lake is None else existing_lake(options.lake)
        what = json.dumps([repr(self._selection), str(options.destination), str(self._address), self._address.vhost])
        if options.skip_replayed and self._lake is None:
            raise SelectionError("what was replayed before is known in a lake: give --lake, and not --source")
        self._resuming = None if self._lake is None or options.skip_replayed else Resuming(self._lake, self._name, what)
        self._published = 0
        self._skipped: dict[str, int] = {}
        self._skipped_messages: list[Skipped] = []

    def run(self, on_progress: OnProgress | None) -> ReplayResult:
        state = ReplayState() if self._resuming is None else self._resuming.load()
        if state.done:
            return self._result(Plan(), already_done=True)
        # The operator's words may be about bodies.
        with_bodies = self._selection.where is not None
        plan = plan_of(self._rows(state, with_bodies), self._slice_rows(), self._options.destination.original)
        if self._options.dry_run:
            rows = self._rows(state, bodies=True)
            self._note_skipped(rows)
            return self._result(plan, sample=sample_of(rows))
        if not plan.rows and state.end_lsn is None:
            # Nothing was chosen yet: the name is still free.
            return self._result(plan)
        end_lsn = plan.end_lsn if state.end_lsn is None else state.end_lsn
        self._save(state.lsn, end_lsn, done=False)
        for one in plan.slices:
            self._publish(one, state)
            self._save(one.to_lsn, end_lsn, done=False)
            if on_progress is not None:
                on_progress(ReplayProgress(self._published, sum(self._skipped.values()), plan.rows))
        self._save(end_lsn, end_lsn, done=True)
        return self._result(plan)

    def _publish(self, one: Slice, state: ReplayState) -> None:
        """Publish the rows of a slice, and count those that could not be."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        options = self._options
        rows = self._rows(state, bodies=True).where((f.col("lsn") >= one.from_lsn) & (f.col("lsn") < one.to_lsn))
        counts = Observation()
        seen = rows.observe(counts, f.count(f.lit(1)).alias("rows"), f.count(f.when(is_whole(), 1)).alias("whole"))
        whole = seen.where(is_whole()).select(*INCOMING)
        if options.ordered or options.rate_limit is not None:
            whole = whole.coalesce(1).sortWithinPartitions("lsn")
        work = replaying(self._name, options.destination, self._address.user)
        writer = whole.mapInArrow(work, OUTGOING_DDL).write.format("penstock").mode("append")
        writer = writer.option("broker", options.broker).option("writeId", self._name)
        if options.rate_limit is not None:
            writer = writer.option("rateLimit", str(options.rate_limit))
        try:
            writer.save()
        except Exception as error:
            raise self._failure(error) from error
        self._published += counts.get["whole"]
        if counts.get["whole"] < counts.get["rows"]:
            self._note_skipped(rows)

    def _failure(self, error: Exception) -> Exception:
        """Return the sink's words out of the many that Spark puts around them; anything else as it is."""
        words = SINK_WORDS.search(str(error))
        if words is None:
            return error
        return SinkError(f"{words[1]}. Started again with the name {self._name!r} it goes on")

    def _note_skipped(self, rows: DataFrame) -> None:
        for queue, count in skipped_by_queue(rows).items():
            self._skipped[queue] = self._skipped.get(queue, 0) + count
        if len(self._skipped_messages) < SKIPPED_SHOWN:
            self._skipped_messages += skipped_messages(rows)[: SKIPPED_SHOWN - len(self._skipped_messages)]

    def _rows(self, state: ReplayState, bodies: bool) -> DataFrame:
        from pyspark.sql import functions as f

        options = self._options
        if self._lake is not None:
            rows = published_in_lake(self._spark, self._lake, self._selection)
            if options.skip_replayed:
                rows = rows.join(replayed_before(self._spark, self._lake, self._name), "lsn", "left_anti")
        else:
            assert options.source is not None
            rows = published_in_log(self._spark, options.source, self._selection, bodies, options.user)
        rows = without_header(rows, NAME_HEADER, self._name)
        if state.lsn != START:
            rows = rows.where(f.col("lsn") >= state.lsn)
        return rows if state.end_lsn is None else rows.where(f.col("lsn") < state.end_lsn)

    def _slice_rows(self) -> int:
        rate = self._options.rate_limit
        if rate is None:
            return self._options.slice_rows
        return min(self._options.slice_rows, max(SLICE_ROWS_LEAST, int(rate * SLICE_S)))

    def _save(self, lsn: int, end_lsn: int, done: bool) -> None:
        if self._resuming is not None:
            self._resuming.save(lsn, end_lsn, done)

    def _result(
        self, plan: Plan, already_done: bool = False, sample: list[dict[str, Any]] | None = None
    ) -> ReplayResult:
        by_queue = {queue: count - self._skipped.get(queue, 0) for queue, count in sorted(plan.by_queue.items())}
        return ReplayResult(
            name=self._name,
            destination=str(self._options.destination),
            dry_run=self._options.dry_run,
            published=self._published,
            skipped=sum(self._skipped.values()),
            already_done=already_done,
            by_queue={queue: count for queue, count in by_queue.items() if count > 0},
            by_key=plan.by_key,
            skipped_messages=self._skipped_messages,
            sample=sample or [],
        )
