"""`penstock pg` against a real PostgreSQL."""

from __future__ import annotations

import json
import sys

import psycopg
import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import main
from tests.cli.process import environment


def run(*arguments: str, answer: str | None = None, **variables: str) -> Result:
    return CliRunner(env=environment(**variables)).invoke(main, ["pg", *arguments], input=answer)


def test_install_status_upgrade_uninstall(postgres_url: str) -> None:
    where = ["--url", postgres_url]
    missing = run("status", *where)
    assert (missing.exit_code, "pg install" in missing.output) == (1, True)
    assert run("upgrade", *where).exit_code == 1
    assert run("install", *where).output == 'schema "penstock" has version 2\n'
    assert run("upgrade", *where).exit_code == 0
    assert run("status", *where).exit_code == 0
    assert run("uninstall", *where, "--yes").exit_code == 0
    assert run("status", *where).exit_code == 1


def test_the_url_may_come_from_the_environment_and_the_schema_may_have_another_name(postgres_url: str) -> None:
    result = run("install", "--schema", "Other", "--json", PENSTOCK_POSTGRES_URL=postgres_url)
    assert json.loads(result.output) == {"schema": "Other", "version": 2}


def test_uninstall_asks(penstock_url: str) -> None:
    refused = run("uninstall", "--url", penstock_url, answer="n\n")
    assert refused.exit_code == 1
    assert run("status", "--url", penstock_url).exit_code == 0
    assert run("uninstall", "--url", penstock_url, answer="y\n").exit_code == 0


def test_status_shows_queues_participants_dead_rows_and_who_pins_the_horizon(penstock_url: str) -> None:
    with psycopg.connect(penstock_url, autocommit=True) as connection, psycopg.connect(penstock_url) as pin:
        pin.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        pin.execute("SELECT 1")
        pid = pin.info.backend_pid
        connection.execute("SELECT penstock.put('orders', 'x') FROM generate_series(1, 3)")
        connection.execute("SELECT penstock.attach('orders', 'consumer', '0')")
        text = run("status", "--url", penstock_url).output
        found = json.loads(run("status", "--url", penstock_url, "--json").output)
    assert "orders" in text
    assert "penstock consumer 1 orders" in text
    assert "dead rows in messages" in text
    assert f"pid {pid}" in text
    assert found["queues"][0]["ready_count"] == 3
    assert found["queues"][0]["consumer_count"] == 1
    assert found["participants"][0]["role"] == "consumer"
    assert found["upkeep"]["oldest_transaction_pid"] == pid
    assert (found["version"], found["newest"], found["history_days"]) == (2, 2, 30)


def test_status_without_queues_says_so(penstock_url: str) -> None:
    assert "no queues" in run("status", "--url", penstock_url).output


def test_sweep_says_what_it_did(penstock_url: str) -> None:
    with psycopg.connect(penstock_url, autocommit=True) as connection:
        connection.execute("SELECT penstock.put('q', 'x')")
        connection.execute("SELECT penstock.reserve('q', lease => '0')")
    done = json.loads(run("sweep", "--url", penstock_url, "--json").output)
    assert (done["returned"], done["folded"]) == (1, 3)
    assert run("sweep", "--url", penstock_url).output == "0 promoted, 0 returned, 0 folded, 0 partitions\n"


def test_retain_sets_the_days_and_drops_at_once(penstock_url: str) -> None:
    with psycopg.connect(penstock_url, autocommit=True) as connection:
        connection.execute("SELECT penstock._make_day(current_date - 20)")
        assert json.loads(run("retain", "--days", "7", "--url", penstock_url, "--json").output) == {
            "history_days": 7,
            "partitions": 1,
        }
        assert connection.execute("SELECT history_days FROM penstock.settings").fetchone() == (7,)
    assert run("retain", "--days", "0", "--url", penstock_url).exit_code == 2


@pytest.mark.parametrize("command", ["install", "upgrade", "uninstall", "status", "sweep", "retain"])
def test_without_a_url_the_options_are_wrong(command: str) -> None:
    assert run(command).exit_code == 2


@pytest.mark.parametrize("command", ["install", "upgrade", "uninstall", "status", "sweep", "retain"])
def test_every_command_names_its_exit_codes(command: str) -> None:
    assert "Exit codes: 0" in run(command, "--help").output


def test_a_server_that_is_not_there_is_said_in_one_line() -> None:
    result = run("status", "--url", "postgresql://127.0.0.1:1/nothing")
    assert result.exit_code == 1
    assert "--url" in result.output
    assert len(result.output.splitlines()) == 1


def test_a_schema_of_somebody_else_is_refused_with_what_to_do(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA penstock CREATE TABLE other (id integer)")
    result = run("install", "--url", postgres_url)
    assert (result.exit_code, "--schema" in result.output) == (1, True)


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    result = run("status", "--url", "postgresql://127.0.0.1:1/nothing")
    assert (result.exit_code, "pip install 'penstock[postgres]'" in result.output) == (1, True)
