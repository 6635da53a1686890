"""`python -m benches.pipeline`: the figures of the pipeline, into benches/results/pipeline.md."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from benches.pipeline.history_cost import measure_history_cost
from benches.pipeline.journals import EVENTS_PER_MESSAGE, make_journal
from benches.pipeline.lake import measure_archive, measure_refine
from benches.pipeline.report import Figures, markdown
from benches.pipeline.scans import Scan, measure_runs, measure_scans
from benches.scratch import disk_folder
from penstock.pipeline.session import spark_session

RESULTS: Final = Path(__file__).resolve().parent.parent / "results"
# docs/pipeline.md: what whoever scans much sets.
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
PARTS: Final = ("scans", "lake", "history")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.pipeline", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--events", type=int, default=6_000_000, help="that are scanned (6,000,000)")
    parser.add_argument("--run-events", type=int, default=30_000_000, help="that are counted from runs (30,000,000)")
    parser.add_argument(
        "--lake-events", type=int, default=10_000_000, help="that are archived and refined (10,000,000)"
    )
    parser.add_argument("--step-events", type=int, default=2_000_000, help="of one step of refine")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--driver-memory", default="2g")
    parser.add_argument("--master", default="local[*]", help="for both sides (local[*]: as many tasks as cores)")
    parser.add_argument("--nice", type=int, help="of the brokers and their load, with the right to set it")
    given = parser.parse_args()
    given.only = given.only.split(",")
    if not set(given.only) <= set(PARTS):
        parser.error(f"--only: there are {', '.join(PARTS)}")
    return given


def say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
    else:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def scans(given: argparse.Namespace, spark: SparkSession, folder: Path) -> list[Scan]:
    """Each on a journal of its own, which is removed behind it."""
    found: list[Scan] = []
    journal, parquet = folder / "journal", folder / "parquet"
    for rows_are, messages, lives in (
        ("published", given.events, False),
        ("lives", given.events // EVENTS_PER_MESSAGE, True),
    ):
        made = make_journal(journal, messages, lives=lives)
        found += measure_scans(spark, made, parquet, rows_are, given.repeats, say)
        shutil.rmtree(journal)
        shutil.rmtree(parquet)
    made = make_journal(journal, given.run_events // EVENTS_PER_MESSAGE)
    found += measure_runs(spark, made, parquet, given.repeats, say)
    shutil.rmtree(journal)
    shutil.rmtree(parquet)
    return found


def main() -> None:
    given = arguments()
    machine = (
        f"{datetime.now(UTC):%Y-%m-%d}; {os.cpu_count()} cores, {platform.system()} {platform.machine()};"
        f" Python {platform.python_version()}; Spark {pyspark.__version__}, {given.master},"
        f" driver memory {given.driver_memory}, {UNIX_SOCKETS}. `python -m benches.pipeline {' '.join(sys.argv[1:])}`"
    )
    figures = Figures(machine)
    if "history" in given.only:
        figures.history = measure_history_cost(given.repeats, say, given.nice)
    folder = Path(tempfile.mkdtemp(prefix="bench-pipeline-", dir=disk_folder()))
    try:
        config = {"spark.driver.memory": given.driver_memory, UNIX_SOCKETS: "true"}
        spark = spark_session("penstock bench", given.master, config)
        if "scans" in given.only:
            figures.scans = scans(given, spark, folder)
        if "lake" in given.only:
            made = make_journal(folder / "lake-source", given.lake_events // EVENTS_PER_MESSAGE, keep_open=0.01)
            figures.archive = measure_archive(spark, made, folder / "lake", say)
            figures.refine = measure_refine(spark, folder / "lake", given.step_events, say)
        spark.stop()
    finally:
        shutil.rmtree(folder)
        say("")
        text = markdown(figures)
        print(text)
    name = "pipeline.md" if set(given.only) == set(PARTS) else "pipeline-partial.md"
    (RESULTS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
