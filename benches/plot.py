"""The plot: penstock divided by RabbitMQ, a bar per case, a mark where the target is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benches.cases import CASES, Kind
from benches.summary import PENSTOCK, Summary
from benches.targets import TARGETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MET: Final = "#2a7f62"
MISSED: Final = "#c2452d"
NO_TARGET: Final = "#7d8ca3"
MARK: Final = "#1b1b1b"


@dataclass(frozen=True)
class Panel:
    title: str
    metric: str
    kinds: tuple[Kind, ...]
    unit: str
    better: str


PANELS: Final = (
    Panel(
        "Consumed messages a second", "consumed_per_s", (Kind.THROUGHPUT, Kind.CONFIRM), "messages/s", "more is better"
    ),
    Panel("Broker CPU time per message", "cpu_us_per_msg", (Kind.THROUGHPUT, Kind.CONFIRM), "µs", "less is better"),
    Panel("End-to-end latency p99 at a tenth of the load", "e2e_p99_ms", (Kind.LATENCY,), "ms", "less is better"),
)


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    bound: float | None
    met: bool | None


def bars_of(panel: Panel, summary: Summary, relative: bool) -> list[Bar]:
    targets = {t.case: t for t in TARGETS if t.metric == panel.metric and t.relative}
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


def draw_panel(axes: Axes, panel: Panel, bars: Sequence[Bar], relative: bool) -> None:
    positions = range(len(bars))
    colours = [NO_TARGET if bar.met is None else MET if bar.met else MISSED for bar in bars]
    axes.barh(positions, [bar.value for bar in bars], color=colours, height=0.62)
    axes.set_yticks(positions, [bar.label for bar in bars])
    axes.invert_yaxis()
    for position, bar in zip(positions, bars, strict=True):
        if bar.bound is not None:
            axes.plot([bar.bound, bar.bound], [position - 0.42, position + 0.42], color=MARK, linewidth=2.5)
        text = f" {bar.value:.2f}" if relative else f" {bar.value:,.0f}" if bar.value >= 100 else f" {bar.value:.2f}"
        axes.text(bar.value, position, text, va="center", ha="left", fontsize=9)
    if relative:
        axes.axvline(1.0, color=MARK, linewidth=0.8, linestyle=":")
    axes.margins(x=0.14)
    axes.set_xlim(left=0)
    unit = "penstock ÷ RabbitMQ" if relative else panel.unit
    axes.set_xlabel(f"{unit} ({panel.better})", fontsize=9)
    axes.set_title(panel.title, loc="left", fontsize=11, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def draw(summary: Summary, path: Path) -> bool:
    """Writes the picture. False if there is nothing to draw; ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    relative = len(summary.brokers()) == 2
    panels = [(panel, bars) for panel in PANELS if (bars := bars_of(panel, summary, relative))]
    if not panels:
        return False
    heights = [len(bars) + 1.6 for _, bars in panels]
    figure, grid = pyplot.subplots(
        len(panels), 1, figsize=(9.5, 0.42 * sum(heights) + 0.8), height_ratios=heights, squeeze=False
    )
    for axes, (panel, bars) in zip(grid[:, 0], panels, strict=True):
        draw_panel(axes, panel, bars, relative)
    if relative:
        handles = [
            Patch(color=MET, label="target met"),
            Patch(color=MISSED, label="target missed"),
            Patch(color=NO_TARGET, label="no target"),
            Line2D([], [], color=MARK, linewidth=2.5, label="target"),
            Line2D([], [], color=MARK, linewidth=0.8, linestyle=":", label="equal to RabbitMQ"),
        ]
        figure.legend(handles=handles, loc="lower center", ncols=5, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.35 / figure.get_figheight(), 1, 1))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
