"""The stream reader of events and runs: micro-batches between two positions of the log, for as long as it grows.

Spark keeps the offsets, in the checkpoint, and they decide: after a crash the same batch is read again. The reader's
cursor is for the broker, which keeps what is not yet safe. It follows what Spark has committed, and trails by a batch
while the stream runs; when Spark finds nothing new to do, all that it was given is committed, so the cursor catches up.

Limits of a trigger are counted in events and bytes of the log, before filters: how many rows a filter lets pass is
known only when they are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.history.log import Log, LogState
from penstock.pipeline.decode.ranges import BehindRetention, bytes_until
from penstock.pipeline.source.glance import Glance
from penstock.pipeline.source.log_read import LogPartition, LogTask, open_source, planned
from penstock.pipeline.source.options import EARLIEST, LATEST, Position, SourceOptions, is_url, refuse_batch_options
from penstock.pipeline.source.positions import Offset, lsn_in, lsn_of, offset_of

logger: Final = logging.getLogger(__name__)

# A broker is asked this often whether there is more.
ASK_BROKER_S: Final = 0.2


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream` of the views events and runs. One copy of it counts offsets; others, in tasks, only read."""

    def __init__(self, options: SourceOptions, task: LogTask) -> None:
        refuse_batch_options(options)
        self._options = options
        self._task = task
        # With Trigger.AvailableNow: where this run ends.
        self._target_lsn: int | None = None
        # What the broker was told last; -1 for nothing.
        self._cursor_lsn = -1
        self._told_lost_below = 0
        self._log: Log | None = None
        self._state: Glance[LogState] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        log = self._opened()
        lsn = self._initial_lsn(log)
        # From now on nothing of it is removed, however long the first batch takes.
        self._move_cursor(lsn)
        return offset_of(log.state(), lsn)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        # One limit is all that Spark takes; where there are two, `latestOffset` knows the other one.
        if self._options.records_max is not None:
            return ReadMaxRows(self._options.records_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        log = self._opened()
        state = self._glance().latest()
        from_lsn = self._readable_from(start, state)
        end_lsn = state.end_lsn if self._target_lsn is None else min(state.end_lsn, self._target_lsn)
        if end_lsn <= from_lsn:
            # Spark asks what comes next when it is done with what came before.
            self._move_cursor(from_lsn)
            return start
        if isinstance(limit, ReadMaxRows):
            end_lsn = min(end_lsn, max(from_lsn, state.first_lsn) + limit.max_rows)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_max
        if bytes_max is not None and not isinstance(limit, ReadAllAvailable):
            end_lsn = min(end_lsn, max(bytes_until(log, from_lsn, bytes_max), from_lsn + 1))
        return offset_of(state, end_lsn)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        state = self._glance().latest()
        return offset_of(state, state.end_lsn)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target_lsn = self._glance().now().end_lsn

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        log = self._opened()
        state = self._glance().now()
        from_lsn, to_lsn = lsn_in(start, state, log.source), lsn_in(end, state, log.source)
        # Whatever comes before this batch was committed in this life or an earlier one.
        if self._cursor_lsn < 0:
            self._move_cursor(from_lsn)
        if from_lsn >= to_lsn:
            return []
        parts, lost_events = planned(log, from_lsn, to_lsn, self._options, self._task.request)
        self._tell_lost(from_lsn, from_lsn + lost_events)
        return parts

    def commit(self, end: Offset) -> None:
        self._move_cursor(int(end["lsn"]))

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = self._state = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        yield from self._task.batches(partition)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_log": None, "_state": None}

    def _opened(self) -> Log:
        if self._log is None:
            self._log = open_source(self._options)
        return self._log

    def _glance(self) -> Glance[LogState]:
        if self._state is None:
            self._state = Glance(self._opened().state, ASK_BROKER_S if is_url(self._options.source) else 0.0)
        return self._state

    def _initial_lsn(self, log: Log) -> int:
        """Where the first batch begins. Spark asks again when that batch did not come to its end, and has not noted it.

        So `latest` is where the log ended when the reader was made: its cursor does not move before the batch is done.
        """
        starting = self._options.starting
        if self._options.reader is not None and starting in (None, Position(LATEST)):
            for reader in log.readers():
                if reader.name == self._options.reader:
                    return reader.lsn
        return lsn_of(log, starting or Position(EARLIEST), "startingOffsets")

    def _readable_from(self, start: Offset, state: LogState) -> int:
        lsn = lsn_in(start, state, self._opened().source)
        if lsn < state.first_lsn and self._options.fail_on_data_loss:
            # Before a batch is begun: it would be tried again with every restart.
            raise BehindRetention(lsn, state.first_lsn)
        return lsn

    def _move_cursor(self, lsn: int) -> None:
        """Tell the broker that everything below is safe. Saying it again, or less than before, changes nothing."""
        if self._options.reader is not None and lsn > self._cursor_lsn:
            self._opened().set_cursor(self._options.reader, lsn)
            self._cursor_lsn = lsn

    def _tell_lost(self, from_lsn: int, to_lsn: int) -> None:
        """Once for each range, though a batch may be planned again."""
        if to_lsn > max(from_lsn, self._told_lost_below):
            self._told_lost_below = to_lsn
            logger.warning(
                "%d events are lost: %d to %d were removed before they were read",
                to_lsn - from_lsn,
                from_lsn,
                to_lsn - 1,
            )
