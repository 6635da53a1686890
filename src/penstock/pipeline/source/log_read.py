"""Events and runs of a log, read by tasks: what batch and stream readers have in common.

A task gets a range of the log and opens the log by itself, from its folder or over HTTP: nothing that is open travels.
The events of a range are the same each time, so a task may be run again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.history.http_log import index_of
from penstock.history.log import Log, SegmentGone, SegmentIndex
from penstock.history.opening import open_log
from penstock.pipeline.columns import RANGES
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import LogRange, plan
from penstock.pipeline.decode.request import Request
from penstock.pipeline.source.known_indexes import KnownIndexes
from penstock.pipeline.source.options import EVENTS, SourceOptions
from penstock.pipeline.source.shape import arrow_schema, projection, shaped
from penstock.pipeline.warm_worker import task_begins

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger: Final = logging.getLogger(__name__)


# An index with more names than this is not sent with each of its ranges: the task asks for it.
NAMES_SENT_MAX: Final = 1000


@dataclass
class LogPartition(InputPartition):
    """A range for one task, and the index of its segment, if that is not too large."""

    range: LogRange
    index: SegmentIndex | None


def planned(
    log: Log, from_lsn: int, to_lsn: int, options: SourceOptions, request: Request
) -> tuple[list[InputPartition], int]:
    """The tasks that read [from_lsn, to_lsn); and how many events of it were removed already, where that is allowed."""
    known = KnownIndexes(log)
    ranges = plan(known, from_lsn, to_lsn, options.partition_bytes, request, options.fail_on_data_loss)
    parts: list[InputPartition] = []
    for range_ in ranges:
        index = known.index(range_.segment)
        is_small = len(index.queues) + len(index.consumers) <= NAMES_SENT_MAX
        parts.append(LogPartition(range_, index if is_small else None))
    return parts, ranges.lost_events


def request_of(options: SourceOptions, schema: StructType) -> Request:
    """What the options and the schema ask for. OptionError when the view has no such columns."""
    return Request(
        view=options.view,
        columns=projection(options.view, schema),
        bodies=options.bodies,
        vhost=options.vhost,
        queues=None if options.queue is None else frozenset({options.queue}),
        kinds=options.kinds,
    )


def open_source(options: SourceOptions) -> Log:
    return open_log(options.source, options.user, options.password)


class LogTask:
    """Reads ranges. Goes to the workers, so it holds nothing that is open."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.request = request_of(options, schema)
        self.target = arrow_schema(schema)

    def batches(self, part: LogPartition) -> Iterator[pa.RecordBatch]:
        task_begins()
        range_ = part.range
        with closing(open_source(self.options)) as log:
            known = KnownIndexes(log, () if part.index is None else (part.index,))
            try:
                for batch in read_range(known, range_, self.request):
                    yield self.shape(batch)
            except SegmentGone:
                if self.options.fail_on_data_loss:
                    raise
                logger.warning(
                    "segment %d was removed while it was read: what was left of events %d to %d is lost",
                    range_.segment,
                    range_.from_lsn,
                    range_.to_lsn - 1,
                )

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return shaped(batch, self.target)


class RangeTask(LogTask):
    """Hands ranges on as they are: the sink decodes them."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        # What is planned: all events that pass.
        self.request = Request(
            view=EVENTS,
            columns=("lsn",),
            bodies=False,
            vhost=options.vhost,
            queues=None if options.queue is None else frozenset({options.queue}),
            kinds=options.kinds,
        )
        projection(options.view, schema)
        self.target = arrow_schema(schema)

    def batches(self, part: LogPartition) -> Iterator[pa.RecordBatch]:
        index = None if part.index is None else json.dumps(asdict(part.index))
        row = {**asdict(part.range), "index": index}
        yield self.shape(pa.RecordBatch.from_pylist([row], RANGES).select(self.target.names))


def decoded(task: LogTask, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The events of ranges that a RangeTask has handed on."""
    for row in rows.to_pylist():
        text = row.pop("index")
        index = None if text is None else index_of(json.loads(text))
        yield from task.batches(LogPartition(LogRange(**row), index))
