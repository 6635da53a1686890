"""How rows are printed: rabbitmqctl's formatters of the same names."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any, Final

Row = dict[str, Any]

TABLE: Final = "table"
PRETTY_TABLE: Final = "pretty_table"
JSON: Final = "json"
CSV: Final = "csv"
FORMATTERS: Final = (TABLE, PRETTY_TABLE, JSON, CSV)


def format_rows(rows: Sequence[Row], columns: Sequence[str], formatter: str, with_headers: bool) -> str:
    """Return rows as text, without a line break at its end."""
    if formatter == JSON:
        return json.dumps([{name: row.get(name) for name in columns} for row in rows])
    lines = [[_text(row.get(name)) for name in columns] for row in rows]
    if formatter == CSV:
        return _csv(lines, columns, with_headers)
    if formatter == PRETTY_TABLE:
        return _boxed(lines, columns)
    header = [list(columns)] if with_headers and lines else []
    return "\n".join("\t".join(line) for line in header + lines)


def _text(value: object) -> str:
    """One value in a table. Line breaks and tabs in names would be taken for those of the table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_text(each) for each in value)}]"
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(value))


def _csv(lines: list[list[str]], columns: Sequence[str], with_headers: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if with_headers:
        writer.writerow(columns)
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")


def _boxed(lines: list[list[str]], columns: Sequence[str]) -> str:
    widths = [max(map(len, cells)) for cells in zip(columns, *lines, strict=True)]
    parts = ["─" * (width + 2) for width in widths]
    top, middle, bottom = (
        f"{left}{mid.join(parts)}{right}" for left, mid, right in (("┌", "┬", "┐"), ("├", "┼", "┤"), ("└", "┴", "┘"))
    )

    def row(cells: Sequence[str]) -> str:
        return "│" + "│".join(f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True)) + "│"

    separated = f"\n{middle}\n".join(row(line) for line in [list(columns), *lines])
    return f"{top}\n{separated}\n{bottom}"
