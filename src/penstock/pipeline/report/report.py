"""`penstock pipeline report`: what happened in the last hours, as a page and as tables.

It reads gold alone, without Spark, and so takes about a second.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline import defaults
from penstock.pipeline.report.minute_rows import read_span
from penstock.pipeline.report.page import html_page
from penstock.pipeline.report.summary import Report, summarise

if TYPE_CHECKING:
    from penstock.pipeline.lake.opening import Lake


def report(
    lake: Lake,
    out: str | Path | None = None,
    *,
    hours: float | None = defaults.REPORT_HOURS,
    queues: Sequence[str] = (),
    vhost: str | None = None,
) -> Report:
    """Sum up the span; with `out` the page is written there. LakeError when the lake has no minutes."""
    minutes = None if hours is None else round(hours * 60)
    made = summarise(read_span(lake, minutes, queues, vhost))
    if out is not None:
        write_page(made, Path(out))
    return made


def write_page(made: Report, path: Path) -> None:
    """Replace the page as a whole: a browser may be reading it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(html_page(made), encoding="utf-8")
    draft.replace(path)
