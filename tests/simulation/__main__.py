"""The command line of the simulation: one seed in detail, or many seeds with progress.

python -m tests.simulation --seed 7              every step of one seed
python -m tests.simulation --seeds 1000000       many seeds; those that fail are named
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Protocol

from tests.simulation.simulation import run_seed

# Seeds that a process is given at once.
CHUNK = 50


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Simulated(Protocol):
    """A seed that went well."""

    lives: int
    calls: list[tuple[str, str]]


# Runs one seed, and tells each step to the function that it is given.
RunSeed = Callable[..., Simulated]


def show_seed(run: RunSeed, seed: int) -> int:
    try:
        simulation = run(seed, say)
    except Exception:
        say(traceback.format_exc())
        return 1
    say(f"seed {seed} is fine: {simulation.lives} lives, {len(simulation.calls)} file calls")
    return 0


def failures(run: RunSeed, seeds: range) -> dict[int, str]:
    """Run some seeds, in a process of their own; what went wrong."""
    # A node that cannot page, or must stop, says so; here that is what was planned.
    logging.disable()
    failed: dict[int, str] = {}
    for seed in seeds:
        try:
            run(seed)
        except Exception as error:
            failed[seed] = f"{type(error).__name__}: {error}"
    return failed


def run_seeds(name: str, run: RunSeed, first: int, count: int, workers: int) -> int:
    begun = time.monotonic()
    end = first + count
    chunks = [range(start, min(start + CHUNK, end)) for start in range(first, end, CHUNK)]
    done = 0
    failed: list[int] = []
    with ProcessPoolExecutor(workers) as pool:
        for chunk, found in zip(chunks, pool.map(partial(failures, run), chunks), strict=True):
            done += len(chunk)
            for seed, text in found.items():
                failed.append(seed)
                say(f"\rseed {seed} fails: {text}")
            if sys.stdout.isatty():
                left_s = (count - done) * (time.monotonic() - begun) / done
                sys.stdout.write(f"\r{done} of {count} seeds, {len(failed)} failed, {left_s:.0f} s to go \x1b[K")
                sys.stdout.flush()
    say(f"\r{count} seeds from {first} on, {len(failed)} failed, {time.monotonic() - begun:.0f} s")
    if failed:
        say(f"python -m {name} --seed {failed[0]} shows every step of the first that failed")
    return 1 if failed else 0


def main(name: str, run: RunSeed) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description="Simulate nodes that crash.")
    parser.add_argument("--seed", type=int, help="show every step of this seed")
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run (2000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")
    options = parser.parse_args()
    if options.seed is not None:
        return show_seed(run, options.seed)
    return run_seeds(name, run, options.first, options.seeds, options.workers)


if __name__ == "__main__":
    sys.exit(main("tests.simulation", run_seed))
