"""Put each bug of the list into a copy of the source, and see whether its killers notice. Exit code 1 if one survives.

python -m tests.mutants                         all of them
python -m tests.mutants --only 'dead_letter*'   those whose names match
python -m tests.mutants --list                  what is promised, and who watches over it
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutant import Mutant, load
from tests.mutants.runner import KILLED, Judge, Result, copied_source, end_all

# Of one mutant; most take a few seconds, some start brokers and databases.
LIMIT_S = 600.0


def say(text: str) -> None:
    """Progress goes to stderr, so that the result can be piped."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="GLOB", nargs="+", default=["*"], help="mutants whose name matches one")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument("--json", action="store_true", help="write the results as JSON to stdout")
    parser.add_argument("--workers", type=int, metavar="N", default=os.cpu_count() or 1, help="copies of the source")
    parser.add_argument("--limit", type=float, metavar="SECONDS", default=LIMIT_S, help="time for one mutant (600)")
    return parser.parse_args()


def run_all(mutants: Sequence[Mutant], workers: int, limit_s: float) -> list[Result]:
    """Try the mutants, several at a time; results in the order of the list."""
    results: dict[str, Result] = {}
    judge = Judge(limit_s)
    with ExitStack() as stack, ThreadPoolExecutor(workers) as pool:
        folders: SimpleQueue[Path] = SimpleQueue()
        for _ in range(min(workers, len(mutants))):
            folders.put(stack.enter_context(copied_source()))

        def run(mutant: Mutant) -> Result:
            folder = folders.get()
            try:
                return judge.verdict(mutant, folder)
            finally:
                folders.put(folder)

        for done in as_completed([pool.submit(run, mutant) for mutant in mutants]):
            result = done.result()
            results[result.name] = result
            by = f" by {result.killer}" if result.killer else ""
            say(f"{len(results):3} of {len(mutants)}  {result.seconds:6.1f} s  {result.verdict}: {result.name}{by}")
    return [results[mutant.name] for mutant in mutants]


def main() -> int:
    given = options()
    mutants = [mutant for mutant in load() if any(fnmatchcase(mutant.name, only) for only in given.only)]
    if not mutants:
        say(f"no mutant is called {' or '.join(given.only)}; --list shows their names")
        return 2
    if given.list:
        for mutant in mutants:
            sys.stdout.write(f"{mutant.name}\n    {mutant.promise}\n    {mutant.file}\n")
            sys.stdout.write("".join(f"    killed by {killer}\n" for killer in mutant.killers))
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_all)
    results = run_all(mutants, given.workers, given.limit)
    alive = [result for result in results if result.verdict != KILLED]
    if given.json:
        sys.stdout.write(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    for result in alive:
        say(f"\n{result.name}: {result.verdict}\n{result.output}")
    say(f"{len(results) - len(alive)} of {len(results)} mutants were killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
