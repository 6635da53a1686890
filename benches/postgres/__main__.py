"""`python -m benches.postgres`: queues in PostgreSQL beside procrastinate and a plain table, one server, one run."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benches.postgres.cases import BY_NAME, CASES, QUICK, WHOLE, Plan
from benches.postgres.penstock_functions import PenstockFunctions
from benches.postgres.penstock_session import PenstockSession
from benches.postgres.plain_table import PlainTable, PlainTableWithHistory
from benches.postgres.plot import draw
from benches.postgres.procrastinate_peer import Procrastinate
from benches.postgres.report import markdown
from benches.postgres.runner import SETTINGS, Runner
from benches.postgres.systems import PENSTOCK, SESSION, System
from benches.postgres.targets import TARGETS
from benches.procstat import set_session_nice
from benches.scratch import disk_folder, file_system
from penstock.pg.binaries import PostgresMissing, find
from penstock.pg.embedded import EmbeddedPostgres

RESULTS: Final = Path(__file__).parent.parent / "results"
SYSTEMS: Final[tuple[type[System], ...]] = (
    PenstockFunctions,
    PenstockSession,
    PlainTable,
    PlainTableWithHistory,
    Procrastinate,
)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benches.postgres",
        description="Measures queues in PostgreSQL: penstock, procrastinate and a plain SKIP LOCKED table, on one"
        " server that is started for it, repeat by repeat in turn.",
        epilog=f"cases: {', '.join(BY_NAME)}; systems: {', '.join(kind.name for kind in SYSTEMS)}",
    )
    parser.add_argument("--only", metavar="CASE,...", help="only these cases")
    parser.add_argument("--systems", metavar="NAME,...", help="only these systems")
    parser.add_argument("--quick", action="store_true", help="a first impression in about two minutes")
    parser.add_argument("--rows", type=int, help=f"in the table beforehand ({WHOLE.rows:,}; quick: {QUICK.rows:,})")
    parser.add_argument("--seconds", type=float, help=f"of one phase ({WHOLE.seconds:g}; quick: {QUICK.seconds:g})")
    parser.add_argument("--flow-s", type=float, help=f"of a flow ({WHOLE.flow_s:g}; quick: {QUICK.flow_s:g})")
    parser.add_argument("--repeats", type=int, help=f"of each case ({WHOLE.repeats}; quick: {QUICK.repeats})")
    parser.add_argument("--wakeups", type=int, help=f"of an idle consumer ({WHOLE.wakeups}; quick: {QUICK.wakeups})")
    parser.add_argument("--pinned-s", type=float, help=f"with an old transaction ({WHOLE.pinned_s:g})")
    parser.add_argument("--pinned-per-s", type=float, help=f"messages offered meanwhile ({WHOLE.pinned_per_s:g})")
    parser.add_argument("--results", metavar="DIR", type=Path, default=RESULTS, help="where the reports go")
    parser.add_argument("--nice", type=int, help="scheduling of the server and this process (negative: root only)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target was missed or a repeat failed")
    options = parser.parse_args(argv)
    options.cases = list(CASES)
    if options.only:
        options.cases = [BY_NAME[name] for name in known(parser, options.only, list(BY_NAME))]
    options.chosen = list(SYSTEMS)
    if options.systems:
        by_name = {kind.name: kind for kind in SYSTEMS}
        options.chosen = [by_name[name] for name in known(parser, options.systems, list(by_name))]
    options.plan = plan_of(options)
    # A partial run does not overwrite the report of a whole one.
    whole = options.plan == WHOLE and not options.only and not options.systems
    options.name = "postgres" if whole else "postgres-partial"
    return options


def known(parser: argparse.ArgumentParser, given: str, names: Sequence[str]) -> list[str]:
    asked = given.split(",")
    unknown = [name for name in asked if name not in names]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)} (there are: {', '.join(names)})")
    return asked


def plan_of(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else WHOLE
    names = [field.name for field in dataclasses.fields(Plan)]
    given = {name: value for name in names if (value := vars(options).get(name)) is not None}
    return dataclasses.replace(plan, **given)


def machine(options: argparse.Namespace, systems: Sequence[System], major: int) -> str:
    versions = ", ".join(f"{system.name} {system.version()}" for system in systems)
    settings = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"{today}; {os.cpu_count()} cores, {platform.system()} {platform.machine()}; Python"
        f" {platform.python_version()}; PostgreSQL {major} ({settings}) on {file_system(disk_folder())}, over a local"
        f" socket, on the same machine; {versions}. Medians of {options.plan.repeats} repeats, phases of"
        f" {options.plan.seconds:g} s, systems in turn."
    )


def write_reports(runner: Runner, options: argparse.Namespace, text: str) -> None:
    (options.results / f"{options.name}.md").write_text(text)
    written = [f"{options.name}.md", f"{options.name}.jsonl"]
    try:
        if draw(runner.summary, options.results / f"{options.name}.png"):
            written.append(f"{options.name}.png")
    except ImportError:
        runner.progress.note("no plot: matplotlib is not installed")
    runner.progress.note(f"written to {options.results}: {', '.join(written)}")


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    try:
        binaries = find()
    except PostgresMissing as error:
        print(error, file=sys.stderr)
        return 2
    options.results.mkdir(parents=True, exist_ok=True)
    systems = [kind() for kind in options.chosen]
    server = EmbeddedPostgres(tempfile.mkdtemp(prefix="penstock-bench-", dir=disk_folder()), SETTINGS)
    try:
        server.start()
        if options.nice is not None and server.pid is not None:
            for pid in (server.pid, os.getpid()):
                set_session_nice(pid, options.nice)
        runner = Runner(server, systems, options.cases, options.plan)
        try:
            runner.run(options.results / f"{options.name}.jsonl")
        except KeyboardInterrupt:
            runner.progress.note("interrupted; PostgreSQL stopped, no report written")
            return 130
    finally:
        server.remove()
    text = markdown(runner.summary, options.plan, machine(options, systems, binaries.major))
    print(text)
    write_reports(runner, options, text)
    failed = [case for system in (PENSTOCK, SESSION) for case in runner.summary.failed_cases(system)]
    if failed:
        print(f"penstock could not be measured: {', '.join(failed)}", file=sys.stderr)
        return 1
    missed = any(target.met(runner.summary) is False for target in TARGETS)
    return 1 if options.strict and (missed or runner.summary.errors()) else 0


if __name__ == "__main__":
    sys.exit(main())
