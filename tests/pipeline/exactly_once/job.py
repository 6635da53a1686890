"""The archive job as a process that a test can kill: `python -m tests.pipeline.exactly_once.job SOURCE LAKE FORMAT`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from penstock.pipeline.archive import ArchiveOptions, archive
from penstock.pipeline.session import spark_session
from tests.pipeline.conftest import SETTINGS

EVENTS_OF_A_BATCH = 300


def main() -> None:
    source, lake, format = sys.argv[1:]
    spark = spark_session("penstock archive", master="local[1]", config=SETTINGS)
    options = ArchiveOptions(source, lake, format=format, once=True, max_records=EVENTS_OF_A_BATCH)
    result = archive(spark, options)
    spark.stop()
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
