"""The report as one HTML file: styles and plots inside, no script, nothing from the network.

A policy in the page forbids the browser to load anything, whatever a name in it may say; and every text that comes from
outside is escaped. Colours follow the reader's choice of light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Final

from penstock.pipeline.refine.minute_columns import QUANTILES
from penstock.pipeline.report import wording
from penstock.pipeline.report.minute_rows import MINUTE
from penstock.pipeline.report.plot import Line, TimeAxis, plot
from penstock.pipeline.report.summary import QueueSummary, Report, Spread, percentile

# Queues with plots. All are in the table.
PLOTTED_MAX: Final = 50

_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>penstock report</title>
<style>
:root { --ink: #1c2430; --soft: #667; --page: #fff; --rule: #e2e5ea; --c0: #1769c2; --c1: #c2571a; --c2: #7a3fb0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe4ec; --soft: #98a2b3; --page: #14181f; --rule: #2b323d; --c0: #6cb0ff; --c1: #ffa35c;
    --c2: #c79bff; }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; overflow-wrap: anywhere; }
p, figcaption, .none { color: var(--soft); } figure { margin: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { font-weight: 600; color: var(--soft); } td:first-child, th:first-child { text-align: left; white-space: normal;
  overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } .side { display: flex; flex-wrap: wrap; gap: 2rem; margin-top: 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem 2rem; }
svg { width: 100%; height: auto; } .grid { stroke: var(--rule); } .tick { fill: var(--soft); font-size: 10px; }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round; }
.line0 { stroke: var(--c0); } .line1 { stroke: var(--c1); } .line2 { stroke: var(--c2); }
.key { margin-left: .8rem; } .key::before { content: "\\25CF\\00A0"; }
.key0::before { color: var(--c0); } .key1::before { color: var(--c1); } .key2::before { color: var(--c2); }
a { color: var(--c0); }
</style></head><body>
"""


def html_page(report: Report) -> str:
    """Return the whole page."""
    first, last = (datetime.fromisoformat(text) for text in (report.first, report.last))
    axis = TimeAxis(first, MINUTE * report.minutes_per_part, -(-report.minutes // report.minutes_per_part))
    plotted = report.queues[:PLOTTED_MAX]
    parts = [
        _HEAD,
        "<h1>penstock report</h1>",
        f"<p>{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, {wording.count(len(report.queues))} queues. ",
        "History is that of persistent messages in durable queues. Percentiles are of the lives that ended in the",
        " span, right within 4.5 %.</p>",
        _overview(report, len(plotted)),
    ]
    parts += [_queue(queue, number, axis) for number, queue in enumerate(plotted)]
    if len(plotted) < len(report.queues):
        parts.append(f"<p>{wording.count(len(report.queues) - len(plotted))} more queues are in the table alone.</p>")
    parts.append("</body></html>\n")
    return "".join(parts)


def _overview(report: Report, plotted: int) -> str:
    heads = ("queue", "in", "out", "depth", "wait p50", "p95", "p99", "service p50", "p95", "p99")
    rows = []
    for number, queue in enumerate(report.queues):
        name = escape(wording.place(queue.vhost, queue.queue))
        cells = (
            *(wording.rate(queue.in_rate), wording.rate(queue.out_rate), wording.count(queue.depth)),
            *(*_durations(queue.wait), *_durations(queue.service)),
            *(wording.share(queue.redelivery_rate), wording.share(queue.utilisation)),
        )
        link = f'<a href="#q{number}">{name}</a>' if number < plotted else name
        rows.append(f"<tr><td>{link}</td>{_cells(cells)}</tr>")
    return _table((*heads, "redelivered", "busy"), rows)


def _queue(queue: QueueSummary, number: int, axis: TimeAxis) -> str:
    parts = queue.parts
    plots = [
        plot(
            "Messages per second",
            [Line("in", [part.in_rate for part in parts]), Line("out", [part.out_rate for part in parts])],
            axis,
            wording.rate,
        ),
        plot("Messages in the queue", [Line("depth", [part.depth for part in parts])], axis, _whole),
        plot("Wait for the first delivery", _spread_lines([part.wait for part in parts]), axis, wording.duration, True),
        plot("Service", _spread_lines([part.service for part in parts]), axis, wording.duration, True),
        plot(
            "Shares",
            [
                Line("redelivered", [part.redelivery_rate for part in parts]),
                Line("consumers busy", [part.utilisation for part in parts]),
            ],
            axis,
            wording.share,
        ),
    ]
    return "".join(
        [
            f'<h2 id="q{number}">{escape(wording.place(queue.vhost, queue.queue))}</h2>',
            f"<p>{wording.count(queue.published)} published ({wording.size(queue.published_bytes)}),",
            f" {wording.count(queue.ended)} ended, {wording.count(queue.delivered)} deliveries,",
            f" {wording.count(queue.requeued)} given back; depth {wording.count(queue.depth)},",
            f" at most {wording.count(queue.depth_max)};",
            f" up to {wording.count(queue.consumers)} consumers in a minute.</p>",
            f'<div class="plots">{"".join(plots)}</div>',
            f'<div class="side">{_counts("outcome", queue.outcomes)}',
            f"{_counts('dead-letter cause', queue.dead_letter_causes)}</div>",
        ]
    )


def _counts(head: str, counts: dict[str, int]) -> str:
    if not counts:
        return ""
    total = sum(counts.values())
    rows = []
    for name, number in counts.items():
        cells = _cells((wording.count(number), wording.share(number / total)))
        rows.append(f"<tr><td>{escape(wording.printable(name))}</td>{cells}</tr>")
    return _table((head, "messages", "share"), rows)


def _spread_lines(spreads: Sequence[Spread | None]) -> list[Line]:
    return [Line(quantile, [percentile(each, quantile) for each in spreads]) for quantile in QUANTILES]


def _durations(spread: Spread | None) -> list[str]:
    return [wording.duration(percentile(spread, quantile)) for quantile in QUANTILES]


def _whole(value: float) -> str:
    return wording.count(round(value)) if value >= 10 or value == int(value) else f"{value:.1f}"


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
