"""What jobs take unless they are told otherwise. Here, so that help can name it without Spark and Arrow."""

from __future__ import annotations

from typing import Final

# Name of the cursor in the broker, seconds between two batches, and bytes of the log in a batch.
READER: Final = "archive"
EVERY_S: Final = 10.0
BATCH_BYTES: Final = 256 * 1024 * 1024
# Events that are refined in one transaction. More is faster as long as Spark has the memory to sort them.
STEP_EVENTS: Final = 2_000_000
# Of `run`: seconds between two batches, and between two refinements.
RUN_EVERY_S: Final = 5.0
REFINE_EVERY_S: Final = 60.0
# Of a file, when small ones are put together; and the age of files that no version needs.
FILE_MIB: Final = 128
VACUUM_HOURS: Final = 168.0
# The past that a report shows, and that a forecast goes by.
REPORT_HOURS: Final = 24.0
FORECAST_MINUTES: Final = 60
# Messages that one job of Spark publishes.
SLICE_ROWS: Final = 50_000
# Groups of dead messages that are shown.
GROUPS: Final = 20
SCHEMA: Final = "penstock"
