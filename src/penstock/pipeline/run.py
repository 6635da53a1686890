"""`penstock pipeline run`: archive all the time, refine and report now and then, in one Spark session.

It stands beside a broker on one machine (`make run`). Archiving has this thread, the other two follow it on one of
their own. A refinement or report that fails is logged and tried again; when archiving fails, that is the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.pipeline import defaults
from penstock.pipeline.archive import ArchiveOptions, ArchiveProgress, archive, end_of
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.reading import largest
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.refine.refine import refine
from penstock.pipeline.report.report import report
from penstock.pipeline.spark_errors import SPARK_ERRORS, in_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class RunOptions:
    archive: ArchiveOptions
    refine_every_s: float = defaults.REFINE_EVERY_S
    # Where the page goes; None for `report.html` in the lake.
    report: str | None = None


class Refining:
    """Refines and reports on a thread, when there is something new and its time has come."""

    def __init__(self, spark: SparkSession, lake: Lake, options: RunOptions, say: Callable[[str], None]) -> None:
        from pyspark import InheritableThread

        self._spark = spark
        self._lake = lake
        self._options = options
        self._say = say
        # Behind the last event that the lake has. What was archived before may not be refined yet.
        self._archived_lsn = end_of(lake) or 0
        self._ending = threading.Event()
        # Spark does not find sources written in Python on another thread than the first: archiving has that one.
        self._thread = InheritableThread(target=self._work, session=spark)
        self._thread.daemon = True

    def start(self) -> None:
        self._thread.start()

    def archived(self, progress: ArchiveProgress) -> None:
        self._archived_lsn = progress.lsn

    def stop(self) -> None:
        """Ask for the end, and wait for it."""
        self._ending.set()
        self._thread.join()

    def _work(self) -> None:
        refined_lsn = 0
        due_s = time.monotonic()
        while not self._ending.wait(LOOK_S):
            archived_lsn = self._archived_lsn
            if archived_lsn > refined_lsn and time.monotonic() >= due_s:
                if largest(self._lake.table("bronze"), "lsn") is None:
                    # Declarations have positions in the log, and are no events of messages.
                    refined_lsn = archived_lsn
                    continue
                if refine_and_report(self._spark, self._lake, self._options, self._say):
                    refined_lsn = archived_lsn
                due_s = time.monotonic() + self._options.refine_every_s


def run(spark: SparkSession, options: RunOptions, say: Callable[[str], None], stop: Callable[[], bool]) -> None:
    """Go on until `stop` says so. The errors of `archive`."""
    refining = Refining(spark, Lake(options.archive.lake, options.archive.format), options, say)
    refining.start()
    try:
        archive(spark, options.archive, refining.archived, stop)
    finally:
        refining.stop()


def refine_and_report(spark: SparkSession, lake: Lake, options: RunOptions, say: Callable[[str], None]) -> bool:
    """Return whether it was done; if not, it was told why."""
    out = Path(options.report).absolute() if options.report is not None else lake.path / "report.html"
    try:
        result = refine(spark, lake)
        report(lake, out)
    except (LakeError, OSError) as error:
        say(f"not refined: {error}")
        return False
    except SPARK_ERRORS as error:
        say(f"not refined: {in_words(error)}")
        return False
    say(f"{result.events:,} events refined, {result.lives:,} lives ended, {result.open:,} open; report {out.as_uri()}")
    return True
