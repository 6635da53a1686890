"""`python -m benches`: penstock and rabbitmq-server side by side in one run."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benches import profile
from benches.brokers import Broker, Penstock
from benches.cases import BACKLOG_MESSAGES, BY_NAME, CASES, FEATURE_MESSAGES
from benches.glance import draw_glance
from benches.load import BuildError, build
from benches.plot import draw
from benches.rabbitmq import RabbitMQ
from benches.report import markdown
from benches.revision import RevisionError, checked_out, compiled_penstock
from benches.runner import Plan, Runner
from benches.scratch import disk_folder, file_system
from benches.summary import PENSTOCK
from benches.targets import TARGETS

RESULTS: Final = Path(__file__).parent / "results"
NO_RABBITMQ: Final = (
    "rabbitmq-server is not installed: penstock is measured alone, without ratios.\n"
    "To compare, install it (Debian: apt-get install rabbitmq-server; its service need not run)."
)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benches",
        description="Measures penstock beside rabbitmq-server: one run, one machine, repeat by repeat in turn.",
        epilog="cases: "
        + ", ".join(case.name for case in CASES)
        + ". `python -m benches profile --help`: where penstock spends its time.",
    )
    parser.add_argument("--only", metavar="CASE,...", help="only these cases")
    parser.add_argument("--seconds", type=float, help="length of one repeat (3; quick: 1)")
    parser.add_argument("--repeats", type=int, help="repeats of each case for each broker (3; quick: 2)")
    parser.add_argument("--quick", action="store_true", help="a first impression in about six minutes")
    parser.add_argument(
        "--large",
        action="store_true",
        help="backlogs and restarts as well, and features with as many messages: 4 GiB of memory",
    )
    parser.add_argument(
        "--backlog",
        metavar="N",
        type=int,
        default=BACKLOG_MESSAGES,
        help=f"messages of a backlog ({BACKLOG_MESSAGES:,}; fewer for a trial)",
    )
    parser.add_argument(
        "--against",
        metavar="REF",
        help="measure this git revision of penstock as well, real loads and plain queues; or this one `interpreted`",
    )
    parser.add_argument(
        "--build",
        choices=("interpreted", "compiled"),
        default="interpreted",
        help="penstock's source as it is, or with its hot path compiled (tools/compile.py)",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="one JSON line per repeat (results/NAME.jsonl)")
    parser.add_argument("--results", metavar="DIR", type=Path, default=RESULTS, help="where the reports go")
    parser.add_argument("--nice", type=int, help="scheduling of brokers and load (negative: root only)")
    parser.add_argument("--without-rabbitmq", action="store_true", help="penstock alone")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target was missed or a repeat failed")
    options = parser.parse_args(argv)
    options.seconds = options.seconds or (1.0 if options.quick else 3.0)
    options.repeats = options.repeats or (2 if options.quick else 3)
    fewer = FEATURE_MESSAGES // 10 if options.quick else FEATURE_MESSAGES
    options.features = options.backlog if options.large else min(fewer, options.backlog)
    options.cases = [case for case in CASES if options.large or not case.large]
    if options.only:
        unknown = [name for name in options.only.split(",") if name not in BY_NAME]
        if unknown:
            parser.error(f"no such case: {', '.join(unknown)} (there are: {', '.join(BY_NAME)})")
        options.cases = [BY_NAME[name] for name in options.only.split(",")]
    # A partial run does not overwrite the report of a whole one.
    whole = not options.only and not options.quick and options.backlog == BACKLOG_MESSAGES
    options.name = "latest" if whole else "partial"
    options.json = options.json or options.results / f"{options.name}.jsonl"
    return options


def machine(options: argparse.Namespace, kinds: Sequence[type[Broker]], command: str) -> str:
    versions = ", ".join(f"{kind.name} {kind.version()}" for kind in kinds)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"{today}; {os.cpu_count()} cores, {platform.system()} {platform.machine()}; "
        f"Python {platform.python_version()}; {versions}. Medians of {options.repeats} repeats of "
        f"{options.seconds:g} s, brokers in turn, load generator on the same machine; the brokers' data on "
        f"{file_system(disk_folder())}.\n\nMade by `{command}`."
    )


def write_reports(runner: Runner, options: argparse.Namespace, text: str) -> None:
    (options.results / f"{options.name}.md").write_text(text)
    written = [f"{options.name}.md", options.json.name]
    try:
        if draw(runner.summary, options.results / f"{options.name}.png"):
            written.append(f"{options.name}.png")
        if options.name == "latest" and draw_glance(runner.summary, options.results / "glance.png"):
            written.append("glance.png")
    except ImportError:
        runner.progress.note("no plot: matplotlib is not installed")
    runner.progress.note(f"written to {options.results}: {', '.join(written)}")


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["profile"]:
        return profile.main(given[1:])
    options = arguments(given)
    try:
        build()
        with contextlib.ExitStack() as stack:
            kinds: list[type[Broker]] = [compiled_penstock() if options.build == "compiled" else Penstock]
            if options.against:
                kinds.append(stack.enter_context(checked_out(options.against)))
            if RabbitMQ.script() is None:
                print(NO_RABBITMQ, file=sys.stderr)
            elif not options.without_rabbitmq:
                kinds.append(RabbitMQ)
            return measure(options, kinds, shlex.join(["python", "-m", "benches", *given]))
    except (BuildError, RevisionError) as error:
        print(error, file=sys.stderr)
        return 2


def measure(options: argparse.Namespace, kinds: Sequence[type[Broker]], command: str) -> int:
    options.results.mkdir(parents=True, exist_ok=True)
    plan = Plan(options.repeats, options.seconds, options.backlog, options.features, options.nice)
    runner = Runner(kinds, options.cases, plan)
    try:
        runner.run(options.json)
    except KeyboardInterrupt:
        runner.progress.note("interrupted; brokers stopped, no report written")
        return 130
    text = markdown(runner.summary, machine(options, kinds, command))
    print(text)
    write_reports(runner, options, text)
    failed = runner.summary.failed_cases(PENSTOCK)
    if failed:
        print(f"penstock could not be measured: {', '.join(failed)}", file=sys.stderr)
        return 1
    missed = any(t.met(runner.summary) is False for t in TARGETS)
    return 1 if options.strict and (missed or runner.summary.errors()) else 0


if __name__ == "__main__":
    sys.exit(main())
