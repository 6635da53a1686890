"""The plot: penstock divided by RabbitMQ, a bar per case; of durable messages also the figures, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benches.cases import CASES, Kind
from benches.summary import PENSTOCK, RABBITMQ, Summary
from benches.targets import TARGETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MET: Final = "#2a7f62"
MISSED: Final = "#c2452d"
NO_TARGET: Final = "#7d8ca3"
MARK: Final = "#1b1b1b"
COLOURS: Final = {PENSTOCK: "#2a6f97", RABBITMQ: "#e08e45"}


@dataclass(frozen=True)
class Panel:
    title: str
    metric: str
    kinds: tuple[Kind, ...]
    unit: str
    better: str


@dataclass(frozen=True)
class Pairs:
    """A panel of plain figures: what is drawn, for which metrics of which kinds of cases."""

    title: str
    unit: str
    better: str
    rows: tuple[tuple[Kind, str, str], ...]
    """Kind of case, metric, and a label (empty: the case's title)."""


PANELS: Final = (
    Panel(
        "Consumed messages a second", "consumed_per_s", (Kind.THROUGHPUT, Kind.CONFIRM), "messages/s", "more is better"
    ),
    Panel("Broker CPU time per message", "cpu_us_per_msg", (Kind.THROUGHPUT, Kind.CONFIRM), "µs", "less is better"),
    Panel("End-to-end latency p99 at a tenth of the load", "e2e_p99_ms", (Kind.LATENCY,), "ms", "less is better"),
    Panel(
        "Persistent messages confirmed a second",
        "confirmed_per_s",
        (Kind.DURABLE, Kind.BULK, Kind.ROUND_TRIP),
        "messages/s",
        "more is better",
    ),
)
PAIRS: Final = (
    Pairs(
        "Persistent, synced, confirmed and consumed",
        "messages/s",
        "more is better",
        (
            (Kind.DURABLE, "confirmed_per_s", ""),
            (Kind.BULK, "confirmed_per_s", ""),
            (Kind.ROUND_TRIP, "confirmed_per_s", ""),
        ),
    ),
    Pairs(
        "A backlog in and out",
        "messages/s",
        "more is better",
        ((Kind.BACKLOG, "published_per_s", "published"), (Kind.BACKLOG, "drained_per_s", "drained")),
    ),
    Pairs("Memory with a backlog", "MiB, peak", "less is better", ((Kind.BACKLOG, "rss_peak_mib", "waiting"),)),
    Pairs(
        "Start with a backlog",
        "seconds until a client is told the right count",
        "less is better",
        (
            (Kind.RESTART, "ready_stopped_s", "after a clean stop"),
            (Kind.RESTART, "ready_killed_s", "after kill -9"),
        ),
    ),
    Pairs(
        "Expired, or through dead letters",
        "messages/s",
        "more is better",
        ((Kind.EXPIRY, "expired_per_s", ""), (Kind.DEAD_LETTERS, "dead_letters_per_s", "")),
    ),
    Pairs(
        "Into queues with an order of their own, or held",
        "persistent messages published and confirmed a second",
        "more is better",
        ((Kind.ORDERED, "published_per_s", ""), (Kind.DELAYED, "published_per_s", "")),
    ),
    Pairs(
        "Out of queues with an order of their own",
        "messages/s",
        "more is better",
        ((Kind.ORDERED, "drained_per_s", ""),),
    ),
)


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    bound: float | None
    met: bool | None


@dataclass(frozen=True)
class Pair:
    label: str
    values: dict[str, float]
    """By broker."""


def bars_of(panel: Panel, summary: Summary, relative: bool) -> list[Bar]:
    targets = {t.case: t for t in TARGETS if t.metric == panel.metric and t.to == RABBITMQ}
    bars: list[Bar] = []
    for case in CASES:
        if case.kind not in panel.kinds:
            continue
        value = (
            summary.ratio(case.name, panel.metric) if relative else summary.median(PENSTOCK, case.name, panel.metric)
        )
        if value is None:
            continue
        target = targets.get(case.name) if relative else None
        bars.append(Bar(case.title, value, target.bound if target else None, target.met(summary) if target else None))
    return bars


def pairs_of(pairs: Pairs, summary: Summary) -> list[Pair]:
    found: list[Pair] = []
    for kind, metric, label in pairs.rows:
        for case in CASES:
            medians = {broker: summary.median(broker, case.name, metric) for broker in summary.brokers()}
            values = {broker: value for broker, value in medians.items() if value is not None}
            if case.kind is kind and values:
                messages = summary.median(PENSTOCK, case.name, "messages")
                text = label or case.title
                found.append(Pair(f"{messages:,.0f} {text}" if messages else text, values))
    return found


def short(value: float) -> str:
    return f" {value:,.0f}" if value >= 100 else f" {value:.2f}"


def draw_panel(axes: Axes, panel: Panel, bars: Sequence[Bar], relative: bool) -> None:
    positions = range(len(bars))
    colours = [NO_TARGET if bar.met is None else MET if bar.met else MISSED for bar in bars]
    axes.barh(positions, [bar.value for bar in bars], color=colours, height=0.62)
    axes.set_yticks(positions, [bar.label for bar in bars])
    for position, bar in zip(positions, bars, strict=True):
        if bar.bound is not None:
            axes.plot([bar.bound, bar.bound], [position - 0.42, position + 0.42], color=MARK, linewidth=2.5)
        text = f" {bar.value:.2f}" if relative else short(bar.value)
        axes.text(bar.value, position, text, va="center", ha="left", fontsize=9)
    if relative:
        axes.axvline(1.0, color=MARK, linewidth=0.8, linestyle=":")
    finish_axes(axes, panel.title, f"{'penstock ÷ RabbitMQ' if relative else panel.unit} ({panel.better})")


def draw_pairs(axes: Axes, pairs: Pairs, found: Sequence[Pair], brokers: Sequence[str]) -> None:
    height = 0.8 / len(brokers)
    for n, broker in enumerate(brokers):
        for row, pair in enumerate(found):
            value = pair.values.get(broker)
            if value is not None:
                position = row - 0.4 + height * (n + 0.5)
                axes.barh(position, value, color=COLOURS[broker], height=height * 0.9)
                axes.text(value, position, short(value), va="center", ha="left", fontsize=8)
    axes.set_yticks(range(len(found)), [pair.label for pair in found])
    finish_axes(axes, pairs.title, f"{pairs.unit} ({pairs.better})")


def finish_axes(axes: Axes, title: str, label: str) -> None:
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_xlim(left=0)
    axes.set_xlabel(label, fontsize=9)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def draw(summary: Summary, path: Path) -> bool:
    """Writes the picture. False if there is nothing to draw; ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    brokers = summary.brokers()
    relative = len(brokers) == 2
    panels = [(panel, bars) for panel in PANELS if (bars := bars_of(panel, summary, relative))]
    pairs = [(group, found) for group in PAIRS if (found := pairs_of(group, summary))]
    if not panels and not pairs:
        return False
    heights = [len(bars) + 1.6 for _, bars in panels] + [1.5 * len(found) + 1.6 for _, found in pairs]
    figure, grid = pyplot.subplots(
        len(heights), 1, figsize=(9.5, 0.42 * sum(heights) + 0.8), height_ratios=heights, squeeze=False
    )
    for axes, (panel, bars) in zip(grid[:, 0], panels, strict=False):
        draw_panel(axes, panel, bars, relative)
    for axes, (group, found) in zip(grid[len(panels) :, 0], pairs, strict=True):
        draw_pairs(axes, group, found, brokers)
    if relative:
        handles = [
            Patch(color=MET, label="target met"),
            Patch(color=MISSED, label="target missed"),
            Patch(color=NO_TARGET, label="no target"),
            Line2D([], [], color=MARK, linewidth=2.5, label="target"),
            Line2D([], [], color=MARK, linewidth=0.8, linestyle=":", label="equal to RabbitMQ"),
            *(Patch(color=COLOURS[broker], label=broker) for broker in brokers),
        ]
        figure.legend(handles=handles, loc="lower center", ncols=7, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.35 / figure.get_figheight(), 1, 1))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
