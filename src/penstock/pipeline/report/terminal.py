"""The report and the forecast as plain text, as wide as the terminal and no wider.

Columns that do not fit are left away, the least important first; names are cut in the middle, where they differ least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from penstock.pipeline.report import wording
from penstock.pipeline.report.summary import QueueSummary, Report, percentile

_GAP: Final = "  "
_NAME_MIN: Final = 12
_BARS: Final = "▁▂▃▄▅▆▇█"
_TREND_WIDTH: Final = 12


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table; those with the highest `rank` go first when there is no room. Rank 0 stays."""

    head: str
    cells: Sequence[str]
    rank: int = 0
    is_left: bool = False


def report_text(report: Report, width: int) -> str:
    """Return all of the report but its plots; the depth has a small one."""
    first, last = (datetime.fromisoformat(text) for text in (report.first, report.last))
    parts = [f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, {len(report.queues)} queues", ""]
    parts += text_table(_overview(report.queues), width)
    for title, columns in (("Outcomes", _outcomes(report.queues)), ("Dead letters", _causes(report.queues))):
        if columns[0].cells:
            parts += ["", title, *text_table(columns, width)]
    return "\n".join(parts) + "\n"


def text_table(columns: Sequence[TextColumn], width: int) -> list[str]:
    """Lines of a table that fits. The first column holds names and gets what room there is."""
    name, *others = columns
    room = max((len(text) for text in (name.head, *name.cells)), default=0)
    while others and min(room, _NAME_MIN) + _width(others) > width:
        worst = max(others, key=lambda column: column.rank)
        if worst.rank == 0:
            break
        others.remove(worst)
    room = max(min(room, width - _width(others)), min(room, _NAME_MIN))
    lines = []
    for number in range(-1, len(name.cells)):
        cells = [shortened(_cell(name, number), room).ljust(room)]
        cells += [_aligned(column, number) for column in others]
        lines.append(_GAP.join(cells).rstrip())
    return lines


def shortened(text: str, room: int) -> str:
    """Cut in the middle: names often differ at their ends."""
    if len(text) <= room:
        return text
    tail = (room - 1) // 2
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def trend(values: Sequence[float], width: int = _TREND_WIDTH) -> str:
    """Return a plot of one line: the largest of each part, as bars."""
    if not values:
        return ""
    width = min(width, len(values))
    edges = [number * len(values) // width for number in range(width + 1)]
    tops = [max(values[start:end]) for start, end in pairwise(edges)]
    most = max(tops)
    return "".join(_BARS[round(top / most * (len(_BARS) - 1))] if most > 0 else _BARS[0] for top in tops)


def _overview(queues: Sequence[QueueSummary]) -> list[TextColumn]:
    def spread(name: str, rank: int) -> list[TextColumn]:
        spreads = [queue.wait if name == "wait" else queue.service for queue in queues]
        return [
            TextColumn(head, [wording.duration(percentile(each, quantile)) for each in spreads], rank + more)
            for head, quantile, more in ((f"{name} p50", "p50", 0), ("p95", "p95", 1), ("p99", "p99", 4))
        ]

    return [
        TextColumn("queue", [wording.place(queue.vhost, queue.queue) for queue in queues], is_left=True),
        TextColumn("in", [wording.rate(queue.in_rate) for queue in queues]),
        TextColumn("out", [wording.rate(queue.out_rate) for queue in queues]),
        TextColumn("depth", [wording.count(queue.depth) for queue in queues]),
        TextColumn("", [trend([part.depth for part in queue.parts]) for queue in queues], 9, is_left=True),
        *spread("wait", 1),
        *spread("service", 2),
        TextColumn("redelivered", [wording.share(queue.redelivery_rate) for queue in queues], 7),
        TextColumn("busy", [wording.share(queue.utilisation) for queue in queues], 8),
    ]


def _outcomes(queues: Sequence[QueueSummary]) -> list[TextColumn]:
    names = list(dict.fromkeys(name for queue in queues for name in queue.outcomes))
    ended = [queue for queue in queues if queue.outcomes]
    return [
        TextColumn("queue", [wording.place(queue.vhost, queue.queue) for queue in ended], is_left=True),
        *(
            TextColumn(name, [wording.count(queue.outcomes.get(name, 0)) for queue in ended], rank)
            for rank, name in enumerate(names)
        ),
    ]


def _causes(queues: Sequence[QueueSummary]) -> list[TextColumn]:
    found = [(queue, cause, many) for queue in queues for cause, many in queue.dead_letter_causes.items()]
    return [
        TextColumn("queue", [wording.place(queue.vhost, queue.queue) for queue, _, _ in found], is_left=True),
        TextColumn("cause", [wording.printable(cause) for _, cause, _ in found], is_left=True),
        TextColumn("messages", [wording.count(many) for _, _, many in found]),
    ]


def _width(columns: Sequence[TextColumn]) -> int:
    return sum(len(_GAP) + _own_width(column) for column in columns)


def _own_width(column: TextColumn) -> int:
    return max(len(text) for text in (column.head, *column.cells))


def _cell(column: TextColumn, number: int) -> str:
    return column.head if number < 0 else column.cells[number]


def _aligned(column: TextColumn, number: int) -> str:
    text = _cell(column, number)
    return text.ljust(_own_width(column)) if column.is_left else text.rjust(_own_width(column))
