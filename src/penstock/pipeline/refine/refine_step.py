"""One version of refinement: a range of bronze becomes lives and minutes.

The order of the steps: the plan, before anything is written; one pass of Spark that writes the files of ended lives and
those of open ones; ended lives into silver; minutes into gold; the open lives and the position, last. A crash between
any two of them is harmless: the next run makes the same version again, and a table that has it leaves it.

Rows with a problem are in the table poison, but are events all the same, and count here.

Memory: rows stay with Spark, which goes to disk when it must. The driver holds names of files, and the rows of gold of
one range.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.reading import read_table
from penstock.pipeline.lake.staging import file_as_text, file_of_text
from penstock.pipeline.lake.table_file import NewFile
from penstock.pipeline.lake.writing import PendingRows, conform
from penstock.pipeline.refine import lives, minutes, progress
from penstock.pipeline.refine.life_columns import LIVES, OPEN_LIVES
from penstock.pipeline.refine.minute_columns import MINUTES
from penstock.pipeline.warm_worker import task_begins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one version came to."""

    events: int
    lives: int
    minutes: int
    open: int


def run_step(spark: SparkSession, lake: Lake, done: progress.Refined, step: progress.Planned) -> StepResult:
    """Refine the range of the step; afterwards it is done. `done` is what was before."""
    events = read_events(spark, lake, step)
    first_us, count = events.agg(sql.min(sql.unix_micros("time")), sql.count("*")).collect()[0]
    if count == 0:
        # Events that were lost before they came here. No version is needed to pass over them.
        progress.finish(lake, progress.Refined(step.to, done.version, done.open, done.files))
        return StepResult(0, 0, 0, progress.count_open(lake, done))
    progress.plan(lake, step)
    before = read_open(spark, progress.open_life_files(lake, done)) if done.files else None
    silver = lake.table("silver", LIVES)
    ended, still_open = write_lives(lives.fold_lives(events, before), silver.folder, _open_folder(lake, step))
    silver.append(ended, progress.APPLICATION, step.version)
    files = progress.keep_open_lives(lake, step.version, still_open)
    now = progress.Refined(step.to, step.version, str(step.version), files)
    changed = write_minutes(spark, lake, events, now, step, _minute(first_us))
    progress.finish(lake, now)
    return StepResult(count, sum(file.rows for file in ended), changed, sum(file.rows for file in still_open))


def read_events(spark: SparkSession, lake: Lake, step: progress.Planned) -> DataFrame:
    """Return the events of the range, from both tables."""
    columns = list(dict.fromkeys([*lives.EVENT_COLUMNS, *minutes.EVENT_COLUMNS]))
    at_least, below = {"lsn": step.lsn}, {"lsn": step.to}
    whole = read_table(spark, lake.table("bronze"), EVENTS, columns, at_least, below)
    poison = lake.table("poison")
    if not poison.exists():
        return whole
    return whole.unionByName(read_table(spark, poison, EVENTS, columns, at_least, below))


def read_open(spark: SparkSession, files: list[str]) -> DataFrame:
    """Lives that an earlier version left open."""
    shape = from_arrow_schema(pa.schema([field.with_nullable(True) for field in OPEN_LIVES]))
    return spark.read.schema(shape).parquet(*files) if files else spark.createDataFrame([], shape)


def write_lives(folded: DataFrame, silver_folder: str, open_folder: str) -> tuple[list[NewFile], list[NewFile]]:
    """Write lives in one pass: files of ended ones for silver, and files of open ones. Nothing names them yet."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task_begins()
        with (
            PendingRows(silver_folder, LIVES, "lives") as ended,
            PendingRows(open_folder, OPEN_LIVES, "open") as still_open,
        ):
            for batch in batches:
                is_ended = pc.is_valid(batch.column("outcome"))
                ended.add(conform(batch.filter(is_ended), LIVES))
                still_open.add(conform(batch.filter(pc.invert(is_ended)), OPEN_LIVES))
            texts = [[file_as_text(file) for file in rows.finish()] for rows in (ended, still_open)]
        yield pa.RecordBatch.from_pydict({"files": pa.array([json.dumps(texts)], pa.string())})

    answers = [json.loads(row[0]) for row in folded.mapInArrow(write, "files string").collect()]
    ended, still_open = ([file_of_text(text) for answer in answers for text in answer[kind]] for kind in (0, 1))
    return ended, still_open


def write_minutes(
    spark: SparkSession,
    lake: Lake,
    events: DataFrame,
    now: progress.Refined,
    step: progress.Planned,
    first: datetime,
) -> int:
    """Replace gold from the first minute of the range on; how many rows it has from there. 0 when it had them."""
    gold = lake.table("gold", MINUTES)
    if gold.exists() and gold.version_of(progress.APPLICATION) >= step.version:
        return 0
    at_least, below = {"settled_lsn": step.lsn}, {"settled_lsn": step.to}
    # Those of this version, whichever run wrote them: a life is in the range in which it ends.
    ended = read_table(spark, lake.table("silver", LIVES), LIVES, None, at_least, below)
    before = read_table(spark, gold, MINUTES, None, {"minute": first}) if gold.exists() else None
    still_open = read_open(spark, progress.open_life_files(lake, now))
    rows = minutes.fold_minutes(events, ended, before, still_open).toArrow().cast(MINUTES)
    gold.replace_where("minute", first, rows, progress.APPLICATION, step.version)
    return int(rows.num_rows)


def _open_folder(lake: Lake, step: progress.Planned) -> str:
    return str(progress.folder_of(lake) / str(step.version))


def _minute(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us - us % minutes.MINUTE_US)
