"""The command line of the simulation: one seed in detail, or many seeds with progress.

    python -m tests.simulation --seed 7              every step of one seed
    python -m tests.simulation --seeds 1000000       many seeds; those that fail are named
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.simulation.simulation import run_seed

PROGRESS_EVERY_S = 1.0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show_seed(seed: int) -> int:
    try:
        simulation = run_seed(seed, say)
    except Exception:
        say(traceback.format_exc())
        return 1
    say(f"seed {seed} is fine: {simulation.lives} lives, {len(simulation.calls)} file calls")
    return 0


def run_seeds(first: int, count: int) -> int:
    begun = time.monotonic()
    shown = begun
    failed: list[int] = []
    for number in range(count):
        seed = first + number
        try:
            run_seed(seed)
        except Exception as error:
            failed.append(seed)
            say(f"\rseed {seed} fails: {type(error).__name__}: {error}")
        now = time.monotonic()
        if sys.stdout.isatty() and now - shown >= PROGRESS_EVERY_S:
            shown = now
            rate = (number + 1) / (now - begun)
            left_s = (count - number - 1) / rate
            sys.stdout.write(f"\r{number + 1} of {count} seeds, {len(failed)} failed, {left_s:.0f} s to go \x1b[K")
            sys.stdout.flush()
    say(f"\r{count} seeds from {first} on, {len(failed)} failed, {time.monotonic() - begun:.0f} s")
    if failed:
        say(f"python -m tests.simulation --seed {failed[0]} shows every step of the first that failed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate nodes that crash.")
    parser.add_argument("--seed", type=int, help="show every step of this seed")
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run (2000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    options = parser.parse_args()
    if options.seed is not None:
        return show_seed(options.seed)
    return run_seeds(options.first, options.seeds)


if __name__ == "__main__":
    sys.exit(main())
