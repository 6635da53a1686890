"""The result as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benches.cases import CASES, COMPARED, ORDERED_BASE, REAL_CASES, VARIED_OF, Case, Kind
from benches.summary import BEFORE, PENSTOCK, RABBITMQ, Summary
from benches.targets import TARGETS, Target

ABSENT: Final = "-"


@dataclass(frozen=True)
class Column:
    title: str
    metric: str
    digits: int
    ratio: bool = True
    spread: bool = False


CONSUMED: Final = Column("consumed/s", "consumed_per_s", 0, spread=True)
CONFIRMED: Final = Column("confirmed/s", "confirmed_per_s", 0, spread=True)
CONFIRM_P50: Final = Column("confirm p50 ms", "confirm_p50_ms", 2)
CONFIRM_P99: Final = Column("confirm p99 ms", "confirm_p99_ms", 2)
PUBLISHED_ALONE: Final = Column("published/s", "published_per_s", 0)
DRAINED: Final = Column("drained/s", "drained_per_s", 0)
MESSAGES: Final = Column("messages", "messages", 0, ratio=False)
CPU: Final = Column("CPU µs/message", "cpu_us_per_msg", 1)
CPU_IN: Final = Column("CPU µs/message in", "cpu_us_per_msg_in", 1)
CPU_OUT: Final = Column("CPU µs/message out", "cpu_us_per_msg_out", 1)
RSS_PEAK: Final = Column("peak RSS MiB", "rss_peak_mib", 0, ratio=False)
RSS_RATIO: Final = Column("peak RSS MiB", "rss_peak_mib", 0)
ORDERED: Final = (PUBLISHED_ALONE, DRAINED, CPU_IN, CPU_OUT, RSS_RATIO)
LATENCY: Final = (
    Column("p50 ms", "e2e_p50_ms", 3),
    Column("p99 ms", "e2e_p99_ms", 3),
    Column("p99.9 ms", "e2e_p99.9_ms", 3),
    CPU,
)
# Loads that real clients make; the others show what single costs are.
REAL_SECTIONS: Final[tuple[tuple[str, Kind, tuple[Column, ...]], ...]] = (
    ("Real loads: messages that differ, requests and replies", Kind.THROUGHPUT, (CONSUMED, CPU, RSS_PEAK)),
    ("Real loads: persistent messages, durable queues", Kind.DURABLE, (CONSUMED, CPU, CONFIRM_P50, CONFIRM_P99)),
    ("Real loads: many connections that send and get little", Kind.LATENCY, LATENCY),
    (
        "Real loads: connections, channels, exchanges, queues and bindings made and dropped",
        Kind.CHURN,
        (
            Column("cycles/s", "consumed_per_s", 0, spread=True),
            Column("cycle p50 ms", "e2e_p50_ms", 2),
            Column("cycle p99 ms", "e2e_p99_ms", 2),
            Column("CPU µs/cycle", "cpu_us_per_msg", 0),
            Column("RSS at the end MiB", "rss_end_mib", 0, ratio=False),
            Column("RSS bytes/cycle", "rss_bytes_per_cycle", 0, ratio=False),
        ),
    ),
)
SECTIONS: Final[tuple[tuple[str, Kind, tuple[Column, ...]], ...]] = (
    ("Throughput, 100-byte transient messages", Kind.THROUGHPUT, (CONSUMED, CPU, RSS_PEAK)),
    (
        "Publisher confirms",
        Kind.CONFIRM,
        (CONSUMED, CPU, CONFIRM_P50, CONFIRM_P99),
    ),
    (
        "Persistent messages, durable queues, confirms with window 1000",
        Kind.DURABLE,
        (CONFIRMED, CPU, CONFIRM_P50, CONFIRM_P99, RSS_PEAK),
    ),
    (
        "Large persistent messages, and what disk, memory and one loopback connection can do by themselves",
        Kind.BULK,
        (
            CONFIRMED,
            CPU,
            Column("bodies MiB/s", "body_mib_per_s", 0, ratio=False),
            Column("of the disk's rate", "share_of_disk_bytes", 2, ratio=False),
            Column("disk write + fdatasync MiB/s", "disk_mib_per_s", 0, ratio=False),
            Column("memory copy MiB/s", "copied_mib_per_s", 0, ratio=False),
            Column("loopback MiB/s", "loopback_mib_per_s", 0, ratio=False),
            CONFIRM_P99,
            RSS_PEAK,
        ),
    ),
    (
        "One persistent message at a time, and the disk's own rate",
        Kind.ROUND_TRIP,
        (
            CONFIRMED,
            Column("of the disk's rate", "share_of_disk", 2, ratio=False),
            Column("disk write + fdatasync/s", "disk_syncs_per_s", 0, ratio=False),
            CONFIRM_P50,
            CONFIRM_P99,
        ),
    ),
    (
        "End-to-end latency at a tenth of RabbitMQ's load",
        Kind.LATENCY,
        LATENCY,
    ),
    (
        "Memory when nobody keeps up",
        Kind.MEMORY,
        (
            RSS_PEAK,
            Column("published/s", "published_per_s", 0, ratio=False),
            Column("consumed/s", "consumed_per_s", 0, ratio=False),
            Column("longest stall s", "stall_max_s", 1, ratio=False),
            Column("connection.blocked", "blocked", 0, ratio=False),
        ),
    ),
    (
        "Start and rest",
        Kind.SPAWN,
        (
            Column("start to accepting s", "start_s", 2),
            Column("idle RSS MiB", "rss_idle_mib", 0),
        ),
    ),
    (
        "Backlog of persistent 100-byte messages, one durable queue, confirms with window 1000",
        Kind.BACKLOG,
        (
            MESSAGES,
            PUBLISHED_ALONE,
            DRAINED,
            RSS_RATIO,
            CPU_IN,
            CPU_OUT,
        ),
    ),
    (
        "Restart with that backlog",
        Kind.RESTART,
        (
            MESSAGES,
            Column("ready after kill -9 s", "ready_killed_s", 2),
            Column("clean stop s", "stop_s", 2),
            Column("ready after a clean stop s", "ready_stopped_s", 2),
            Column("peak RSS of a start MiB", "rss_ready_killed_mib", 0),
            DRAINED,
        ),
    ),
    (
        "Persistent messages that expire",
        Kind.EXPIRY,
        (
            MESSAGES,
            PUBLISHED_ALONE,
            Column("expired/s", "expired_per_s", 0),
            Column("empty after the last was due s", "late_s", 2, ratio=False),
            CPU,
            RSS_RATIO,
        ),
    ),
    (
        "Dead letters, persistent, consumed from where they go",
        Kind.DEAD_LETTERS,
        (MESSAGES, Column("dead letters/s", "dead_letters_per_s", 0), CPU, RSS_RATIO),
    ),
    ("Queues with an order of their own, persistent, publish all, then drain", Kind.ORDERED, (MESSAGES, *ORDERED)),
    (
        "Delayed persistent messages",
        Kind.DELAYED,
        (
            MESSAGES,
            PUBLISHED_ALONE,
            CPU,
            CPU_IN,
            CPU_OUT,
            Column("RSS bytes/held message", "rss_bytes_per_msg", 0),
            RSS_RATIO,
            Column("late p50 ms", "late_p50_ms", 1),
            Column("late p99 ms", "late_p99_ms", 1),
        ),
    ),
)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:,.{digits}f}"


def ratio_text(value: float | None) -> str:
    return ABSENT if value is None else f"**{value:.2f}**"


def cell(summary: Summary, broker: str, case: str, column: Column) -> str:
    text = number(summary.median(broker, case, column.metric), column.digits)
    values = summary.values(broker, case, column.metric)
    if column.spread and len(values) > 1:
        text += f" ({number(min(values), column.digits)}..{number(max(values), column.digits)})"
    return text


def section(summary: Summary, title: str, cases: Sequence[Case], columns: Sequence[Column]) -> str:
    brokers = [b for b in summary.brokers() if b == PENSTOCK or not all(case.alone for case in cases)]
    compared = PENSTOCK in brokers and RABBITMQ in brokers
    head = ["case"]
    for column in columns:
        head += [f"{broker} {column.title}" for broker in brokers]
        if compared and column.ratio:
            head.append("ratio")
    rows: list[list[str]] = []
    for case in cases:
        row = [f"{case.title} (`{case.name}`)" + (" ~" if summary.doubtful(case.name) else "")]
        for column in columns:
            row += [cell(summary, broker, case.name, column) for broker in brokers]
            if compared and column.ratio:
                row.append(ratio_text(summary.ratio(case.name, column.metric)))
        rows.append(row)
    return f"## {title}\n\n{table(head, rows)}"


def target_row(target: Target, summary: Summary) -> list[str]:
    sign = "≥" if target.at_least else "≤"
    unit = f" of {target.against or target.to}" if target.to == PENSTOCK else f" of {target.to}" if target.to else ""
    met = target.met(summary)
    verdict = "not measured" if met is None else "yes" if met else "**no**"
    doubt = " ~" if summary.doubtful(target.case, target.to or RABBITMQ) else ""
    measured = number(target.measured(summary), 2) + doubt
    return [f"`{target.case}`: {target.text}", f"{sign} {target.bound:g}{unit}", measured, verdict]


def targets_section(summary: Summary) -> str:
    before = summary.present(BEFORE)
    measured = summary.measured_cases()
    rows = [target_row(t, summary) for t in TARGETS if t.case in measured and (before or t.to != BEFORE)]
    return f"## Targets\n\n{table(['what', 'target', 'measured', 'met'], rows)}"


def varied_section(summary: Summary) -> str | None:
    """How much of the rate with equal messages is left with varied ones: what the flat-out figures do not say."""
    rows: list[list[str]] = []
    for equal, varied in VARIED_OF.items():
        shares: list[float | None] = []
        for broker in summary.brokers():
            of_equal = summary.median(broker, equal, CONSUMED.metric)
            of_varied = summary.median(broker, varied, CONSUMED.metric)
            shares.append(of_varied / of_equal if of_equal and of_varied is not None else None)
        if any(share is not None for share in shares):
            ratios = [ratio_text(summary.ratio(name, CONSUMED.metric)) for name in (equal, varied)]
            rows.append([f"`{equal}`", *(number(share, 2) for share in shares), *ratios])
    if not rows:
        return None
    head = ["load", *(f"{broker} varied ÷ equal" for broker in summary.brokers()), "ratio, equal", "ratio, varied"]
    text = (
        "The generator's plain messages are equal up to their bodies, which a broker can take in runs; real publishers "
        "send different sizes and properties. The targets below are for equal messages: read them with this table."
    )
    return f"## Equal and varied messages\n\n{text}\n\n{table(head, rows)}"


def ordered_section(summary: Summary) -> str | None:
    """What an order of its own, or holding, costs a queue."""
    rows: list[list[str]] = []
    for case in CASES:
        if case.kind in (Kind.ORDERED, Kind.DELAYED) and case.name != ORDERED_BASE:
            ratios = [summary.ratio(case.name, column.metric, ORDERED_BASE, PENSTOCK) for column in ORDERED]
            if any(value is not None for value in ratios):
                rows.append([f"{case.title} (`{case.name}`)", *map(ratio_text, ratios)])
    if not rows:
        return None
    head = ["penstock's queue", *(column.title for column in ORDERED)]
    return f"## Divided by a plain queue of penstock (`{ORDERED_BASE}`)\n\n{table(head, rows)}"


def before_section(summary: Summary) -> str | None:
    """This penstock and an earlier one, or one that is not compiled, in the same run."""
    rows: list[list[str]] = []
    for name in COMPARED:
        if summary.median(BEFORE, name, CPU.metric) is None:
            continue
        row = [f"`{name}`" + (" ~" if summary.doubtful(name, BEFORE) else "")]
        is_confirmed = summary.median(PENSTOCK, name, CONFIRMED.metric) is not None
        for column in (CONFIRMED if is_confirmed else CONSUMED, CPU, RSS_PEAK):
            row += [cell(summary, broker, name, column) for broker in (PENSTOCK, BEFORE)]
            row.append(ratio_text(summary.ratio(name, column.metric, to=BEFORE)))
        rows.append(row)
    if not rows:
        return None
    head = ["case"]
    for title in ("messages/s", CPU.title, RSS_PEAK.title):
        head += [f"{title}", f"{title} before", "now ÷ before"]
    return f"## Now and before\n\n{table(head, rows)}"


def notes(summary: Summary) -> str:
    lines: list[str] = []
    disturbed = sum(r.disturbed for r in summary.repeats)
    if disturbed:
        lines.append(
            f"- {disturbed} of {len(summary.repeats)} repeats were disturbed: other processes used more than "
            "a tenth of the machine. They are left out where undisturbed ones exist; ~ marks figures that rest on them."
        )
    failures: dict[tuple[str, str], list[str]] = {}
    for r in summary.errors():
        failures.setdefault((r.broker, " ".join((r.error or "").split())), []).append(f"{r.case} {r.number + 1}")
    lines += [
        f"- FAILED: {broker}: {error} (case and repeat: {', '.join(which)})"
        for (broker, error), which in failures.items()
    ]
    return "\n".join(lines)


def markdown(summary: Summary, machine: str) -> str:
    measured = summary.measured_cases()
    parts = ["# penstock beside RabbitMQ", machine]
    others = [case for case in CASES if case not in REAL_CASES]
    for sections, among in ((REAL_SECTIONS, REAL_CASES), (SECTIONS, others)):
        for title, kind, columns in sections:
            cases = [case for case in among if case.kind is kind and case.name in measured]
            if cases:
                parts.append(section(summary, title, cases, columns))
    for found in (ordered_section(summary), varied_section(summary), before_section(summary)):
        if found:
            parts.append(found)
    parts.append(targets_section(summary))
    text = notes(summary)
    if text:
        parts.append(f"## Notes\n\n{text}")
    return "\n\n".join(parts) + "\n"
