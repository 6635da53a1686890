"""The README's chart: what real loads come to, penstock divided by RabbitMQ, one bar each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benches.plot import COLOURS, MARK, finish_axes
from benches.summary import PENSTOCK, Summary

# Case, the metric of its bar, and a label. Latencies are turned over, so that more is better in every bar.
BARS: Final = (
    ("celery", "consumed_per_s", "Celery's tasks"),
    ("celery-confirm", "confirmed_per_s", "Celery's tasks, persistent, confirmed"),
    ("headers-3", "consumed_per_s", "messages with three headers"),
    ("auto-ack-varied", "consumed_per_s", "small messages of all sizes"),
    ("topic", "consumed_per_s", "topic exchange, 2,000 keys"),
    ("rpc-1", "consumed_per_s", "request and reply, one client"),
    ("rpc-16", "consumed_per_s", "request and reply, 16 clients"),
    ("many-connections", "e2e_p99_ms", "1,000 connections: 1 ÷ latency, p99"),
)


def bars_of(summary: Summary) -> list[tuple[str, float, float]]:
    """Return label, length and CPU time per message divided by RabbitMQ's, of what was measured."""
    bars: list[tuple[str, float, float]] = []
    for case, metric, label in BARS:
        ratio, cpu = summary.ratio(case, metric), summary.ratio(case, "cpu_us_per_msg")
        if ratio is not None and cpu is not None:
            bars.append((label, 1 / ratio if metric.endswith("_ms") else ratio, cpu))
    return bars


def draw_glance(summary: Summary, path: Path) -> bool:
    """Write the picture. False if there is nothing to draw; ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    bars = bars_of(summary)
    if not bars:
        return False
    figure, axes = pyplot.subplots(figsize=(8, 0.36 * len(bars) + 1.1))
    axes.barh(range(len(bars)), [length for _, length, _ in bars], color=COLOURS[PENSTOCK], height=0.62)
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    for position, (_, length, cpu) in enumerate(bars):
        axes.text(length, position, f" {length:.1f}, with {cpu:.2f} of the CPU time", va="center", fontsize=9)
    axes.axvline(1.0, color=MARK, linewidth=0.8, linestyle=":")
    finish_axes(axes, "Messages a second, penstock ÷ RabbitMQ", "1 = RabbitMQ; more is better")
    axes.set_xlim(right=1.5 * max([length for _, length, _ in bars]))
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
