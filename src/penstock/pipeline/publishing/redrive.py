"""Messages that died back into queues, once the cause is gone.

The messages of a group are published again: into the queue that they died in, or elsewhere. It leaves out what an
earlier one has brought back, as far as the lake has heard of it; and the key of a message is the same in every redrive,
so a queue with deduplication takes none twice.

Dead letters that lie in a queue stay there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.pipeline.publishing.deaths import Group, TriageOptions, TriageResult, selection_of_group, triage
from penstock.pipeline.publishing.replay import OnProgress, ReplayOptions, ReplayResult, replay
from penstock.pipeline.publishing.replayed import Destination
from penstock.pipeline.publishing.selection import SelectionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
