"""The statements by name: the database understands each, with every parameter bound, and something sends each."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import ExecStatus

import penstock
from penstock.pg.statements import Statements, statement_texts

PLACEHOLDER = re.compile(r"%[sb]")
SOURCE = Path(penstock.__file__).parent


def test_postgresql_understands_every_statement(penstock_url: str) -> None:
    statements = Statements("penstock")
    with psycopg.connect(penstock_url, autocommit=True) as connection:
        for name in statement_texts():
            numbers = iter(range(1, 100))
            text = PLACEHOLDER.sub(lambda _: f"${next(numbers)}", statements[name].decode())  # noqa: B023
            prepared = connection.pgconn.prepare(b"", text.encode())
            assert prepared.status == ExecStatus.COMMAND_OK, (name, prepared.error_message)


@pytest.mark.parametrize("name", statement_texts())
def test_the_schema_is_all_that_is_put_into_a_statement_and_every_parameter_has_a_type(name: str) -> None:
    text = Statements('a "b"')[name].decode()
    assert "{" not in text
    assert "}" not in text
    assert len(PLACEHOLDER.findall(text)) == text.count("%") == len(re.findall(r"%[sb]::\w", text))


def test_every_statement_is_sent_by_a_session_or_a_broker() -> None:
    files = [*(SOURCE / "client/aio").rglob("*.py"), *(SOURCE / "server").rglob("*.py")]
    source = "".join([file.read_text("utf-8") for file in files])
    assert [name for name in statement_texts() if f'"{name}"' not in source] == []
