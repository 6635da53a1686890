"""Journal to Spark, beside the same rows in Parquet: warm, in one session, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benches.pipeline.journals import Made

LIFE_CYCLE: Final = ("lsn", "time", "queue_no", "seq", "kind_no")
LIFE_CYCLE_SCHEMA: Final = "lsn long, time timestamp, queue_no int, seq long, kind_no short"
# Before the first repeat that counts, each side runs so often: the JIT has to warm up.
WARM_UP: Final = 2


@dataclass
class Scan:
    """A case: seconds of each repeat, ours and Parquet's."""

    name: str
    title: str
    # The ratio to reach.
    target: float
    rows: int
    source_s: list[float] = field(default_factory=list)
    parquet_s: list[float] = field(default_factory=list)

    def ratio(self) -> float:
        return statistics.median(self.parquet_s) / statistics.median(self.source_s)

    def source_per_s(self) -> float:
        return self.rows / statistics.median(self.source_s)

    def parquet_per_s(self) -> float:
        return self.rows / statistics.median(self.parquet_s)


def events_of(spark: SparkSession, made: Made) -> DataFrame:
    return spark.read.format("penstock").option("source", str(made.folder)).load()


def to_nowhere(frame: DataFrame) -> None:
    """Every row is made, none is kept."""
    frame.write.format("noop").mode("overwrite").save()


def life_cycle_of(spark: SparkSession, made: Made) -> DataFrame:
    return spark.read.format("penstock").option("source", str(made.folder)).schema(LIFE_CYCLE_SCHEMA).load()


def written(frame: DataFrame, parquet: Path) -> int:
    """The rows as Parquet; how many there are."""
    frame.write.option("compression", "zstd").parquet(str(parquet))
    return frame.sparkSession.read.parquet(str(parquet)).count()


def measure_scans(
    spark: SparkSession, made: Made, parquet: Path, repeats: int, say: Callable[[str], None]
) -> list[Scan]:
    """Events, exploded on both sides."""
    say("writing the same rows to Parquet (zstd)")
    rows = written(events_of(spark, made), parquet)
    whole = Scan("all", "all columns, bodies too", 0.6, rows)
    alternate(
        whole,
        lambda: to_nowhere(events_of(spark, made)),
        lambda: to_nowhere(spark.read.parquet(str(parquet))),
        repeats,
        say,
    )
    narrow = Scan("life-cycle", f"{len(LIFE_CYCLE)} life-cycle columns", 0.5, rows)
    alternate(
        narrow,
        lambda: to_nowhere(life_cycle_of(spark, made)),
        lambda: to_nowhere(spark.read.parquet(str(parquet)).select(*LIFE_CYCLE)),
        repeats,
        say,
    )
    return [whole, narrow]


def measure_runs(spark: SparkSession, made: Made, parquet: Path, repeats: int, say: Callable[[str], None]) -> Scan:
    """Counting events by queue and kind: from runs, and from the life-cycle columns of exploded rows in Parquet."""
    say("writing the same rows to Parquet (zstd), life-cycle columns")
    rows = written(life_cycle_of(spark, made), parquet)

    def ours() -> None:
        reader = spark.read.format("penstock").option("source", str(made.folder)).option("view", "runs")
        runs = reader.schema("queue_no int, kind_no short, count long").load()
        runs.groupBy("queue_no", "kind_no").agg(sf.sum("count")).collect()

    def theirs() -> None:
        spark.read.parquet(str(parquet)).groupBy("queue_no", "kind_no").count().collect()

    scan = Scan("runs", "events counted by queue and kind, from runs", 2.0, rows)
    alternate(scan, ours, theirs, repeats, say)
    return scan


def alternate(
    scan: Scan, ours: Callable[[], None], theirs: Callable[[], None], repeats: int, say: Callable[[str], None]
) -> None:
    for repeat in range(WARM_UP + repeats):
        say(f"{scan.name}, {repeat + 1} of {WARM_UP + repeats}")
        # There and back: nobody always comes behind the same other.
        order = ((ours, scan.source_s), (theirs, scan.parquet_s))
        for run, seconds in order if repeat % 2 == 0 else order[::-1]:
            started = time.monotonic()
            run()
            if repeat >= WARM_UP:
                seconds.append(time.monotonic() - started)
