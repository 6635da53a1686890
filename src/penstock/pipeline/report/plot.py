"""Lines over time as SVG: no library, no script, colours by class so that the page decides them.

Texts are escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from typing import Final

WIDTH: Final = 520
HEIGHT: Final = 170
LEFT: Final = 64
RIGHT: Final = 8
TOP: Final = 8
BOTTOM: Final = 22


@dataclass(frozen=True, slots=True)
class Line:
    """Values over time; None where there is none, which leaves a gap."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """When the points are: `count` of them, `step` apart."""

    first: datetime
    step: timedelta
    count: int

    def label(self, number: int) -> str:
        at = self.first + self.step * number
        return f"{at:%H:%M}" if self.step * self.count <= timedelta(days=2) else f"{at:%m-%d %H:%M}"


def plot(title: str, lines: Sequence[Line], axis: TimeAxis, say: Callable[[float], str], is_log: bool = False) -> str:
    """An SVG element. `say` words a value of the vertical axis; with `is_log` each step of it is ten times the last."""
    known = [value for line in lines for value in line.values if value is not None]
    if not known:
        return f'<figure><figcaption>{escape(title)}</figcaption><p class="none">nothing to show</p></figure>'
    scale, ticks = _log_scale(known) if is_log else _linear_scale(known)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}</title>']
    for value in ticks:
        y = _y(scale(value))
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{escape(say(value))}</text>'
        )
    for number, anchor in ((0, "start"), (axis.count // 2, "middle"), (axis.count - 1, "end")):
        if number or anchor == "start":
            text = escape(axis.label(number))
            x = _x(number, axis.count)
            parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{text}</text>')
    for place, line in enumerate(lines):
        parts.append(f'<path class="line line{place}" d="{_path(line.values, axis.count, scale)}"/>')
    parts.append("</svg>")
    legend = "".join(f'<span class="key key{place}">{escape(line.name)}</span>' for place, line in enumerate(lines))
    return f"<figure><figcaption>{escape(title)} {legend}</figcaption>{''.join(parts)}</figure>"


def _path(values: Sequence[float | None], count: int, scale: Callable[[float], float]) -> str:
    steps = []
    for number, value in enumerate(values):
        if value is None:
            continue
        is_joined = number > 0 and values[number - 1] is not None
        steps.append(f"{'L' if is_joined else 'M'}{_x(number, count):.1f} {_y(scale(value)):.1f}")
        if not is_joined and (number + 1 == len(values) or values[number + 1] is None):
            # A point alone: a line of no length, which a round end makes visible.
            steps.append("h0")
    return "".join(steps)


def _x(number: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (number / (count - 1) if count > 1 else 0.0)


def _y(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _linear_scale(values: Sequence[float]) -> tuple[Callable[[float], float], list[float]]:
    top = _round_up(max(values)) or 1.0
    return (lambda value: max(0.0, value) / top), [0.0, top / 2, top]


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, …"""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999999)


def _log_scale(values: Sequence[float]) -> tuple[Callable[[float], float], list[float]]:
    low = math.floor(math.log10(max(1.0, min(values))))
    high = max(low + 1, math.ceil(math.log10(max(1.0, max(values)))))
    every = -(-(high - low) // 4)
    ticks = [10.0**power for power in range(low, high + 1, every)]
    return (lambda value: (math.log10(max(value, 10.0**low)) - low) / (high - low)), ticks
