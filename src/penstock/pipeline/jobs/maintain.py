"""`penstock pipeline maintain`: what keeps the lake tidy. It starts no Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from penstock.pipeline import defaults
from penstock.pipeline.jobs.command.job import EXIT_FAILED, Job, answer
from penstock.pipeline.jobs.command.options import json_option, lake_option


@click.command(cls=Job, short_help="Compact, apply retention, remove what nobody needs.")
@lake_option
@click.option(
    "--keep-days",
    multiple=True,
    metavar="[TABLE=]DAYS",
    help="Retention of a table, or of all that are not named. Repeatable.",
)
@click.option(
    "--vacuum-hours",
    type=click.FloatRange(0),
    default=defaults.VACUUM_HOURS,
    show_default=True,
    metavar="HOURS",
    help="Age of files that no version needs.",
)
@click.option(
    "--target-mib",
    type=click.IntRange(1),
    default=defaults.FILE_MIB,
    show_default=True,
    metavar="MIB",
    help="Size of a file, when small ones are put together.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option
def maintain(
    lake: str, keep_days: tuple[str, ...], vacuum_hours: float, target_mib: int, dry_run: bool, as_json: bool
) -> None:
    """Make few files of many small ones, take away what is older than asked for, and what no version needs.

    May run beside the other jobs. Events that were not refined yet stay, however old they are.

    Exit codes: 0 done as asked; 1 a table was left alone, or it failed; 2 wrong options.
    """
    from penstock.pipeline.lake.opening import TABLES
    from penstock.pipeline.maintain import MaintainOptions
    from penstock.pipeline.maintain import maintain as work

    days = _days(keep_days, TABLES)
    result = work(MaintainOptions(lake, days, target_mib * 2**20, vacuum_hours, dry_run))
    would = "would be " if result.dry_run else ""
    lines = []
    for table in result.tables:
        done = f"{table.expired_files} expired, {table.files_before} compacted to {table.files_after}"
        problem = f"; left alone: {table.problem}" if table.problem else ""
        lines.append(f"{table.table}: files {would}{done}, {table.vacuumed_files} vacuumed{problem}")
    lines.append(f"open lives: {result.refine_folders} old folders {would}removed")
    answer(result, as_json, "\n".join(lines))
    sys.exit(EXIT_FAILED if any(table.problem for table in result.tables) else 0)


def _days(given: Sequence[str], tables: Sequence[str]) -> dict[str, float]:
    """Days by table. One that is named has its own, wherever that stands."""
    named: dict[str, float] = {}
    others: dict[str, float] = {}
    for text in given:
        table, equals, days = text.rpartition("=")
        try:
            if equals:
                named[table] = float(days)
            else:
                others = dict.fromkeys(tables, float(days))
        except ValueError:
            raise click.BadParameter(f"'{text}' is neither DAYS nor TABLE=DAYS", param_hint="--keep-days") from None
    return {**others, **named}


if __name__ == "__main__":
    maintain()
