"""How a task tells the driver which files it has written.

The driver gets a few texts, never the data. No transaction names the files of tasks that failed or were repeated.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from penstock.pipeline.lake.table_file import NewFile


def file_as_text(file: NewFile) -> str:
    return json.dumps(asdict(file))


def file_of_text(text: str) -> NewFile:
    return NewFile(**json.loads(text))
