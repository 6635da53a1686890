"""The result as Markdown: a table per kind of case with a row per system, the targets, what disturbed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benches.postgres.cases import CASES, SEED, Kind, Plan
from benches.postgres.systems import PENSTOCK, PLAIN, PLAIN_HISTORY, PROCRASTINATE, SESSION
from benches.postgres.targets import TARGETS, Target
from benches.report import ABSENT, notes, number, table
from benches.summary import Summary

SYSTEMS: Final = (PENSTOCK, SESSION, PLAIN, PLAIN_HISTORY, PROCRASTINATE)
THE_SEED: Final = "the seed, as it says itself"


@dataclass(frozen=True)
class Column:
    title: str
    metric: str
    digits: int
    more_is_better: bool = True
    compared: bool = True


def rate(title: str, metric: str) -> Column:
    return Column(title, metric, 0)


def duration(title: str, metric: str, compared: bool = False) -> Column:
    return Column(title, metric, 2, more_is_better=False, compared=compared)


def cpu(what: str, metric: str) -> Column:
    return Column(f"server CPU µs/{what}", metric, 1, more_is_better=False, compared=False)


SECTIONS: Final[dict[Kind, tuple[str, tuple[Column, ...]]]] = {
    Kind.PHASES: (
        "put, reserve, finalize: one connection, {rows} rows in the table",
        (
            rate("put/s", "put_per_s"),
            rate("reserve/s", "reserve_per_s"),
            rate("finalize/s", "finalize_per_s"),
            rate("all three/s", "cycle_per_s"),
            duration("put p50 ms", "put_p50_ms"),
            duration("reserve p50 ms", "reserve_p50_ms"),
            duration("reserve p99 ms", "reserve_p99_ms"),
            duration("finalize p50 ms", "finalize_p50_ms"),
            cpu("put", "put_server_us"),
            cpu("reserve", "reserve_server_us"),
            cpu("finalize", "finalize_server_us"),
        ),
    ),
    Kind.FLOW: (
        "put → reserve → finalize: 1 producer, 4 consumers, each a process",
        (
            rate("done/s", "done_per_s"),
            Column("put/s", "put_per_s", 0, compared=False),
            cpu("message", "flow_server_us"),
        ),
    ),
    Kind.WAKEUP: (
        "Wake-up of an idle consumer by NOTIFY: put called to message received",
        (duration("p50 ms", "wakeup_p50_ms", True), duration("p95 ms", "wakeup_p95_ms", True)),
    ),
    Kind.PINNED: (
        "{per_s} messages a second offered for {pinned_s} s while an old transaction stays open, 2 consumers",
        (
            Column("rate held without it", "free_share", 2, compared=False),
            Column("rate held, last third", "late_share", 2, compared=False),
            duration("reserve p50 ms without it", "free_reserve_p50_ms"),
            duration("p99", "free_reserve_p99_ms"),
            duration("first third p50", "early_reserve_p50_ms"),
            duration("p99", "early_reserve_p99_ms"),
            duration("last third p50", "late_reserve_p50_ms"),
            duration("p99", "late_reserve_p99_ms"),
        ),
    ),
}


def ratio(summary: Summary, system: str, case: str, column: Column) -> float | None:
    """How many times better penstock's functions are than this system."""
    ours, theirs = summary.median(PENSTOCK, case, column.metric), summary.median(system, case, column.metric)
    if not ours or not theirs:
        return None
    return ours / theirs if column.more_is_better else theirs / ours


def section(summary: Summary, kind: Kind, plan: Plan) -> str | None:
    title, columns = SECTIONS[kind]
    head = ["case", "system"]
    for column in columns:
        head += [column.title, "penstock is better by"] if column.compared else [column.title]
    rows: list[list[str]] = []
    for case in CASES:
        if case.kind is not kind:
            continue
        for system in SYSTEMS:
            repeats = summary.of(system, case.name)
            if repeats:
                doubt = " ~" if any(repeat.disturbed for repeat in repeats) else ""
                rows.append(
                    [f"{case.title} (`{case.name}`)", system + doubt, *cells(summary, system, case.name, columns)]
                )
        if case.name == "one" and rows:
            rows.append([f"{case.title} (`{case.name}`)", THE_SEED, *seed_cells(columns)])
    if not rows:
        return None
    filled = title.format(rows=f"{plan.rows:,}", per_s=f"{plan.pinned_per_s:,.0f}", pinned_s=f"{plan.pinned_s:g}")
    return f"## {filled}\n\n{table(head, rows)}"


def cells(summary: Summary, system: str, case: str, columns: Sequence[Column]) -> list[str]:
    found: list[str] = []
    for column in columns:
        found.append(number(summary.median(system, case, column.metric), column.digits))
        if column.compared:
            times = None if system == PENSTOCK else ratio(summary, system, case, column)
            found.append(ABSENT if times is None else f"**{times:.2f}**")
    return found


def seed_cells(columns: Sequence[Column]) -> list[str]:
    found: list[str] = []
    for column in columns:
        found.append(number(SEED.get(column.metric), column.digits))
        if column.compared:
            found.append(ABSENT)
    return found


def target_row(target: Target, summary: Summary) -> list[str]:
    sign = "≥" if target.at_least else "≤"
    if target.to is None:
        beside = ""
    elif target.to == target.of:
        beside = f" of `{target.to_case}`"
    else:
        beside = f" of {target.to}"
    met = target.met(summary)
    verdict = "not measured" if met is None else "yes" if met else "**no**"
    measured = number(target.measured(summary), 2) + (" ~" if target.doubtful(summary) else "")
    return [f"`{target.case}`: {target.text}", target.of, f"{sign} {target.bound:g}{beside}", measured, verdict]


def targets_section(summary: Summary) -> str:
    measured = {(repeat.broker, repeat.case) for repeat in summary.repeats}
    rows = [target_row(target, summary) for target in TARGETS if (target.of, target.case) in measured]
    return f"## Targets\n\n{table(['what', 'of', 'target', 'measured', 'met'], rows)}"


def markdown(summary: Summary, plan: Plan, machine: str) -> str:
    parts = ["# Queues in PostgreSQL, side by side", machine]
    parts += [found for kind in SECTIONS if (found := section(summary, kind, plan))]
    parts.append(targets_section(summary))
    text = notes(summary)
    if text:
        parts.append(f"## Notes\n\n{text}")
    return "\n\n".join(parts) + "\n"
