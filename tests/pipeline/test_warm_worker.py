"""What a worker process keeps from one task to the next: in a process of its own, since it cannot be undone."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

SCRIPT: Final = """
import gc
from penstock.pipeline.warm_worker import task_begins

for _ in range(4):
    task_begins()
    print(gc.get_freeze_count())
    kept = [[] for _ in range(1000)]
"""


def test_what_is_there_when_the_second_task_begins_is_never_looked_at_again_by_the_collector() -> None:
    answer = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    first, second, third, fourth = map(int, answer.stdout.split())
    assert first == 0
    assert second > 0
    # What later tasks make is collected as ever. Objects that were frozen may still go one by one.
    assert fourth <= third <= second
