"""`penstock serve` with a data folder: what survives, who may use it, and what is said when it cannot be used."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pamqp import commands

from penstock.cli.main import main
from penstock.machine import default_data_dir
from penstock.server.sync.open_store import folder_complaint
from penstock.settings.resolve import resolve
from tests.cli.conftest import Serve
from tests.cli.process import ServeProcess, environment
from tests.interop.deadline import wait_until


def publish(broker: ServeProcess, *bodies: bytes) -> None:
    """Persistent, into a durable queue, confirmed."""
    with broker.client() as client:
        client.declare(1, "q", durable=True)
        client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        for body in bodies:
            client.publish(1, "q", body, delivery_mode=2)
            client.expect(commands.Basic.Ack)


def take(broker: ServeProcess, count: int) -> list[bytes]:
    with broker.client() as client:
        client.consume(1, "q", no_ack=True)
        return client.bodies(count)


def children(pid: int) -> list[int]:
    """Processes that the broker has started."""
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    if not listing.exists():
        pytest.skip("this system does not tell whose child a process is")
    return [int(text) for text in listing.read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_what_was_confirmed_is_there_again(number: signal.Signals, serve: Serve, tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    broker = serve("--port", "0", "--data-dir", folder).ready()
    publish(broker, b"one", b"two", b"x" * 50_000)
    broker.process.send_signal(number)
    assert broker.wait_until_it_ends() == (-number if number == signal.SIGKILL else 0)
    again = serve("--port", "0", "--data-dir", folder).ready()
    assert again.ready_line["recovery"] == []
    assert take(again, 3) == [b"one", b"two", b"x" * 50_000]


def test_the_process_that_syncs_ends_with_the_broker_however_that_ends(serve: Serve) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        broker = serve("--port", "0").ready()
        (child,) = children(broker.process.pid)
        assert is_alive(child)
        broker.process.send_signal(number)
        broker.wait_until_it_ends()
        wait_until(lambda child=child: not is_alive(child), "its process has ended too")  # type: ignore[misc]


def test_when_the_process_that_syncs_dies_publishers_get_nacks_and_the_broker_ends(serve: Serve) -> None:
    broker = serve("--port", "0").ready()
    publish(broker, b"safe")
    (child,) = children(broker.process.pid)
    with broker.client() as client:
        client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        os.kill(child, signal.SIGSTOP)
        # More than the broker would sync by itself.
        client.publish(1, "q", *[b"in doubt " * 400] * 20, delivery_mode=2)
        client.barrier(1)
        os.kill(child, signal.SIGKILL)
        assert client.expect(commands.Basic.Nack).delivery_tag == 1
        assert client.expect(commands.Connection.Close).reply_code == 320
        client.send(0, commands.Connection.CloseOk())
    assert broker.wait_until_it_ends() == 1
    assert "[CRITICAL] penstock.server: the disk has failed: [Errno 5] the process that syncs is gone" in broker.log
    assert "penstock: stopped because the disk failed" in broker.log
    assert "Traceback" not in broker.log
    again = serve("--port", "0", "--data-dir", str(broker.data_dir)).ready()
    assert take(again, 1) == [b"safe"]


def test_in_memory_there_is_no_folder_and_no_process(serve: Serve) -> None:
    broker = serve("--port", "0", "--in-memory").ready()
    publish(broker, b"one")
    assert not broker.data_dir.exists()
    assert set(broker.ready_line) == {"host", "port", "pid"}
    assert children(broker.process.pid) == []


@pytest.mark.parametrize("how", ["fsync", "os", "none"])
def test_every_way_to_confirm_confirms(how: str, serve: Serve) -> None:
    broker = serve("--port", "0", "--confirm-sync", how).ready()
    publish(broker, b"one", b"two")
    broker.stop()
    again = serve("--port", "0", "--data-dir", str(broker.data_dir)).ready()
    assert take(again, 2) == [b"one", b"two"]


# --- folders that cannot be used ----------------------------------------------------------------------


def test_a_folder_that_is_in_use_is_refused_and_the_user_of_it_is_named(serve: Serve) -> None:
    first = serve("--port", "0").ready()
    second = serve("--port", "0", "--data-dir", str(first.data_dir))
    assert second.wait_until_it_ends() == 1
    assert f"process {first.process.pid}" in second.log
    assert str(first.data_dir) in second.log
    assert "another folder" in second.log
    assert "Traceback" not in second.log
    publish(first, b"still works")


def test_a_folder_of_a_newer_version_is_refused_and_left_alone(serve: Serve, tmp_path: Path) -> None:
    broker = serve("--port", "0").ready()
    publish(broker, b"one")
    broker.stop()
    (broker.data_dir / "format").write_text("penstock 99\n")
    before = sorted(str(path) for path in broker.data_dir.rglob("*"))
    refused = serve("--port", "0", "--data-dir", str(broker.data_dir))
    assert refused.wait_until_it_ends() == 1
    assert "penstock 99" in refused.log
    assert "Traceback" not in refused.log
    assert sorted(str(path) for path in broker.data_dir.rglob("*")) == before
    (broker.data_dir / "format").write_text("penstock 2\n")
    assert take(serve("--port", "0", "--data-dir", str(broker.data_dir)).ready(), 1) == [b"one"]


def test_a_file_in_the_place_of_the_folder_is_said(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("I was here first")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        broker = serve("--port", "0", "--data-dir", str(path))
        assert broker.wait_until_it_ends() == 1
        assert "is not a folder" in broker.log
        assert "--data-dir" in broker.log
        assert "Traceback" not in broker.log
    assert (tmp_path / "file").read_text() == "I was here first"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else_is_said(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o500)
    broker = serve("--port", "0", "--data-dir", str(folder))
    assert broker.wait_until_it_ends() == 1
    assert "Give this user the right to write there" in broker.log
    assert "Traceback" not in broker.log


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "Give this user the right to write there"),
        (errno.EPERM, "Give this user the right to write there"),
        (errno.EROFS, "read-only"),
        (errno.ENOSPC, "Make room on that disk"),
        (errno.EDQUOT, "Make room on that disk"),
        (errno.ENOTDIR, "is not a folder"),
        (errno.EIO, "penstock fsck"),
    ],
)
def test_each_reason_why_a_folder_cannot_be_used_has_its_advice(number: int, advice: str, tmp_path: Path) -> None:
    if number == errno.EIO:
        # There is nothing to look at in a folder that does not exist.
        (tmp_path / "a" / "b").mkdir(parents=True)
    text = folder_complaint(str(tmp_path / "a" / "b"), OSError(number, os.strerror(number)))
    assert advice in text
    assert str(tmp_path / "a" / "b") in text
    if number == errno.EACCES and hasattr(os, "getuid"):
        assert f"{tmp_path} belongs to user {os.getuid()}, this is user {os.getuid()}" in text


def test_a_port_in_use_leaves_the_folder_usable(serve: Serve, tmp_path: Path) -> None:
    first = serve("--port", "0").ready()
    folder = str(tmp_path / "data")
    second = serve("--port", str(first.port), "--data-dir", folder)
    assert second.wait_until_it_ends() == 1
    assert "Choose another port with --port." in second.log
    publish(serve("--port", "0", "--data-dir", folder).ready(), b"one")


# --- which folder -------------------------------------------------------------------------------------


def test_the_folder_is_an_option_before_a_variable_before_the_users_own() -> None:
    own = {"HOME": "/nobody", "XDG_DATA_HOME": "/xdg"}
    variable = {**own, "PENSTOCK_DATA_DIR": "/variable"}
    assert resolve(own).config().data_dir == default_data_dir(own)
    assert resolve(variable).config().data_dir == "/variable"
    assert resolve(variable, {"data_dir": "/option"}).config().data_dir == "/option"
    assert resolve(variable, {"in_memory": True}).config().data_dir is None
    assert resolve({**own, "PENSTOCK_IN_MEMORY": "yes"}, {"data_dir": "/option"}).config().data_dir == "/option"


@pytest.mark.parametrize(
    ("platform", "env", "folder"),
    [
        ("linux", {"HOME": "/u"}, "/u/.local/share/penstock"),
        ("linux", {"HOME": "/u", "XDG_DATA_HOME": "/xdg"}, "/xdg/penstock"),
        ("darwin", {"HOME": "/u", "XDG_DATA_HOME": "/xdg"}, "/u/Library/Application Support/penstock"),
        ("win32", {"HOME": "/u", "LOCALAPPDATA": "/u/AppData/Local"}, "/u/AppData/Local/penstock"),
        ("win32", {"HOME": "/u"}, "/u/AppData/Local/penstock"),
    ],
)
def test_each_system_has_its_place_for_the_data_of_users(platform: str, env: dict[str, str], folder: str) -> None:
    assert Path(default_data_dir(env, platform)) == Path(folder)


def test_without_options_it_is_durable_in_the_users_data_folder(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "serve", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path / "share")),
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert Path(ready["data_dir"]) == Path(
        default_data_dir({"HOME": str(tmp_path), "XDG_DATA_HOME": f"{tmp_path}/share"})
    )
    assert (Path(ready["data_dir"]) / "format").exists()


def test_a_wrong_way_to_confirm_in_a_variable_is_said() -> None:
    result = run("serve", "--in-memory", PENSTOCK_CONFIRM_SYNC="maybe")
    assert result.exit_code == 1
    assert "PENSTOCK_CONFIRM_SYNC is 'maybe'; it must be one of fsync, os, none" in result.output


# --- fsck and dump ------------------------------------------------------------------------------------


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner(env=environment(**variables)).invoke(main, arguments)


@pytest.fixture
def folder(serve: Serve) -> Path:
    """Left by a broker that was stopped, with two messages in it."""
    broker = serve("--port", "0").ready()
    publish(broker, b"one", b"two")
    assert broker.stop() == 0
    return broker.data_dir


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file but the lock, which says who took it last."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_fsck_finds_nothing_in_a_folder_that_is_in_order(folder: Path) -> None:
    before = contents(folder)
    result = run("fsck", str(folder))
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "nothing is damaged")
    as_json = run("fsck", str(folder), "--json")
    assert as_json.exit_code == 0
    assert json.loads(as_json.output)["findings"] == []
    assert json.loads(as_json.output)["counts"]
    assert contents(folder) == before


def test_fsck_that_has_only_notes_says_that_all_is_well(folder: Path) -> None:
    (folder / "somebody's file").write_text("does not belong here")
    result = run("fsck", str(folder))
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "nothing is damaged, 1 notes")
    as_json = run("fsck", str(folder), "--json")
    assert as_json.exit_code == 0
    assert [each["severity"] for each in json.loads(as_json.output)["findings"]] == ["note"]


def test_fsck_finds_damage_and_says_where(folder: Path) -> None:
    segment = min((folder / "journal").iterdir())
    data = bytearray(segment.read_bytes())
    data[data.index(b"one")] ^= 1
    segment.write_bytes(data)
    result = run("fsck", str(folder))
    assert result.exit_code == 1
    assert segment.name in result.output
    as_json = run("fsck", str(folder), "--json")
    assert as_json.exit_code == 1
    assert [each for each in json.loads(as_json.output)["findings"] if segment.name in each["path"]]


def test_dump_shows_a_journal_segment_record_by_record(folder: Path) -> None:
    segment = min((folder / "journal").iterdir())
    result = run("dump", str(segment), "--json")
    assert result.exit_code == 0
    records = [json.loads(line) for line in result.output.splitlines()]
    assert any('"queue": "q"' in json.dumps(json.loads(line)).replace("\\", "") for line in result.output.splitlines())
    assert len(run("dump", str(segment), "--json", "--limit", "2").output.splitlines()) == 2
    assert len(run("dump", str(segment)).output.splitlines()) >= len(records)


def test_dump_shows_a_checkpoint(folder: Path) -> None:
    checkpoint = max((folder / "checkpoint").iterdir())
    result = run("dump", str(checkpoint))
    assert result.exit_code == 0
    assert result.output


@pytest.mark.parametrize("command", ["fsck", "dump"])
def test_what_is_not_there_cannot_be_read(command: str, tmp_path: Path) -> None:
    result = run(command, str(tmp_path / "nothing"))
    assert result.exit_code == 2
    assert "cannot be" in result.output
    assert "Traceback" not in result.output


def test_dump_of_something_else_says_so(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear all")
    result = run("dump", str(tmp_path / "letter.txt"))
    assert result.exit_code == 2
    assert "none of the files that penstock writes" in result.output
