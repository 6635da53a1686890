"""`python -m benches profile --case CASE`: where penstock spends its time during a case, by sampling it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from benches.backlog import Phases
from benches.brokers import Penstock
from benches.cases import BACKLOG_MESSAGES, BY_NAME, FEATURE_KINDS, FEATURE_MESSAGES, MEMORY_LIMIT_BYTES, Case, Kind
from benches.features import FeaturePhases
from benches.load import build, run_load

EPILOG: Final = """\
The interpreter is sampled every few milliseconds of CPU time; time in C counts for the Python function that called it.
To see that C code, sample from outside: start `penstock serve`, start the load, then
  py-spy record --native -d 5 -o profile.svg -p PID
"""
WRITE_DEADLINE_S: Final = 10.0


class ProfiledPenstock(Penstock):
    """penstock with a sampler inside."""

    def __init__(self, memory_limit_bytes: int | None, top: int) -> None:
        super().__init__(memory_limit_bytes)
        self._top = top
        self._samples = self.folder / "samples.json"
        self.program = ("-m", "benches.profiled", str(self._samples))

    def tell(self, title: str) -> None:
        """Prints what was sampled since the last time."""
        found = self.take()
        samples = found["samples"]
        print(f"\n== {title}: {samples} samples")
        for kind, counts in (("own", found["own"]), ("with what it calls", found["whole"])):
            # What is always on the stack says nothing.
            told = {name: count for name, count in counts.items() if count < samples}
            print(f"\n{kind}")
            for name, count in sorted(told.items(), key=lambda item: -item[1])[: self._top]:
                print(f"  {100 * count / samples:5.1f} %  {name}")

    def take(self) -> dict[str, Any]:
        """What was sampled since the last time."""
        self._samples.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + WRITE_DEADLINE_S
        while not self._samples.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the broker wrote no samples")
            time.sleep(0.01)
        found: dict[str, Any] = json.loads(self._samples.read_text())
        return found


def profile_load(broker: ProfiledPenstock, case: Case, seconds: float) -> None:
    broker.start()
    broker.take()
    _, counts = run_load(broker.pid, broker.port, max(seconds, case.seconds_min), case.arguments)
    broker.tell(f"{case.title}: {counts}")


def profile_backlog(broker: ProfiledPenstock, case: Case, messages: int) -> None:
    phases = Phases(broker, case, messages)
    broker.start()
    broker.take()
    phases.publish()
    broker.tell(f"published {messages:,}: {phases.metrics}")
    if case.kind is Kind.RESTART:
        broker.kill()
        phases.restart("killed")
        broker.tell(f"started after kill -9: {phases.metrics}")
        phases.stop()
        phases.restart("stopped")
        broker.tell(f"started after a clean stop: {phases.metrics}")
    phases.drain()
    broker.tell(f"drained {messages:,}: {phases.metrics}")


def profile_feature(broker: ProfiledPenstock, case: Case, messages: int) -> None:
    phases = FeaturePhases(broker, case, messages)
    broker.start()
    broker.take()
    for title, step in phases.steps:
        step()
        broker.tell(f"{title} {messages:,}: {phases.metrics}")


def main(argv: Sequence[str]) -> int:
    cases = [case.name for case in BY_NAME.values() if case.kind is not Kind.SPAWN]
    parser = argparse.ArgumentParser(
        prog="python -m benches profile",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", required=True, choices=cases, metavar="CASE", help=", ".join(cases))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--backlog", type=int, metavar="N", help="messages of a backlog, or of a feature's case")
    parser.add_argument("--top", type=int, default=25, help="how many functions")
    options = parser.parse_args(argv)
    case = BY_NAME[options.case]
    build()
    with ProfiledPenstock(MEMORY_LIMIT_BYTES if case.kind is Kind.MEMORY else None, options.top) as broker:
        if case.kind in (Kind.BACKLOG, Kind.RESTART):
            profile_backlog(broker, case, round((options.backlog or BACKLOG_MESSAGES) * case.share))
        elif case.kind in FEATURE_KINDS:
            profile_feature(broker, case, round((options.backlog or FEATURE_MESSAGES) * case.share))
        else:
            profile_load(broker, case, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
