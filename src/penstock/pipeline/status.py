"""`penstock pipeline status`: how far the jobs are, and how far behind, in events and in time.

Reads what the jobs have left in the lake, and the log itself where it can be reached. Starts no Spark.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from penstock.history.log import HistoryError
from penstock.history.opening import open_log
from penstock.pipeline.archive import progress_of
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import TABLES, Lake, open_lake
from penstock.pipeline.lake.reading import largest
from penstock.pipeline.reconcile.reconcile import note_file
from penstock.pipeline.refine import progress


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table of the lake."""

    table: str
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Everything below these positions is done."""

    lake: str
    format: str
    log_id: str
    # Behind the last event of the log; None when the log could not be asked.
    end_lsn: int | None
    archived_lsn: int | None
    archive_lag_events: int | None
    archive_lag_s: float | None
    # Whether the job said that it runs, when it was last heard of.
    archive_running: bool
    archive_updated_us: int | None
    refined_lsn: int
    # Events that are in bronze and not refined.
    refine_lag_events: int
    # Events that the reader had not read when they were removed.
    lost_events: int
    poison_rows: int
    tables: tuple[TableSize, ...]
    # Warnings for the operator; empty if all is well.
    alarms: tuple[str, ...]


def status(lake_path: str, source: str | None = None, user: str | None = None) -> PipelineStatus:
    """What there is to tell. LakeError when the lake cannot be read; a log that is not there is an alarm."""
    lake = open_lake(lake_path)
    alarms: list[str] = []
    told = progress_of(lake) or {}
    log = _ask_log(source or told.get("source"), user, told.get("reader", "archive"), alarms)
    tables = tuple(_size(lake, name) for name in TABLES)
    last = largest(lake.table("bronze"), "lsn")
    refined = progress.refined(lake)
    poison = next(table.rows for table in tables if table.table == "poison")
    if poison:
        alarms.append(f"{poison:,} rows could not be read whole; the table poison says which, and why")
    if log.get("lost_events"):
        alarms.append(
            f"{log['lost_events']:,} events were removed before they were archived:"
            " raise --readers-limit of the broker, or archive more often"
        )
    alarms += _differences(lake)
    return PipelineStatus(
        lake=str(lake.path),
        format=lake.format,
        log_id=lake.log_id,
        end_lsn=log.get("end_lsn"),
        archived_lsn=told.get("lsn"),
        archive_lag_events=log.get("lag_events", told.get("lag_events")),
        archive_lag_s=log.get("lag_s", told.get("lag_s")),
        archive_running=bool(told.get("running", False)),
        archive_updated_us=told.get("updated_us"),
        refined_lsn=refined.lsn,
        refine_lag_events=0 if last is None else max(0, int(last) + 1 - refined.lsn),
        lost_events=log.get("lost_events", 0),
        poison_rows=poison,
        tables=tables,
        alarms=tuple(alarms),
    )


def _ask_log(source: str | None, user: str | None, reader: str, alarms: list[str]) -> dict[str, Any]:
    """End of the log, and the reader's lag; empty when it cannot be asked."""
    if source is None:
        return {}
    try:
        with closing(open_log(source, user)) as log:
            found: dict[str, Any] = {"end_lsn": log.state().end_lsn}
            for one in log.readers():
                if one.name == reader:
                    state = asdict(one)
                    found.update({name: state[name] for name in ("lag_events", "lag_s", "lost_events")})
            return found
    except HistoryError as error:
        alarms.append(f"the log cannot be asked: {error}")
        return {}


def _size(lake: Lake, name: str) -> TableSize:
    table = lake.table(name)
    files = table.files() if table.exists() else []
    return TableSize(name, sum(file.rows for file in files), sum(file.bytes for file in files), len(files))


def _differences(lake: Lake) -> list[str]:
    """What the last reconciliation has found."""
    found = durable.read_json(note_file(lake))
    count = found.get("standing", 0) if isinstance(found, dict) else 0
    return [f"{count} counters differ from what was counted; run `penstock pipeline reconcile`"] if count else []
