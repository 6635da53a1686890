"""A batch that is in poison and not in bronze: what a crash between the two commits leaves.

As long as Spark's checkpoint is there, Spark repeats the batch, and bronze takes it. A new checkpoint begins behind the
last event of the lake; behind that of poison, the events of bronze in that batch would be lost. So a batch with rows
for poison is noted before its commits, in `_penstock/half_batch.json`, and `undo` removes the half of it again: the new
checkpoint reads it once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.lake.table_file import NewFile


def note(lake: Lake, application: str, version: int, files: Sequence[NewFile]) -> None:
    """The batch is about to be committed."""
    first = min(int(file.minimums["lsn"]) for file in files)
    durable.replace_json(_file(lake), {"application": application, "version": version, "lsn": first})


def undo(lake: Lake) -> None:
    """If the last such batch is in poison alone, it is in neither table afterwards."""
    noted = durable.read_json(_file(lake))
    if noted is None:
        return
    application, version = str(noted["application"]), int(noted["version"])
    bronze, poison = lake.table("bronze"), lake.table("poison")
    if bronze.version_of(application) < version <= poison.version_of(application):
        poison.replace_where("lsn", int(noted["lsn"]), EVENTS.empty_table(), f"undo {application}", version)


def _file(lake: Lake) -> Path:
    return lake.own / "half_batch.json"
