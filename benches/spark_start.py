"""`python -m benches.spark_start`: how long Spark takes to start, with and without the archive of its classes.

Makes the archive first, in a cache of its own (`penstock pipeline prepare`). Then starts Spark in turn with and
without, each time in a process of its own, until a first query has its answer.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PROGRAM: Final = """
from penstock.pipeline.session import spark_session
spark = spark_session("start", "local[2]")
assert spark.range(10).selectExpr("sum(id)").first()[0] == 45
spark.stop()
"""
START_S_MAX: Final = 300


def seconds(cache: Path) -> float:
    """Of one start, with what is in this cache."""
    began = time.monotonic()
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, timeout=START_S_MAX, check=True, stderr=subprocess.DEVNULL
    )
    return time.monotonic() - began


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benches.spark_start", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        with_archive, without = Path(name, "with"), Path(name, "without")
        command = [sys.executable, "-m", "penstock", "pipeline", "prepare"]
        subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": str(with_archive)}, check=True)
        starts: dict[Path, list[float]] = {with_archive: [], without: []}
        for _ in range(given.repeats):
            for cache, taken in starts.items():
                taken.append(seconds(cache))
    fast, slow = statistics.median(starts[with_archive]), statistics.median(starts[without])
    print(f"with the archive {fast:.1f} s, without {slow:.1f} s: {fast / slow:.2f} (medians of {given.repeats})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
