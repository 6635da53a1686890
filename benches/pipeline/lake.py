"""Journal to lake, and bronze to lives: events a second, and how much memory the whole family of processes takes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benches.pipeline.journals import Made
from benches.procstat import tree_pids
from penstock.pipeline.archive import ArchiveOptions, archive
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.refine.refine import refine

LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Done:
    """A job that went over so many events."""

    events: int
    seconds: float
    # The largest sum of resident memory of this process, its JVM and their workers.
    peak_bytes: int

    @property
    def per_s(self) -> float:
        return self.events / self.seconds


class MemoryWatch:
    """The peak, while a block runs."""

    def __enter__(self) -> MemoryWatch:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            self.peak_bytes = max(self.peak_bytes, sum(resident_bytes(pid) for pid in tree_pids(os.getpid())))


def resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure_archive(spark: SparkSession, made: Made, lake: Path, say: Callable[[str], None]) -> Done:
    """Everything into bronze, in one go."""
    say("archive")
    with MemoryWatch() as memory:
        started = time.monotonic()
        progress = archive(spark, ArchiveOptions(str(made.folder), str(lake), once=True))
        seconds = time.monotonic() - started
    return Done(progress.events, seconds, memory.peak_bytes)


def measure_refine(spark: SparkSession, lake: Path, step_events: int, say: Callable[[str], None]) -> Done:
    """All of bronze into silver and gold."""
    with MemoryWatch() as memory:
        started = time.monotonic()
        result = refine(
            spark,
            Lake(lake),
            step_events=step_events,
            on_step=lambda done: say(f"refine, {done.lsn:,} of {done.end_lsn:,}"),
        )
        seconds = time.monotonic() - started
    return Done(result.events, seconds, memory.peak_bytes)
