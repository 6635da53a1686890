"""The examples of docs/postgres-sql.md are run, and return what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.postgres.plain_sql import PlainSql

PAGE = Path(__file__).parents[2] / "docs" / "postgres-sql.md"


def test_the_examples_of_the_page_return_what_it_says(penstock_url: str) -> None:
    text = PAGE.read_text("utf-8")
    lines = [line for block in re.findall(r"```sql\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    checked = 0
    with PlainSql(penstock_url) as sql:
        for line in lines:
            statement, _, expected = line.partition("-- → ")
            cursor = sql.connection.execute(statement.encode())
            if expected:
                row = cursor.fetchone()
                assert row is not None, statement
                assert str(row[0]) == expected.strip(), statement
                checked += 1
    assert checked >= 10


def test_the_page_names_every_function_that_is_for_callers(penstock_url: str) -> None:
    text = PAGE.read_text("utf-8")
    with PlainSql(penstock_url) as sql:
        names = sql.column(
            "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'penstock'::regnamespace AND proname !~ '^_'"
        )
    assert len(names) > 25
    unnamed = [name for name in names if name not in text]
    assert unnamed == []
