"""`penstock history`: what is said about a log and its readers, to people and to programs, and what is refused."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pamqp import commands

from penstock.cli.main import main
from penstock.config import Config
from penstock.disk.os_files import OsFiles
from penstock.errors import StartupError
from penstock.history.folder_log import FolderLog
from penstock.store.retention.reader_cursors import LSN_MAX, READERS_MAX, read_cursors, write_cursor
from penstock.testing import Broker
from tests.cli.conftest import Serve
from tests.history.small_broker import wait_for_all
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client

MESSAGES = 10


def history(*arguments: str, code: int = 0, **variables: str) -> Result:
    result = CliRunner(env={"PENSTOCK_USER": None, "PENSTOCK_PASSWORD": None, **variables}).invoke(
        main, ["history", *arguments]
    )
    assert result.exit_code == code, result.output
    return result


def answer(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(history(*arguments, "--json").stdout)
    return found


def publish(broker: Broker) -> None:
    """Persistent, into a durable queue, confirmed; then taken away again."""
    with Client(broker.host, broker.port) as client:
        client.handshake()
        client.open_channel(1)
        client.declare(1, "q", durable=True)
        client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        for number in range(MESSAGES):
            client.publish(1, "q", b"%d" % number, delivery_mode=2)
            client.expect(commands.Basic.Ack)
        client.consume(1, "q", no_ack=True)
        client.bodies(MESSAGES)


def live(folder: Path, lives: int = 1, **settings: Any) -> None:
    """So many brokers, one after the other, each with some messages in a segment of its own."""
    for _ in range(lives):
        with Broker(Config(**settings), data_dir=folder) as broker:
            publish(broker)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """The data folder of a broker that was stopped."""
    live(tmp_path / "data")
    return str(tmp_path / "data")


def status_with(folder: str, events: int) -> dict[str, Any] | None:
    found = answer("status", "--source", folder)
    return found if found["end_lsn"] - found["first_lsn"] >= events else None


def test_status_says_what_there_is_while_the_broker_runs_and_when_it_is_stopped(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        publish(broker)
        # What is not yet known to be durable is not shown.
        running = wait_until(lambda: status_with(str(tmp_path), MESSAGES), "all messages are shown")
    assert len(running["log_id"]) == 32
    assert 0 < running["first_us"] <= running["end_us"]
    stopped = answer("status", "--source", str(tmp_path))
    assert stopped["log_id"] == running["log_id"]
    assert stopped["end_lsn"] >= running["end_lsn"]
    assert stopped["segments"] == 1
    assert stopped["bytes"] > 0
    text = history("status", "--source", str(tmp_path)).stdout
    assert running["log_id"] in text
    assert f"to {stopped['end_lsn'] - 1}" in text


def test_the_folder_is_the_one_that_serve_would_use_unless_it_is_named(folder: str) -> None:
    found = json.loads(history("status", "--json", PENSTOCK_DATA_DIR=folder).stdout)
    assert found == answer("status", "--source", folder)


def test_segments_are_listed_without_gaps(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    live(tmp_path / "data", 3)
    lines = history("segments", "--source", data, "--json").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [info["number"] for info in found] == [1, 2, 3]
    assert [info["first_lsn"] for info in found[1:]] == [info["next_lsn"] for info in found[:-1]]
    text = history("segments", "--source", data).stdout
    assert len(text.splitlines()) == 4
    assert text.split()[:2] == ["segment", "first"]


def test_readers_are_listed_with_their_lag(folder: str) -> None:
    end = answer("status", "--source", folder)["end_lsn"]
    files = OsFiles(folder)
    write_cursor(files, "lake", end, 1_700_000_000_000_000)
    write_cursor(files, "slow 水", end - 4, 1_700_000_000_000_000)
    found = [json.loads(line) for line in history("readers", "--source", folder, "--json").stdout.splitlines()]
    assert [(each["name"], each["lag_events"], each["lost_events"]) for each in found] == [
        ("lake", 0, 0),
        ("slow 水", 4, 0),
    ]
    assert found[0]["lag_bytes"] == 0 < found[1]["lag_bytes"]
    text = history("readers", "--source", folder).stdout
    assert "slow 水" in text
    assert "2023-11-14 22:13:20Z" in text


def test_without_readers_it_says_how_long_history_is_kept(folder: str) -> None:
    assert "no readers" in history("readers", "--source", folder).stdout
    assert history("readers", "--source", folder, "--json").stdout == ""


def test_a_reader_that_lost_events_is_pointed_out_with_what_to_do(tmp_path: Path) -> None:
    live(tmp_path)
    write_cursor(OsFiles(str(tmp_path)), "it's", 2, 1)
    live(tmp_path, 3, history_bytes_max=0, readers_bytes_max=0)
    first = answer("status", "--source", str(tmp_path))["first_lsn"]
    assert first > 2
    result = history("readers", "--source", str(tmp_path))
    assert f"it's has lost {first - 2} events" in result.stderr
    assert "raise --readers-limit" in result.stderr
    assert """`penstock history forget 'it'"'"'s'`""" in result.stderr


def test_a_reader_holds_history_over_lives_of_the_broker(tmp_path: Path) -> None:
    live(tmp_path)
    write_cursor(OsFiles(str(tmp_path)), "lake", 2, 1)
    live(tmp_path, 3, history_bytes_max=0)
    state = answer("status", "--source", str(tmp_path))
    assert (state["first_lsn"], state["segments"]) == (0, 4)
    (reader,) = history("readers", "--source", str(tmp_path), "--json").stdout.splitlines()
    assert json.loads(reader)["lag_events"] == state["end_lsn"] - 2


@pytest.mark.parametrize("name", ["lake", "a/../b", "-dash", 'it\'s "q" 水', "x" * 128])
def test_a_reader_is_forgotten_by_its_name(name: str, folder: str) -> None:
    files = OsFiles(folder)
    write_cursor(files, name, 1, 1)
    write_cursor(files, "other", 1, 1)
    assert json.loads(history("forget", "--source", folder, "--json", "--", name).stdout) == {"forgotten": name}
    assert [cursor.name for cursor in read_cursors(files)[0]] == ["other"]
    again = history("forget", "--source", folder, "--", name, code=1)
    assert "`penstock history readers` lists" in again.stderr


@pytest.mark.parametrize("name", ["nobody", "", "x" * 129, "a\nb"])
def test_a_reader_that_is_not_there_cannot_be_forgotten(name: str, folder: str) -> None:
    result = history("forget", name, "--source", folder, code=1)
    assert "there is no reader" in result.stderr
    assert "\n" not in result.stderr.rstrip("\n")


def test_all_readers_are_listed_when_there_are_as_many_as_can_be(folder: str) -> None:
    for number in range(READERS_MAX):
        write_cursor(OsFiles(folder), f"reader {number:03}", number, number)
    assert len(history("readers", "--source", folder).stdout.splitlines()) == READERS_MAX + 1


def test_a_time_that_no_clock_shows_does_not_stop_the_list(folder: str) -> None:
    write_cursor(OsFiles(folder), "lake", 1, LSN_MAX)
    assert history("readers", "--source", folder).stdout.rstrip().endswith("?")


@pytest.mark.parametrize("command", ["status", "readers", "segments"])
@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("/no/such/folder", "give the data folder of a broker"),
        ("", "name a data folder"),
        ("ftp://host/x", "give a data folder, or http://host:port"),
        ("http://", "give http://host:port"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_with_advice(command: str, source: str, advice: str) -> None:
    result = history(command, "--source", source, code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("penstock: ")
    assert advice in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    assert "is not a data folder" in history("status", "--source", str(tmp_path), code=1).stderr
    assert list(tmp_path.iterdir()) == [], "and nothing is made in it"


def test_the_limit_for_readers_reaches_the_broker_and_http_host_needs_a_port(serve: Serve) -> None:
    broker = serve("--port", "0", "--readers-limit", "0", "--history-limit", "0").ready()
    assert broker.stop() == 0
    result = CliRunner().invoke(main, ["serve", "--in-memory", "--http-host", "127.0.0.1"])
    assert result.exit_code == 2
    assert "--http-port" in result.stderr
    result = CliRunner().invoke(main, ["config", "show", "--json", "--readers-limit", "7"])
    assert json.loads(result.stdout)["settings"]["readers_bytes_max"]["value"] == 7 * 1024 * 1024


@pytest.mark.parametrize("settings", [{"readers_bytes_max": -1}, {"http_port": 65_536}, {"http_port": -1}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(StartupError):
        Config(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["status", "readers", "forget", "segments"])
def test_help_names_the_exit_codes(command: str) -> None:
    assert "Exit codes: 0" in history(command, "--help").stdout


def test_the_same_is_said_over_http(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install penstock[http])")
    with Broker(Config(http_port=0), data_dir=tmp_path) as broker:
        publish(broker)
        with closing(FolderLog(str(tmp_path))) as log:
            # Not the messages alone: nothing may be added between two questions.
            wait_for_all(broker, log)
        url = f"http://127.0.0.1:{broker.call(lambda server: server.http_port)}"
        write_cursor(OsFiles(str(tmp_path)), "a/b 'c'", 3, 1)
        for command in ("readers", "segments"):
            assert history(command, "--source", url).stdout == history(command, "--source", str(tmp_path)).stdout
        there, here = answer("status", "--source", url), answer("status", "--source", str(tmp_path))
        assert {**there, "source": ""} == {**here, "source": ""}
        assert there["source"] == url
        refused = history("status", "--source", url, "--user", "guest", code=1, PENSTOCK_PASSWORD="wrong")
        assert "PENSTOCK_PASSWORD" in refused.stderr
        assert "wrong" not in refused.stderr
        assert "is forgotten" in history("forget", "a/b 'c'", "--source", url).stdout
        assert "no readers" in history("readers", "--source", str(tmp_path)).stdout
    assert "Is it running with --http-port" in history("status", "--source", url, code=1).stderr


def test_the_guide_names_options_that_exist() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "history.md").read_text()
    known = CliRunner().invoke(main, ["serve", "--help"]).stdout
    for command in ("status", "readers", "forget", "segments"):
        known += history(command, "--help").stdout
        assert f"penstock history {command}" in guide
    named = set(re.findall(r"--[a-z][a-z-]+", guide))
    assert named
    assert named <= set(re.findall(r"--[a-z][a-z-]+", known))
