"""The statements that sessions and brokers send, by name. Their texts are in `sql/statements`.

`-- name:` begins a statement and `-- columns:` a list of columns that later statements name in braces. Every parameter
is bound; the schema's name, quoted, is the only thing that is put into a text. Each parameter has a cast: psycopg would
choose a number's type by its size, and each type would be another statement to prepare.
"""

from __future__ import annotations

import re
from functools import cache

from psycopg import sql

from penstock.pg.install import sql_files, sql_folder

_HEAD = re.compile(r"-- (name|columns): (\w+)")


class Statements:
    def __init__(self, schema: str) -> None:
        self.schema = schema
        quoted = sql.Identifier(schema).as_string(None)
        self._texts = {name: text.replace("{schema}", quoted).encode() for name, text in statement_texts().items()}

    def __getitem__(self, name: str) -> bytes:
        return self._texts[name]


@cache
def statement_texts() -> dict[str, str]:
    """Return each statement by its name, with `{schema}` in the places of the schema's name."""
    statements: dict[str, list[str]] = {}
    columns: dict[str, list[str]] = {}
    lines: list[str] = []
    for file in sql_files(sql_folder() / "statements"):
        for line in file.read_text("utf-8").splitlines():
            head = _HEAD.fullmatch(line)
            if head is not None:
                lines = (statements if head[1] == "name" else columns).setdefault(head[2], [])
            elif line and not line.startswith("--"):
                lines.append(line.strip())
    texts = {name: " ".join(lines) for name, lines in statements.items()}
    for name, names in columns.items():
        texts = {each: text.replace(f"{{{name}}}", " ".join(names)) for each, text in texts.items()}
    return texts
