"""Passwords in URLs that cannot be understood are not shown, and every command says what to write instead."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from penstock.cli.main import main

pytest.importorskip("psycopg")

# libpq complains about each of them with a piece of it.
URLS = ("postgresql://u:geheim%zz@localhost/db", "postgresql://u:geheim@localhost/db?sslmod=require")
COMMANDS = (
    ["pg", "status"],
    ["pg", "install"],
    ["put", "q", "x"],
    ["queues"],
    ["work", "q", "--allow", "os:getcwd"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
@pytest.mark.parametrize("url", URLS)
def test_a_url_that_libpq_does_not_understand_is_explained_without_its_password(command: list[str], url: str) -> None:
    result = CliRunner().invoke(main, [*command, "--url", url])
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    assert "postgresql://USER:PASSWORD@HOST" in result.output
    assert "geheim" not in result.output
