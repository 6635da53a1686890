"""`python -m benches.profile CASE`: where penstock spends its time during a case, by cProfile."""

from __future__ import annotations

import argparse
import pstats
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benches.brokers import Penstock
from benches.cases import BY_NAME, MEMORY_LIMIT_BYTES, Kind
from benches.load import build, run_load

EPILOG = """\
cProfile makes calls dearer than they are, small functions most of all. For undistorted figures sample the
running broker instead: start `penstock serve`, start the load, then
  py-spy record --native -d 5 -o profile.svg -p PID
"""


def main(argv: Sequence[str] | None = None) -> int:
    cases = [case.name for case in BY_NAME.values() if case.kind is not Kind.SPAWN]
    parser = argparse.ArgumentParser(
        prog="python -m benches.profile",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", choices=cases, metavar="CASE", help=", ".join(cases))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--top", type=int, default=35, help="how many functions")
    parser.add_argument("--sort", default="tottime", choices=("tottime", "cumtime", "ncalls"))
    parser.add_argument("--out", type=Path, help="keep the profile here (for snakeviz and the like)")
    options = parser.parse_args(argv)
    case = BY_NAME[options.case]
    build()
    with tempfile.TemporaryDirectory() as folder:
        profile = options.out or Path(folder) / "penstock.prof"
        with Penstock(MEMORY_LIMIT_BYTES if case.kind is Kind.MEMORY else None) as broker:
            broker.interpreter = (sys.executable, "-m", "cProfile", "-o", str(profile.absolute()))
            broker.start()
            _, counts = run_load(broker.pid, broker.port, max(options.seconds, case.seconds_min), case.arguments)
            broker.stop()
        print(f"{case.title}, under the profiler: {counts}")
        if not profile.exists():
            print("penstock wrote no profile: it did not end cleanly on SIGTERM", file=sys.stderr)
            return 1
        stats = pstats.Stats(str(profile))
        stats.strip_dirs().sort_stats(options.sort).print_stats(options.top)
    return 0


if __name__ == "__main__":
    sys.exit(main())
