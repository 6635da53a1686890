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
    source_s: list[float] = field(default_factory=list)
    parquet_s: list[float] = field(default_factory=list)

    def ratio(self) -> float:
        return statistics.median(self.parquet_s) / statistics.median(self.source_s)

    def source_per_s(self, events: int) -> float:
        return events / statistics.median(self.source_s)

    def parquet_per_s(self, events: int) -> float:
        return events / statistics.median(self.parquet_s)


def events_of(spark: SparkSession, made: Made, view: str = "events") -> DataFrame:
    return spark.read.format("penstock").option("source", str(made.folder)).option("view", view).load()


def to_nowhere(frame: DataFrame) -> None:
    """Every row is made, none is kept."""
    frame.write.format("noop").mode("overwrite").save()


def measure_scans(
    spark: SparkSession, made: Made, parquet: Path, repeats: int, say: Callable[[str], None]
) -> tuple[list[Scan], int]:
    """All cases, and how many rows the events view has."""
    if not parquet.exists():
        say("writing the same rows to Parquet (zstd)")
        events_of(spark, made).write.option("compression", "zstd").parquet(str(parquet))
    rows = spark.read.parquet(str(parquet)).count()

    def source_all() -> None:
        to_nowhere(events_of(spark, made))

    def parquet_all() -> None:
        to_nowhere(spark.read.parquet(str(parquet)))

    def source_life_cycle() -> None:
        reader = spark.read.format("penstock").option("source", str(made.folder)).schema(LIFE_CYCLE_SCHEMA)
        to_nowhere(reader.load())

    def parquet_life_cycle() -> None:
        to_nowhere(spark.read.parquet(str(parquet)).select(*LIFE_CYCLE))

    def source_count() -> None:
        runs = (
            spark.read.format("penstock")
            .option("source", str(made.folder))
            .option("view", "runs")
            .schema("queue_no int, kind_no short, count long")
            .load()
        )
        runs.groupBy("queue_no", "kind_no").agg(sf.sum("count")).collect()

    def parquet_count() -> None:
        spark.read.parquet(str(parquet)).groupBy("queue_no", "kind_no").count().collect()

    cases = [
        (Scan("all", "all columns, bodies too", 0.6), source_all, parquet_all),
        (Scan("life-cycle", f"{len(LIFE_CYCLE)} life-cycle columns", 0.5), source_life_cycle, parquet_life_cycle),
        (Scan("runs", "events counted by queue and kind, from runs", 2.0), source_count, parquet_count),
    ]
    for scan, ours, theirs in cases:
        for repeat in range(WARM_UP + repeats):
            say(f"{scan.name}, {repeat + 1} of {WARM_UP + repeats}")
            # There and back: nobody always comes behind the same other.
            order = ((ours, scan.source_s), (theirs, scan.parquet_s))
            for run, seconds in order if repeat % 2 == 0 else order[::-1]:
                started = time.monotonic()
                run()
                if repeat >= WARM_UP:
                    seconds.append(time.monotonic() - started)
    return [scan for scan, _, _ in cases], rows
