"""Break what stands around queues in PostgreSQL: `python -m tests.postgres.faults --faults N --seed S`.

Faults come in rounds; after each round everything is drained and checked. The first round with a problem ends the run,
and says how to have it again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter

from penstock.pg.embedded import EmbeddedPostgres
from tests.postgres.faults.rounds import Plan, Round, plans
from tests.postgres.faults.stage import Stage

LOG_CHARACTERS = 4_000


def run_plans(chosen: list[Plan], is_talking: bool, server: EmbeddedPostgres | None = None) -> list[str]:
    """All rounds on one stage; what is wrong with the first bad one."""
    done: Counter[str] = Counter()
    began_s = time.monotonic()
    with Stage(server) as stage:
        for plan in chosen:
            course = Round(stage, plan)
            problems = course.run()
            done.update(plan.faults)
            if is_talking:
                sys.stdout.write(
                    f"round {plan.number}: {done.total()} faults in {time.monotonic() - began_s:.0f} s,"
                    f" {len(problems)} problems; {course.ledger.counts}; {', '.join(plan.faults)}\n"
                )
                sys.stdout.flush()
            if problems:
                logs = [f"--- node {number}\n{node.log[-LOG_CHARACTERS:]}" for number, node in enumerate(stage.nodes)]
                return [f"round {plan.number} of seed {plan.seed}: {', '.join(plan.faults)}", *problems, *logs]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.postgres.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=int, help="only this round of the seed")
    options = parser.parse_args()
    # What was started is ended also then.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    chosen = plans(options.seed, options.faults)
    if options.round is not None:
        chosen = [plan for plan in plans(options.seed, 5 * (options.round + 1)) if plan.number == options.round]
    problems = run_plans(chosen, is_talking=True)
    sys.stdout.write("".join(f"{text}\n" for text in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
