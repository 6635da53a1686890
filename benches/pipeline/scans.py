"""Journal to Spark, beside the same rows in Parquet: warm, in one session, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from benches.pipeline.journals import Made
from penstock.pipeline.source.frames import read_log
from penstock.pipeline.source.shape import spark_schema

LIFE_CYCLE: Final = ("lsn", "time", "queue_no", "seq", "kind_no")
RUNS_SCHEMA: Final = "lsn long, time timestamp, queue_no int, seq long, count long, kind_no short"
# A message, where it went, and when: what most queries over bodies need.
NINE: Final = ("lsn", "time", "queue", "kind", "seq", "exchange", "routing_key", "size", "body")
PARQUET_PARTITION_BYTES: Final = 16 * 1024 * 1024
# Before the first repeat that counts, each side runs so often: the JIT has to warm up.
WARM_UP: Final = 8
# What is run, and where its seconds go.
Side = tuple[Callable[[], object], list[float]]


@dataclass
class Scan:
    """A case: seconds of each repeat, ours and the others'."""

    name: str
    title: str
    # The ratio to reach; None for a figure that nobody asked for.
    target: float | None
    rows: int
    source_s: list[float] = field(default_factory=list)
    parquet_s: list[float] = field(default_factory=list)
    # By `spark.read.format("penstock")`, where the others are by `read_log`.
    format_s: list[float] = field(default_factory=list)

    def ratio(self) -> float:
        return statistics.median(self.parquet_s) / statistics.median(self.source_s)

    def source_per_s(self) -> float:
        return self.rows / statistics.median(self.source_s)

    def parquet_per_s(self) -> float:
        return self.rows / statistics.median(self.parquet_s)

    def format_ratio(self) -> float | None:
        return statistics.median(self.parquet_s) / statistics.median(self.format_s) if self.format_s else None


def events_of(
    spark: SparkSession, made: Made, columns: Sequence[str] = (), partition_bytes: int | None = None
) -> DataFrame:
    """All columns, or those that are named."""
    reader = spark.read.format("penstock").option("source", str(made.folder))
    if partition_bytes is not None:
        reader = reader.option("partitionBytes", partition_bytes)
    whole = spark_schema("events")
    return reader.schema(StructType([whole[name] for name in columns or whole.names])).load()


def to_nowhere(frame: DataFrame) -> None:
    """Every row is made, none is kept."""
    frame.write.format("noop").mode("overwrite").save()


def scan_journal(spark: SparkSession, made: Made, columns: Sequence[str]) -> None:
    to_nowhere(read_log(spark, {"source": made.folder}, columns))


def scan_format(spark: SparkSession, made: Made, columns: Sequence[str]) -> None:
    to_nowhere(events_of(spark, made, columns))


def scan_parquet(spark: SparkSession, parquet: Path, columns: Sequence[str]) -> None:
    to_nowhere(spark.read.parquet(str(parquet)).select(*columns))


def written(spark: SparkSession, made: Made, columns: Sequence[str], parquet: Path) -> int:
    """The rows as Parquet, in files small enough that Spark shares them evenly among its cores; how many there are."""
    frame = events_of(spark, made, columns, PARQUET_PARTITION_BYTES)
    frame.write.option("compression", "zstd").parquet(str(parquet))
    return spark.read.parquet(str(parquet)).count()


def measure_scans(
    spark: SparkSession, made: Made, parquet: Path, rows_are: str, repeats: int, say: Callable[[str], None]
) -> list[Scan]:
    """Events, exploded on both sides."""
    say(f"writing the same rows to Parquet (zstd): {rows_are}")
    rows = written(spark, made, (), parquet)
    whole = spark_schema("events").names
    scans = []
    for name, title, target, columns in (
        ("all", f"all {len(whole)} columns, bodies too", 0.6, whole),
        ("nine", f"{len(NINE)} columns, bodies too", 0.6, NINE),
        ("life-cycle", f"{len(LIFE_CYCLE)} life-cycle columns", 0.5, LIFE_CYCLE),
    ):
        scan = Scan(f"{name}-{rows_are}", f"{rows_are}: {title}", target, rows)
        sides: list[Side] = [
            (partial(scan_journal, spark, made, columns), scan.source_s),
            (partial(scan_format, spark, made, columns), scan.format_s),
            (partial(scan_parquet, spark, parquet, columns), scan.parquet_s),
        ]
        alternate(scan, sides, repeats, say)
        scans.append(scan)
    return scans


def measure_runs(
    spark: SparkSession, made: Made, parquet: Path, repeats: int, say: Callable[[str], None]
) -> list[Scan]:
    """Runs, beside the life-cycle columns of exploded rows in Parquet: scanned, and counted by queue and kind."""
    say("writing the same rows to Parquet (zstd), life-cycle columns")
    rows = written(spark, made, LIFE_CYCLE, parquet)

    def runs() -> DataFrame:
        reader = spark.read.format("penstock").option("source", str(made.folder)).option("view", "runs")
        return reader.schema(RUNS_SCHEMA).load()

    scanned = Scan("runs", "runs with their counts; in Parquet the life-cycle columns of each event", 2.0, rows)
    sides: list[Side] = [
        (lambda: to_nowhere(runs()), scanned.source_s),
        (lambda: to_nowhere(spark.read.parquet(str(parquet))), scanned.parquet_s),
    ]
    alternate(scanned, sides, repeats, say)
    counted = Scan("runs-counted", "events counted by queue and kind, from runs; in Parquet from 2 columns", None, rows)
    sides = [
        (lambda: runs().groupBy("queue_no", "kind_no").agg(sf.sum("count")).collect(), counted.source_s),
        (lambda: spark.read.parquet(str(parquet)).groupBy("queue_no", "kind_no").count().collect(), counted.parquet_s),
    ]
    alternate(counted, sides, repeats, say)
    return [scanned, counted]


def alternate(scan: Scan, sides: Sequence[Side], repeats: int, say: Callable[[str], None]) -> None:
    for repeat in range(WARM_UP + repeats):
        say(f"{scan.name}, {repeat + 1} of {WARM_UP + repeats}")
        # There and back: nobody always comes behind the same other.
        for run, seconds in sides if repeat % 2 == 0 else sides[::-1]:
            started = time.monotonic()
            run()
            if repeat >= WARM_UP:
                seconds.append(time.monotonic() - started)
