"""`python -m benches.stalls`: the longest wait of a bystander, penstock and rabbitmq-server in the same run."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benches.__main__ import NO_RABBITMQ, RESULTS
from benches.brokers import Broker, BrokerError, Penstock, free_port
from benches.rabbitmq import RabbitMQ
from benches.scratch import disk_folder, file_system
from benches.stalls.acts import BY_NAME, CASES, Case
from benches.stalls.client import Client, Refused
from benches.stalls.probe import Probe

# Of one try: (longest wait, how long the act took), in seconds; or what went wrong.
Figures = tuple[float, float] | str
AFTERWARDS_S: Final = 0.5


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benches.stalls",
        description="Measures how long one client's act holds up another one, which asks for a queue every 5 ms.",
        epilog="cases: " + ", ".join(BY_NAME),
    )
    parser.add_argument("--only", metavar="CASE,...", help="only these cases; the report is printed, not written")
    parser.add_argument(
        "--repeats", type=int, default=3, help="tries of each; the report has the best and the median (3)"
    )
    parser.add_argument(
        "--nice",
        type=int,
        metavar="N",
        help="niceness of brokers and probe: below 0 on a machine with other work to do",
    )
    parser.add_argument("--results", metavar="DIR", type=Path, default=RESULTS, help="where the report goes")
    parser.add_argument("--without-rabbitmq", action="store_true", help="penstock alone")
    options = parser.parse_args(argv)
    unknown = [name for name in (options.only or "").split(",") if name and name not in BY_NAME]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)} (there are: {', '.join(BY_NAME)})")
    options.cases = [BY_NAME[name] for name in options.only.split(",")] if options.only else list(CASES)
    return options


def is_open(port: int) -> bool:
    """Whether a client gets as far as a channel: RabbitMQ answers some time before that."""
    try:
        Client(port).close()
        return True
    except (Refused, OSError):
        return False


def measure(kind: type[Broker], case: Case, nice: int | None = None) -> Figures:
    """One act on a broker of its own."""
    try:
        with kind(nice=nice) as broker:
            if case.http:
                assert isinstance(broker, Penstock)
                broker.http_port = free_port()
            broker.start(ready=lambda: is_open(broker.port))
            steps = case.act(broker)
            next(steps)
            probe = Probe(broker.port, nice)
            try:
                # What the preparation has left to do is not the act's.
                time.sleep(AFTERWARDS_S)
                probe.read()
                started = time.monotonic()
                next(steps, None)
                took = time.monotonic() - started
                time.sleep(AFTERWARDS_S)
                longest = probe.read()
            finally:
                probe.close()
            return longest, took
    except (Refused, BrokerError, OSError) as error:
        return f"failed: {error}"


def cells(figures: Sequence[Figures] | None) -> str:
    """The columns of one broker in one row."""
    if figures is None:
        return "- | - | -"
    measured = [found for found in figures if not isinstance(found, str)]
    if not measured:
        return f"{figures[0]} | - | -"
    best, took = min(measured)
    median = statistics.median([longest for longest, _ in measured])
    return f"{best * 1e3:,.1f} | {median * 1e3:,.1f} | {took:.2f}"


def report(rows: dict[str, dict[str, list[Figures]]], kinds: Sequence[type[Broker]], repeats: int) -> str:
    versions = ", ".join(f"{kind.name} {kind.version()}" for kind in kinds)
    lines = [
        "# Stalls",
        "",
        "Written by `python -m benches.stalls`. One client acts; another one asks for a queue every 5 ms and waits for",
        "the answer. The table has its longest wait during the act, in the best of several tries and in the middle",
        "one, and how long the act took. The goal is 20 ms for one client's act and 5 ms in steady traffic. The first",
        "row says what the machine itself adds; the best try is what the broker cannot do without.",
        "",
        f"{datetime.datetime.now(datetime.UTC).date().isoformat()}; {os.cpu_count()} cores, {platform.system()} "
        f"{platform.machine()}; Python {platform.python_version()}; {versions}; data on {file_system(disk_folder())}; "
        f"{repeats} tries.",
        "",
        "| act | goal ms | " + " | ".join(f"{kind.name}: longest wait ms | median | act s" for kind in kinds) + " |",
        "|---|--:|" + "--:|--:|--:|" * len(kinds),
    ]
    for name, found in rows.items():
        case = BY_NAME[name]
        shown = " | ".join(cells(found.get(kind.name)) for kind in kinds)
        lines.append(f"| {case.told} | {case.goal_ms:g} | {shown} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    kinds: list[type[Broker]] = [Penstock]
    if RabbitMQ.script() is None:
        print(NO_RABBITMQ, file=sys.stderr)
    elif not options.without_rabbitmq:
        kinds.append(RabbitMQ)
    rows: dict[str, dict[str, list[Figures]]] = {}
    for case in options.cases:
        rows[case.name] = {}
        for kind in kinds:
            if (case.http or case.is_penstock_only) and kind is not Penstock:
                continue
            found = [measure(kind, case, options.nice) for _ in range(options.repeats)]
            rows[case.name][kind.name] = found
            print(
                f"{case.name}, {kind.name}: longest wait ms, median, act s: {cells(found)}", file=sys.stderr, flush=True
            )
        if not options.only:
            # Row by row: whoever interrupts it has those that are done.
            options.results.mkdir(parents=True, exist_ok=True)
            (options.results / "stalls.md").write_text(report(rows, kinds, options.repeats))
    print(report(rows, kinds, options.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main())
