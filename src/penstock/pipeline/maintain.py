"""`penstock pipeline maintain`: compacts tables, and removes what is too old or no longer needed. It needs no Spark.

For each table, in this order: retention, which removes whole files; compaction; vacuum. Then the open lives that
earlier versions of `refine` had written. It may run beside the other jobs. Where one of them is faster, a table stays
as it is until the next time. Events that `refine` has not seen yet are never removed, however old they are; in a lake
that was never refined, age decides alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.pipeline import defaults
from penstock.pipeline.lake import durable
from penstock.pipeline.lake.opening import TABLES, Lake, open_lake
from penstock.pipeline.lake.statistics import as_statistic
from penstock.pipeline.lake.table import LakeTable, groups_to_compact
from penstock.pipeline.lake.table_file import LakeError, TableFile

# The column that says how old a row is.
TIME_OF: Final = {"bronze": "time", "poison": "time", "silver": "settled", "gold": "minute"}
# Longer than anything is kept; a calendar has an end.
DAYS_MAX: Final = 365_000


@dataclass(frozen=True, slots=True)
class MaintainOptions:
    lake: str
    # By table; one that is not named keeps everything.
    keep_days: Mapping[str, float] = field(default_factory=dict)
    target_bytes: int = defaults.FILE_MIB * 2**20
    # Files that no transaction names may be those of a job that runs, and those of an older version may be read.
    vacuum_hours: float = defaults.VACUUM_HOURS
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """What was done to a table, or in a dry run would be."""

    table: str
    expired_files: int
    files_before: int
    files_after: int
    vacuumed_files: int
    # Why it was left as it is.
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Maintenance:
    dry_run: bool
    tables: tuple[TableMaintenance, ...]
    # Folders of open lives to which nothing points any more.
    refine_folders: int


def maintain(options: MaintainOptions, now: datetime | None = None) -> Maintenance:
    """Do it. LakeError when the lake cannot be read, or an option is wrong."""
    for name, days in options.keep_days.items():
        if name not in TABLES or not 0 <= days <= DAYS_MAX:
            known = f"the tables are {', '.join(TABLES)}, days are 0 to {DAYS_MAX:,}"
            raise LakeError(f"keep days for {name!r}: {days:g}; {known}")
    lake = open_lake(options.lake)
    at = now or datetime.now(UTC)
    tables = tuple(maintain_table(lake, name, options, at) for name in TABLES)
    return Maintenance(options.dry_run, tables, remove_old_lives(lake, options.dry_run))


def maintain_table(lake: Lake, name: str, options: MaintainOptions, now: datetime) -> TableMaintenance:
    table = lake.table(name)
    try:
        expired = expire(lake, table, name, options, now)
        before, after = compact(table, options, expired)
        unused = table.unused(options.vacuum_hours)
        if not options.dry_run:
            table.vacuum(options.vacuum_hours)
    except LakeError as error:
        files = len(table.files())
        return TableMaintenance(name, 0, files, files, 0, str(error))
    return TableMaintenance(name, len(expired), before, after, len(unused))


def expire(lake: Lake, table: LakeTable, name: str, options: MaintainOptions, now: datetime) -> list[TableFile]:
    """Retention: the files that go."""
    days = options.keep_days.get(name)
    if days is None:
        return []
    limit = as_statistic(now - timedelta(days=days))
    column = TIME_OF[name]
    refined = refined_lsn(lake) if name in ("bronze", "poison") else None

    def goes(file: TableFile) -> bool:
        if column not in file.maximums or file.maximums[column] >= limit:
            return False
        return refined is None or ("lsn" in file.maximums and bool(file.maximums["lsn"] < refined))

    old = [file for file in table.files() if goes(file)]
    if not options.dry_run:
        table.delete_files(goes)
    return old


def compact(table: LakeTable, options: MaintainOptions, expired: Sequence[TableFile]) -> tuple[int, int]:
    """Files before and after."""
    if not options.dry_run:
        return table.compact(options.target_bytes)
    gone = {file.path for file in expired}
    files = [file for file in table.files() if file.path not in gone]
    groups = groups_to_compact(files, options.target_bytes)
    return len(files), len(files) - sum(len(group) - 1 for group in groups)


def refined_lsn(lake: Lake) -> int | None:
    """Return how far `refine` is; None when it never ran."""
    state = refine_state(lake)
    return None if state is None else int(state["lsn"])


def refine_state(lake: Lake) -> dict[str, Any] | None:
    found = durable.read_json(lake.own / "refine" / "refine.json")
    return found if isinstance(found, dict) else None


def remove_old_lives(lake: Lake, dry_run: bool) -> int:
    """Folders of open lives of versions before the one that `refine.json` points to; how many."""
    state = refine_state(lake)
    if state is None:
        return 0
    folder = lake.own / "refine"
    old = [path for path in folder.iterdir() if path.name.isdigit() and int(path.name) < int(state["version"])]
    if not dry_run:
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
    return len(old)
