from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class LakeError(Exception):
    """A table cannot be read or written. The text is for people, and says what to do next."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file in the table's folder that no transaction names yet. JSON-able: it travels from executors."""

    # Relative to the table's folder.
    path: str
    rows: int
    bytes: int
    # Of columns with an order: {"lsn": (1, 99), …}; times as ISO text.
    minimums: Mapping[str, Any] = field(default_factory=dict)
    maximums: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that is part of the table."""

    path: str
    rows: int
    bytes: int
    minimums: Mapping[str, Any]
    maximums: Mapping[str, Any]
