"""`penstock pipeline`: the group. Its commands are the jobs themselves."""

from __future__ import annotations

import click

from penstock.pipeline.jobs.archive import archive
from penstock.pipeline.jobs.forecast import forecast
from penstock.pipeline.jobs.maintain import maintain
from penstock.pipeline.jobs.prepare import prepare
from penstock.pipeline.jobs.reconcile import reconcile
from penstock.pipeline.jobs.refine import refine
from penstock.pipeline.jobs.replay import replay
from penstock.pipeline.jobs.report import report
from penstock.pipeline.jobs.run import run
from penstock.pipeline.jobs.status import status
from penstock.pipeline.jobs.triage import triage


@click.group(short_help="Messages and their history on Spark: archive, refine, report, replay.")
def pipeline() -> None:
    """Bring every message's life into a lake, make use of it, and bring messages back into queues. Runs on Spark.

    --source is the data folder of a broker, or http://HOST:PORT of one that was started with --http-port. --lake is a
    folder: tables in Delta or Parquet that Spark, DuckDB and pandas read. --master is Spark's; by default all cores of
    this machine. PENSTOCK_SOURCE, PENSTOCK_LAKE, PENSTOCK_USER and PENSTOCK_PASSWORD are taken from the environment.

    Each command is also a file for spark-submit, with the same options: penstock/pipeline/jobs/COMMAND.py.

    Exit codes: 0 done as asked; 1 failed, and says why; 2 wrong options.
    """


for job in (archive, refine, run, report, replay, reconcile, triage, forecast, maintain, status, prepare):
    pipeline.add_command(job)
