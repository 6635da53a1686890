"""The plot: every figure of every system as a bar, a panel per figure; the seed's own numbers as lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benches.plot import finish_axes, short
from benches.postgres.cases import BY_NAME, SEED
from benches.postgres.report import SYSTEMS
from benches.postgres.systems import PENSTOCK, PLAIN, PLAIN_HISTORY, PROCRASTINATE, SESSION
from benches.summary import Summary

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

COLOURS: Final = {
    PENSTOCK: "#2a6f97",
    SESSION: "#61a5c2",
    PLAIN: "#7d8ca3",
    PLAIN_HISTORY: "#4f5d75",
    PROCRASTINATE: "#e08e45",
}
LINE: Final = "#1b1b1b"


@dataclass(frozen=True)
class Panel:
    title: str
    label: str
    bars: tuple[tuple[str, str, str], ...]
    """Case, metric, and what stands beside the bars."""
    logarithmic: bool = False


VERBS: Final = ("put", "reserve", "finalize")
PANELS: Final = (
    Panel("One by one", "messages/s (more is better)", tuple(("one", f"{verb}_per_s", verb) for verb in VERBS)),
    Panel(
        "In batches",
        "messages/s (more is better)",
        tuple(
            (case, f"{verb}_per_s", f"{verb}, {BY_NAME[case].batch}")
            for case in ("batch-100", "batch-1000")
            for verb in VERBS
        ),
        logarithmic=True,
    ),
    Panel(
        "put → reserve → finalize, 1 producer, 4 consumers",
        "messages/s (more is better)",
        (("flow-1", "done_per_s", "one by one"), ("flow-100", "done_per_s", "batches of 100")),
        logarithmic=True,
    ),
    Panel(
        "An idle consumer is woken",
        "ms from put to received (less is better)",
        (("wake-up", "wakeup_p50_ms", "p50"), ("wake-up", "wakeup_p95_ms", "p95")),
    ),
    Panel(
        "An old transaction stays open",
        "share of the offered rate (1 is all of it)",
        (("pinned", "free_share", "without it"), ("pinned", "late_share", "with it, last third")),
    ),
    Panel(
        "Time of a reservation while it does",
        "ms (less is better)",
        (
            ("pinned", "free_reserve_p50_ms", "p50 without it"),
            ("pinned", "late_reserve_p50_ms", "p50, last third"),
            ("pinned", "late_reserve_p99_ms", "p99, last third"),
        ),
    ),
)


def rows_of(panel: Panel, summary: Summary) -> list[tuple[str, str, dict[str, float]]]:
    """Label, metric, and the medians by system; without what was not measured."""
    found = []
    for case, metric, label in panel.bars:
        medians = {system: summary.median(system, case, metric) for system in SYSTEMS}
        values = {system: value for system, value in medians.items() if value is not None}
        if values:
            found.append((label, metric if case == "one" else "", values))
    return found


def draw_panel(axes: Axes, panel: Panel, rows: list[tuple[str, str, dict[str, float]]], systems: list[str]) -> None:
    height = 0.8 / len(systems)
    for row, (_, metric, values) in enumerate(rows):
        for n, system in enumerate(systems):
            if system in values:
                position = row - 0.4 + height * (n + 0.5)
                axes.barh(position, values[system], color=COLOURS[system], height=height * 0.9)
                axes.text(values[system], position, short(values[system]), va="center", ha="left", fontsize=8)
        if metric in SEED:
            axes.plot([SEED[metric]] * 2, [row - 0.45, row + 0.45], color=LINE, linewidth=2)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    finish_axes(axes, panel.title, panel.label)
    if panel.logarithmic:
        # A bar on such an axis has no beginning: a little below the smallest, at a power of ten.
        smallest = min(value for _, _, values in rows for value in values.values())
        axes.set_xscale("log")
        axes.set_xlim(left=10 ** math.floor(math.log10(max(smallest, 1.0)) - 0.3))


def draw(summary: Summary, path: Path) -> bool:
    """Writes the picture. False if there is nothing to draw; ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    panels = [(panel, rows) for panel in PANELS if (rows := rows_of(panel, summary))]
    systems = [system for system in SYSTEMS if summary.present(system)]
    if not panels:
        return False
    heights = [1.4 * len(rows) + 1.6 for _, rows in panels]
    figure, grid = pyplot.subplots(
        len(panels), 1, figsize=(9.5, 0.5 * sum(heights) + 0.8), height_ratios=heights, squeeze=False
    )
    for axes, (panel, rows) in zip(grid[:, 0], panels, strict=True):
        draw_panel(axes, panel, rows, systems)
    handles: list[Artist] = [Patch(color=COLOURS[system], label=system) for system in systems]
    handles.append(Line2D([], [], color=LINE, linewidth=2, label="the seed's own number"))
    figure.legend(handles=handles, loc="lower center", ncols=5, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.35 / figure.get_figheight(), 1, 1))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True
