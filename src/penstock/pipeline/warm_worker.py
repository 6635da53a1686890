"""Spark's Python workers, which run many tasks one after the other: what is not worth doing again for each of them.

Spark's daemon collects garbage after every task, and so walks over all that NumPy, pyarrow and pyspark have made when
they were imported: most of what a small task costs. What is there when a worker's second task begins has
come to stay, so it is put where the collector does not look (`gc.freeze`). What tasks make afterwards is collected as
before.

Does nothing in a driver: call it where a task begins.
"""

from __future__ import annotations

import gc

_tasks = 0


def task_begins() -> None:
    """Called at the beginning of each task."""
    global _tasks
    _tasks += 1
    if _tasks == 2:
        gc.freeze()
