"""`make crash`: kill a broker CYCLES times under load, and check that it kept its promises.

Cycles come in rounds; after each round everything is drained and its histories are checked. Rounds with the real limits
and rounds with tiny ones take turns. Progress is kept in FOLDER/progress.json: a run that was interrupted goes on where
it was. A round with an anomaly is kept in FOLDER with its histories, its log and its data folder, and ends the run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tests.crash.checker import Checker
from tests.crash.cycles import Driver, Round

ROUND_CYCLES = 15
ROOT = Path(__file__).resolve().parents[2]


class Progress:
    """How far the run is; survives it."""

    def __init__(self, path: Path, cycles: int, seed: int) -> None:
        self._path = path
        self.done: dict[str, Any] = {"seed": seed, "cycles": 0, "rounds": 0, "confirmed": 0, "ready_s": []}
        if path.exists():
            found = json.loads(path.read_text())
            if found["seed"] == seed and found["cycles"] < cycles:
                self.done = found

    def add(self, cycles: int, confirmed: int, ready_s: list[float]) -> None:
        self.done["cycles"] += cycles
        self.done["rounds"] += 1
        self.done["confirmed"] += confirmed
        self.done["ready_s"] += [round(each, 3) for each in ready_s]
        draft = self._path.with_suffix(".tmp")
        draft.write_text(json.dumps(self.done))
        draft.replace(self._path)

    def line(self, cycles: int) -> str:
        ready_s = self.done["ready_s"]
        return (
            f"cycle {self.done['cycles']:,} of {cycles:,}: {self.done['confirmed']:,} confirmed, 0 anomalies; ready"
            f" after {statistics.median(ready_s):.2f} s (median), {max(ready_s):.2f} s (longest)"
        )


def run_round(plan: Round) -> tuple[int, str]:
    """Confirmed messages, and what is wrong; empty when nothing is."""
    shutil.rmtree(plan.folder, ignore_errors=True)
    try:
        Driver(plan).run()
    except Exception as error:
        plan.failures.append(f"{type(error).__name__}: {error}")
    checker = Checker(plan.histories)
    problems = list(plan.failures)
    if checker.anomalies:
        problems.append(checker.report())
    return checker.record.counts["confirmed"], "\n".join(problems)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make crash", description="Kill a broker under load, again and again.")
    parser.add_argument("--cycles", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "crash")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    progress = Progress(options.folder / "progress.json", options.cycles, options.seed)
    while progress.done["cycles"] < options.cycles:
        number = progress.done["rounds"]
        cycles = min(ROUND_CYCLES, options.cycles - progress.done["cycles"])
        plan = Round(
            options.folder / f"round-{options.seed}-{number}",
            options.seed * 1_000_003 + number,
            cycles,
            small=number % 2 == 1,
        )
        started_s = time.monotonic()
        confirmed, problems = run_round(plan)
        if problems:
            sys.stdout.write(
                f"{problems}\nround {number} (seed {plan.seed}, small {plan.small}) is kept in {plan.folder}\n"
            )
            return 1
        shutil.rmtree(plan.folder)
        progress.add(cycles, confirmed, plan.ready_s)
        sys.stdout.write(f"{progress.line(options.cycles)}; round of {time.monotonic() - started_s:.0f} s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
