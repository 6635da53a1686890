"""`penstock pipeline triage`: messages that died, by cause; and back with them once the cause is gone.

`redrive` publishes the messages of a group again: into the queue that they died in, or elsewhere. It leaves out what an
earlier one has brought back, as far as the lake has heard of it; and the key of a message is the same in every redrive,
so a queue with deduplication takes none twice.

What it does not do: empty dead-letter queues. A dead letter that lies in one stays there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from penstock.errors import StartupError
from penstock.pipeline.jobs.replay import OnProgress, ReplayOptions, ReplayResult, replay
from penstock.pipeline.lake.table import LakeError
from penstock.pipeline.publishing.arguments import add_destination, add_selection, destination_of, moment, selection_of
from penstock.pipeline.publishing.deaths import (
    GROUPS_SHOWN,
    Group,
    TriageOptions,
    TriageResult,
    selection_of_group,
    triage,
)
from penstock.pipeline.publishing.replayed import Destination
from penstock.pipeline.publishing.selection import SelectionError
from penstock.pipeline.sink.options import SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Group", "RedriveOptions", "TriageOptions", "TriageResult", "main", "redrive", "triage"]

# The name of every redrive: what makes a message's key the same each time.
REDRIVE: Final = "redrive"


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    """Which groups to bring back, and where to."""

    triage: TriageOptions
    broker: str = field(repr=False)
    # Ids, or their beginnings.
    groups: tuple[str, ...] = ()
    destination: Destination = field(default_factory=Destination)
    dry_run: bool = False
    rate_limit: float | None = None
    # Also what was brought back before.
    again: bool = False


def redrive(
    spark: SparkSession, options: RedriveOptions, on_progress: OnProgress | None = None
) -> dict[str, ReplayResult]:
    """Publish the messages of the groups again; the result of each by its id."""
    found = triage(spark, options.triage)
    results = {}
    for one in [_chosen(found, wanted) for wanted in options.groups]:
        results[one.id] = replay(
            spark,
            ReplayOptions(
                broker=options.broker,
                lake=options.triage.lake,
                selection=selection_of_group(one, options.triage),
                destination=options.destination,
                # Another name is another key.
                name="" if options.again else REDRIVE,
                skip_replayed=True,
                dry_run=options.dry_run,
                rate_limit=options.rate_limit,
            ),
            on_progress,
        )
    return results


def _chosen(found: TriageResult, wanted: str) -> Group:
    matching = [group for group in found.groups if wanted and group.id.startswith(wanted)]
    if len(matching) != 1:
        known = ", ".join(group.id for group in found.groups[:10]) or "none"
        many = "is the beginning of several groups" if matching else "is no group"
        raise SelectionError(f"{wanted!r} {many}; there are {known}")
    if not matching[0].whole:
        raise SelectionError(
            f"nothing of group {matching[0].id} can be published again: its bodies are not in the lake"
        )
    return matching[0]


def parser() -> argparse.ArgumentParser:
    """The arguments of `main`."""
    made = argparse.ArgumentParser(prog="triage", description="messages that died, by cause; and back with them")
    made.add_argument("--lake", required=True, help="folder of the lake")
    add_selection(made)
    made.add_argument("--died-from", metavar="TIME", help="died from then on: 2026-01-31T08:00:00Z")
    made.add_argument("--died-to", metavar="TIME", help="died before then")
    made.add_argument("--by-header", metavar="NAME", help="its value is part of a group")
    made.add_argument("--groups", type=int, default=GROUPS_SHOWN, metavar="N", help="shown at most")
    made.add_argument("--redrive", action="append", default=[], metavar="ID", help="bring the messages of a group back")
    made.add_argument("--broker", help="amqp://user:password@host:port/vhost, for --redrive")
    add_destination(made)
    made.add_argument("--again", action="store_true", help="also what was brought back before")
    made.add_argument("--master", help="of Spark; for spark-submit leave it away")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """For spark-submit."""
    from penstock.pipeline.session import spark_session

    given = parser().parse_args(arguments)
    try:
        selection = replace(selection_of(given), ended_since=moment(given.died_from), ended_until=moment(given.died_to))
        options = TriageOptions(given.lake, selection, given.by_header, given.groups, master=given.master)
        destination = destination_of(given)
        if given.redrive and not given.broker:
            raise SelectionError("--redrive publishes: say where with --broker")
        spark = spark_session("penstock triage", options.master)
        try:
            if given.redrive:
                wanted = RedriveOptions(
                    options,
                    given.broker,
                    tuple(given.redrive),
                    destination,
                    given.dry_run,
                    given.rate_limit,
                    given.again,
                )
                shown_result: object = {key: asdict(one) for key, one in redrive(spark, wanted).items()}
            else:
                shown_result = asdict(triage(spark, options))
        finally:
            spark.stop()
    except (SelectionError, SinkError, LakeError, StartupError) as error:
        sys.stderr.write(f"triage: {error}\n")
        return 1
    sys.stdout.write(json.dumps(shown_result, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
