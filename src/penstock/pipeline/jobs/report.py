"""`penstock pipeline report`: what happened in the last hours, as a page and as tables.

It reads gold alone, without Spark, and so takes about a second.

What it does not do: bring gold up to date. That is `refine`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.pipeline.lake.opening import open_lake
from penstock.pipeline.lake.table import LakeError
from penstock.pipeline.report.minute_rows import read_span
from penstock.pipeline.report.page import html_page
from penstock.pipeline.report.summary import Report, summarise
from penstock.pipeline.report.terminal import report_text

if TYPE_CHECKING:
    from penstock.pipeline.lake.opening import Lake

HOURS: Final = 24.0


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What to show, and where."""

    lake: str
    # The page; None for none.
    out: str | None = None
    # Up to the newest minute that the lake has; None for all.
    hours: float | None = HOURS
    # Names, with * and ?; none is all.
    queues: tuple[str, ...] = ()
    vhost: str | None = None


def report(
    lake: Lake,
    out: str | Path | None = None,
    *,
    hours: float | None = HOURS,
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
    """The page is there as a whole, or the one before it is: somebody may be looking at it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(html_page(made), encoding="utf-8")
    draft.replace(path)


def parser() -> argparse.ArgumentParser:
    """The arguments of `main`."""
    made = argparse.ArgumentParser(prog="report", description="what happened in the last hours, queue by queue")
    made.add_argument("--lake", required=True, help="folder of the lake")
    made.add_argument("--out", metavar="FILE", help="write a page with plots, too")
    made.add_argument("--hours", type=float, default=HOURS, metavar="N", help="up to the lake's newest minute")
    made.add_argument("--all", dest="hours", action="store_const", const=None, help="all hours")
    made.add_argument("--queue", dest="queues", action="append", default=[], metavar="NAME", help="with * and ?")
    made.add_argument("--vhost")
    made.add_argument("--json", action="store_true", help="the data as JSON instead of tables")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """For spark-submit and cron."""
    given = vars(parser().parse_args(arguments))
    wants_json = given.pop("json")
    options = ReportOptions(**{**given, "queues": tuple(given["queues"])})
    try:
        made = report(
            open_lake(options.lake), options.out, hours=options.hours, queues=options.queues, vhost=options.vhost
        )
    except (LakeError, OSError) as error:
        sys.stderr.write(f"report: {error}\n")
        return 1
    width = shutil.get_terminal_size().columns
    sys.stdout.write(json.dumps(asdict(made)) + "\n" if wants_json else report_text(made, width))
    return 0


if __name__ == "__main__":
    sys.exit(main())
