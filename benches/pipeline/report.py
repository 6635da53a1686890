"""The figures as a page in Markdown, with the targets."""

from __future__ import annotations

from dataclasses import dataclass, field

from benches.pipeline.history_cost import HistoryCost
from benches.pipeline.lake import Done
from benches.pipeline.scans import Scan

EVENTS_PER_MESSAGE = 3


@dataclass
class Figures:
    """What a run has measured; None for what it left out."""

    machine: str
    scans: list[Scan] = field(default_factory=list)
    archive: Done | None = None
    refine: Done | None = None
    history: HistoryCost | None = None


def markdown(figures: Figures) -> str:
    lines = ["# The pipeline", "", figures.machine, ""]
    if figures.scans:
        lines += scans(figures)
    if figures.archive is not None:
        lines += lake(figures)
    if figures.history is not None:
        lines += history(figures.history)
    return "\n".join(lines) + "\n"


def scans(figures: Figures) -> list[str]:
    runs = len(figures.scans[0].source_s)
    head = [
        "## Journal to Spark, beside the same rows in Parquet (zstd, bodies that do not compress)",
        "",
        f"To the noop sink; medians of {runs} runs, warm, one session, in turn. In lives two of three rows are"
        " deliveries and acks, of which Parquet stores next to nothing. Events are read with `read_log`; beside it the"
        ' ratio of `spark.read.format("penstock")`, which has Spark copy each row once more. Runs by the latter.',
        "",
        "| case | events | journal, M events/s | Parquet, M events/s | ratio | by `format` | to reach | met |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for scan in figures.scans:
        target, met = "", ""
        if scan.target is not None:
            target, met = f"≥ {scan.target:g}", "yes" if scan.ratio() >= scan.target else "**no**"
        rates = f"{scan.source_per_s() / 1e6:.2f} | {scan.parquet_per_s() / 1e6:.2f}"
        by_format = scan.format_ratio()
        ratio = f"**{scan.ratio():.2f}** | {'' if by_format is None else f'{by_format:.2f}'} | {target} | {met}"
        head.append(f"| {scan.title} (`{scan.name}`) | {scan.rows:,} | {rates} | {ratio} |")
    return [*head, ""]


def lake(figures: Figures) -> list[str]:
    lines = ["## To the lake, and to lives", "", "| job | events | events/s | peak memory, all processes |"]
    lines.append("| --- | ---: | ---: | ---: |")
    for name, done in (("archive", figures.archive), ("refine", figures.refine)):
        if done is not None:
            lines.append(f"| {name} | {done.events:,} | {done.per_s:,.0f} | {done.peak_bytes / 2**20:,.0f} MiB |")
    lines.append("")
    if figures.archive is not None and figures.history is not None:
        broker = figures.history.messages_per_s() * EVENTS_PER_MESSAGE
        share = figures.archive.per_s / broker
        lines += [
            f"The broker makes {broker:,.0f} events a second at its persistent rate (published, delivered, acked);"
            f" archive takes **{share:.2f}** of that when it has the machine to itself.",
            "",
        ]
    return lines


def history(cost: HistoryCost) -> list[str]:
    met = "yes" if cost.ratio() >= 0.85 else "**no**"
    return [
        "## What history costs the broker",
        "",
        "Persistent messages, confirms, acks (case `persistent-100`), confirmed messages a second:",
        "",
        "| with history | nothing kept | ratio | to reach | met |",
        "| ---: | ---: | ---: | ---: | ---: |",
        f"| {cost.messages_per_s():,.0f} | {cost.messages_per_s() / cost.ratio():,.0f} | **{cost.ratio():.2f}**"
        f" | ≥ 0.85 | {met} |",
        "",
    ]
