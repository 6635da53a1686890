"""`penstock pipeline archive`: every event of a log into bronze, once.

A stream from the source `penstock` to the sink `penstock_lake`. Spark's checkpoint, in the lake, says how far it is;
the tables say which batches they have; so a process that is killed anywhere goes on where it was. A new checkpoint
begins behind the last event that the lake has. The cursor of the reader, which keeps the broker from removing events,
follows what Spark has noted as done and is never ahead of the lake.

How far it is, and how far behind, is in `_penstock/progress/archive.json` for `penstock pipeline status`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.history.log import Log
from penstock.history.opening import open_log
from penstock.pipeline import defaults
from penstock.pipeline.lake import durable, half_batch
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.reading import largest
from penstock.pipeline.lake.table_file import LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 1
REASON_MAX: Final = 2000
_REMOVE_CHECKPOINT: Final = "Remove the folder of the checkpoint: a new one begins behind the last event of the lake"


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    # Data folder or http URL.
    source: str
    lake: str
    # Of a lake that is not there yet; None for its own, or delta.
    format: str | None = None
    # Name of the cursor.
    reader: str = defaults.READER
    # What is there now, and no more.
    once: bool = False
    every_s: float = defaults.EVERY_S
    bodies: bool = True
    # Of one batch, in events and in bytes of the log.
    max_records: int | None = None
    max_bytes: int | None = defaults.BATCH_BYTES
    # False: events that were removed before they were read are counted, and passed over.
    fail_on_data_loss: bool = True
    user: str | None = None


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """How far the job is; at its end, its result."""

    source: str
    reader: str
    # Everything below is in the lake.
    lsn: int
    # Of this run. Events are positions of the log, as in the lag: a few are names and marks, which are no rows.
    events: int
    batches: int
    seconds: float
    # Not yet in the lake.
    lag_events: int
    lag_s: float
    # Gone from the log when this run began, and never archived.
    lost_events: int
    running: bool
    updated_us: int


class StreamFailed(LakeError):
    """The stream ended by itself; the text is that of its cause."""


OnProgress = Callable[[ArchiveProgress], None]


def archive(
    spark: SparkSession,
    options: ArchiveOptions,
    on_progress: OnProgress | None = None,
    stop: Callable[[], bool] | None = None,
) -> ArchiveProgress:
    """Archive until `stop` says so, or what is there now. HistoryError or LakeError when it cannot be done."""
    lake = Lake(options.lake, options.format)
    with closing(open_log(options.source, options.user)) as log, only_one(lake):
        lake.bind(log.state().log_id)
        check_checkpoint(lake)
        watch = Watch(log, lake, options.reader)
        query = start(spark, options, lake, starting_lsn(log, lake))
        try:
            while not ended(query):
                if watch.has_moved():
                    told = watch.progress(running=True)
                    if on_progress is not None:
                        on_progress(told)
                if stop is not None and stop():
                    break
        finally:
            query.stop()
        # The cursor that Spark moves trails by a batch.
        set_cursor(log, lake, options.reader)
        return watch.progress(running=False)


def ended(query: StreamingQuery) -> bool:
    """Wait a moment, and look. StreamFailed with what a Python process of ours has said, where one did."""
    from pyspark.errors import StreamingQueryException

    try:
        return bool(query.awaitTermination(LOOK_S))
    except StreamingQueryException as error:
        raise StreamFailed(reason_in(str(error))) from error


def reason_in(text: str) -> str:
    """Return the line of a long report that says what to do: the error of our own, else the first one."""
    ours = re.findall(r"^penstock\.[\w.]+: (.+)$", text, re.MULTILINE)
    return str(ours[-1] if ours else text.strip().splitlines()[0])[:REASON_MAX]


def checkpoint_of(lake: Lake) -> Path:
    return lake.own / "checkpoints" / "archive"


def progress_of(lake: Lake) -> dict[str, Any] | None:
    """Return the last progress of the job, whether it runs or not; None when it never ran."""
    found = durable.read_json(_progress_file(lake))
    return found if isinstance(found, dict) else None


def start(spark: SparkSession, options: ArchiveOptions, lake: Lake, lsn: int) -> StreamingQuery:
    """Start the stream; the caller waits for it."""
    # Both ends open the log: the source plans ranges of it, and the sink's tasks decode them.
    log = {
        "source": options.source,
        "bodies": str(options.bodies).lower(),
        "failOnDataLoss": str(options.fail_on_data_loss).lower(),
        "user": options.user,
    }
    plan = {
        "view": "ranges",
        "reader": options.reader,
        # Where there is a checkpoint, it decides.
        "startingOffsets": lsn,
        "maxRecordsPerTrigger": options.max_records,
        "maxBytesPerTrigger": options.max_bytes,
    }
    writer = (
        spark.readStream.format("penstock")
        .options(**_given({**log, **plan}))
        .load()
        .writeStream.format("penstock_lake")
        .options(**_given(log))
        .option("lake", str(lake.path))
        .option("checkpointLocation", str(checkpoint_of(lake)))
        .queryName("penstock archive")
    )
    if options.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{max(1, round(options.every_s * 1000))} milliseconds").start()


def starting_lsn(log: Log, lake: Lake) -> int:
    """Where the checkpoint begins. It is chosen once, and kept with the checkpoint.

    Spark's own files say where the first batch ends, not where it begins: that it asks again after a crash. If it got
    another answer then, because a part of the batch is in the lake, the tables would take half a batch for the whole.
    """
    path = checkpoint_of(lake) / "start.json"
    found = durable.read_json(path)
    if found is None:
        half_batch.undo(lake)
        end = end_of(lake)
        found = {"lsn": log.state().first_lsn if end is None else end}
        durable.replace_json(path, found)
    return int(found["lsn"])


def _given(options: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if value is not None}


def end_of(lake: Lake) -> int | None:
    """Behind the last event that the lake has; None when it has none."""
    last = [largest(lake.table(name), "lsn") for name in ("bronze", "poison")]
    return max((int(lsn) + 1 for lsn in last if lsn is not None), default=None)


def committed_lsn(checkpoint: Path) -> int | None:
    """Behind the last event of the last batch that Spark has noted as done; None when there is none."""
    batch = last_batch(checkpoint)
    return None if batch < 0 else _offset_lsn(checkpoint, batch)


def check_checkpoint(lake: Lake) -> None:
    """LakeError when the lake has events that the checkpoint knows nothing of.

    Spark notes how far a batch goes before it begins. If the note is gone, because an older copy was brought back or
    the power failed, Spark would make other batches under numbers that the tables have seen.
    """
    checkpoint, end = checkpoint_of(lake), end_of(lake)
    start = durable.read_json(checkpoint / "start.json")
    if start is None or end is None:
        return
    begun = last_batch(checkpoint, "offsets")
    known = int(start["lsn"]) if begun < 0 else _offset_lsn(checkpoint, begun)
    if end > known:
        raise LakeError(
            f"the lake {lake.path} has events up to {end - 1}, and its checkpoint {checkpoint} knows those below"
            f" {known} alone: it is older than the lake. {_REMOVE_CHECKPOINT}"
        )


def _offset_lsn(checkpoint: Path, batch: int) -> int:
    """Where a batch ends. LakeError when Spark's note of it cannot be read."""
    path = checkpoint / "offsets" / str(batch)
    try:
        # Its lines: a version, metadata, and the offset of each source.
        return int(json.loads(path.read_text(encoding="utf-8").splitlines()[-1])["lsn"])
    except (OSError, ValueError, LookupError, TypeError):
        # Spark does not sync its files: after a power cut they may be empty.
        raise LakeError(f"{path} is missing or damaged, perhaps by a power cut. {_REMOVE_CHECKPOINT}") from None


def last_batch(checkpoint: Path, notes: str = "commits") -> int:
    """Return the last batch that Spark has noted as done, or with "offsets" as begun; -1 for none."""
    folder = checkpoint / notes
    if not folder.is_dir():
        return -1
    return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=-1)


def set_cursor(log: Log, lake: Lake, reader: str) -> None:
    """Everything that the lake has is safe."""
    lsn = committed_lsn(checkpoint_of(lake))
    if lsn is not None:
        log.set_cursor(reader, lsn)


def only_one(lake: Lake) -> AbstractContextManager[None]:
    """Two archive jobs with one checkpoint would do everything twice, and fail."""
    complaint = f"another archive job is writing to the lake {lake.path}; there can be one"
    return durable.only_one(lake.own / "archive.lock", complaint)


class Watch:
    """Follows a query by its checkpoint, and tells in the lake how far it is."""

    def __init__(self, log: Log, lake: Lake, reader: str) -> None:
        self._log = log
        self._lake = lake
        self._reader = reader
        self._begun_s = time.monotonic()
        self._begun_lsn = self._lsn()
        self._lost_events = max(0, log.state().first_lsn - self._begun_lsn)
        self._begun_batch = self._seen_batch = last_batch(checkpoint_of(lake))

    def has_moved(self) -> bool:
        """Return whether a batch was finished since the last look."""
        batch = last_batch(checkpoint_of(self._lake))
        moved = batch > self._seen_batch
        self._seen_batch = batch
        return moved

    def progress(self, running: bool) -> ArchiveProgress:
        """What there is to tell; it is in the lake afterwards, too."""
        end_lsn = self._log.state().end_lsn
        lsn = self._lsn()
        told = ArchiveProgress(
            source=self._log.source,
            reader=self._reader,
            lsn=lsn,
            events=max(0, lsn - self._begun_lsn),
            batches=last_batch(checkpoint_of(self._lake)) - self._begun_batch,
            seconds=round(time.monotonic() - self._begun_s, 3),
            lag_events=max(0, end_lsn - lsn),
            lag_s=self._lag_s() if end_lsn > lsn else 0.0,
            lost_events=self._lost_events,
            running=running,
            updated_us=time.time_ns() // 1000,
        )
        durable.replace_json(_progress_file(self._lake), asdict(told))
        return told

    def _lsn(self) -> int:
        """Return up to where the lake has everything."""
        done = committed_lsn(checkpoint_of(self._lake))
        return starting_lsn(self._log, self._lake) if done is None else done

    def _lag_s(self) -> float:
        return next((reader.lag_s for reader in self._log.readers() if reader.name == self._reader), 0.0)


def _progress_file(lake: Lake) -> Path:
    return lake.own / "progress" / "archive.json"
