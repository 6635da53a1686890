"""`penstockctl` and `penstock audit`: output, exit codes, what they say when they cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.ctl.formats import FORMATTERS, format_rows
from penstock.cli.ctl.main import penstockctl
from penstock.cli.main import main as penstock
from penstock.testing import Broker
from tests.server.amqp_client import Client


def ctl(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(penstockctl, [*words, "--data-dir", str(folder)])


def test_ping_succeeds_when_the_broker_answers(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        result = ctl(tmp_path, "ping")
        assert result.exit_code == 0
        assert "Ping succeeded" in result.output
        assert ctl(tmp_path, "ping", "-q").output == ""


def test_status_is_an_object_as_json(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        status = json.loads(ctl(tmp_path, "status", "--json").output)
    assert (status["product"], status["vhosts"], status["data_dir"]) == ("penstock", 1, str(tmp_path))


def test_the_use_of_deprecated_features_can_be_listed(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        assert json.loads(ctl(tmp_path, "list_deprecated_features", "--used", "--json").output) == []
        with Client(broker.host, broker.port) as client:
            client.handshake().open_channel(1)
            client.declare(1, "t")
        (found,) = json.loads(ctl(tmp_path, "list_deprecated_features", "--used", "--json").output)
        assert len(json.loads(ctl(tmp_path, "list_deprecated_features", "--json").output)) == 2
    assert (found["name"], found["used"], found["permitted"]) == ("transient_nonexcl_queues", 1, True)
    assert found["last_used_by"] == "queue 't' in vhost '/'"


def test_options_may_stand_before_the_verb(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        result = CliRunner().invoke(penstockctl, ["--data-dir", str(tmp_path), "-s", "list_vhosts", "name"])
        assert (result.exit_code, result.output) == (0, "/\n")


def test_without_a_broker_a_verb_says_what_to_do(tmp_path: Path) -> None:
    result = ctl(tmp_path, "status", "-q")
    assert result.exit_code == 69
    assert "start one with `penstock serve`" in result.output


ROWS = [{"name": "a\tb", "tags": ["x", "y"], "count": 3, "durable": True}, {"name": "é", "tags": [], "count": None}]


@pytest.mark.parametrize(
    ("formatter", "expected"),
    [
        ("table", "name\ttags\tcount\tdurable\na\\tb\t[x, y]\t3\ttrue\né\t[]\t\t"),
        ("csv", 'name,tags,count,durable\na\\tb,"[x, y]",3,true\né,[],,'),
        (
            "json",
            '[{"name": "a\\tb", "tags": ["x", "y"], "count": 3, "durable": true},'
            ' {"name": "\\u00e9", "tags": [], "count": null, "durable": null}]',
        ),
        (
            "pretty_table",
            "┌──────┬────────┬───────┬─────────┐\n"
            "│ name │ tags   │ count │ durable │\n"
            "├──────┼────────┼───────┼─────────┤\n"
            "│ a\\tb │ [x, y] │ 3     │ true    │\n"
            "├──────┼────────┼───────┼─────────┤\n"
            "│ é    │ []     │       │         │\n"
            "└──────┴────────┴───────┴─────────┘",
        ),
    ],
)
def test_rows_are_printed_as_rabbitmqctl_prints_them(formatter: str, expected: str) -> None:
    assert formatter in FORMATTERS
    assert format_rows(ROWS, ("name", "tags", "count", "durable"), formatter, with_headers=True) == expected


def test_the_audit_of_a_folder_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(penstock, ["audit", "--data-dir", str(tmp_path / "no")])
    assert result.exit_code == 1
    assert "name the broker's with --data-dir" in result.output


@pytest.mark.parametrize("since", ["yesterday", "5", "2026-13-01", "-5m"])
def test_a_time_that_is_none_is_refused_with_examples(tmp_path: Path, since: str) -> None:
    result = CliRunner().invoke(penstock, ["audit", "--data-dir", str(tmp_path), "--since", since])
    assert result.exit_code == 2
    assert "2026-11-18T09:00" in result.output
