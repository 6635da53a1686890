"""`penstock pipeline forecast`: when will this backlog be empty, or this queue full?

It reads the last minutes of gold, without Spark. What it says holds as long as things go on as they did.

What it does not do: read limits from the broker. Whoever asks gives them (`--limit QUEUE=N`, as in x-max-length).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.pipeline.lake.opening import open_lake
from penstock.pipeline.lake.table import LakeError
from penstock.pipeline.report import wording
from penstock.pipeline.report.minute_rows import read_span
from penstock.pipeline.report.outlook import QueueOutlook, outlook
from penstock.pipeline.report.terminal import TextColumn, text_table

if TYPE_CHECKING:
    from penstock.pipeline.lake.opening import Lake

MINUTES: Final = 60


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """What to look at."""

    lake: str
    # The past that the future is made of, up to the newest minute that the lake has.
    minutes: int = MINUTES
    # Names, with * and ?; none is all.
    queues: tuple[str, ...] = ()
    vhost: str | None = None
    # Queue -> messages at which it is full.
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecast:
    """All queues, those with the most messages first."""

    # ISO time of the newest minute: the outlook is from there.
    as_of: str
    minutes: int
    queues: list[QueueOutlook]


def forecast(
    lake: Lake,
    *,
    minutes: int = MINUTES,
    queues: Sequence[str] = (),
    vhost: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Forecast:
    """The outlook of every queue that something happened to in the last minutes. LakeError when there are none."""
    span = read_span(lake, minutes, queues, vhost)
    made = [outlook(span, place, (limits or {}).get(place[1])) for place in span.queues]
    made.sort(key=lambda each: (-each.depth, each.vhost, each.queue))
    return Forecast(span.last.isoformat(), span.minutes, made)


def limit_of(text: str) -> tuple[str, int]:
    """QUEUE=N; the name may have a = in it. ValueError when it is something else."""
    name, _, number = text.rpartition("=")
    if not name or not number.isascii() or not number.isdigit():
        raise ValueError(f"a limit is QUEUE=N, such as orders=100000, not {text!r}")
    return name, int(number)


def forecast_text(made: Forecast, width: int) -> str:
    """As a table."""
    columns = [
        TextColumn("queue", [wording.place(each.vhost, each.queue) for each in made.queues], is_left=True),
        TextColumn("depth", [wording.count(each.depth) for each in made.queues]),
        TextColumn("in", [wording.rate(each.in_rate) for each in made.queues], 1),
        TextColumn("out", [wording.rate(each.out_rate) for each in made.queues], 1),
        TextColumn("outlook", [each.text for each in made.queues], is_left=True),
    ]
    head = f"As of {made.as_of}, from the last {made.minutes} minutes\n\n"
    return head + "\n".join(text_table(columns, width)) + "\n"


def parser() -> argparse.ArgumentParser:
    """The arguments of `main`."""
    made = argparse.ArgumentParser(prog="forecast", description="when queues will be empty, or full")
    made.add_argument("--lake", required=True, help="folder of the lake")
    made.add_argument("--minutes", type=int, default=MINUTES, metavar="N", help="the past to go by")
    made.add_argument("--queue", dest="queues", action="append", default=[], metavar="NAME", help="with * and ?")
    made.add_argument("--vhost")
    made.add_argument("--limit", dest="limits", action="append", default=[], metavar="QUEUE=N", help="when it is full")
    made.add_argument("--json", action="store_true", help="as JSON instead of a table")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """For spark-submit and cron."""
    given = vars(parser().parse_args(arguments))
    try:
        made = forecast(
            open_lake(given["lake"]),
            minutes=given["minutes"],
            queues=given["queues"],
            vhost=given["vhost"],
            limits=dict(limit_of(text) for text in given["limits"]),
        )
    except (LakeError, OSError, ValueError) as error:
        sys.stderr.write(f"forecast: {error}\n")
        return 1
    width = shutil.get_terminal_size().columns
    sys.stdout.write(json.dumps(asdict(made)) + "\n" if given["json"] else forecast_text(made, width))
    return 0


if __name__ == "__main__":
    sys.exit(main())
