"""The control socket in the data folder: who may use it, requests that are wrong, what a stop leaves."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.ctl.broker_control import BrokerControl, NoBroker, Refused
from penstock.limits import CONTROL_CONNECTIONS_MAX
from penstock.testing import Broker


def speak(folder: Path, *lines: bytes) -> list[dict[str, Any]]:
    """Send lines, and return the answers until the broker hangs up or each line has one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(10)
        client.connect(str(folder / "control.sock"))
        client.sendall(b"".join(line + b"\n" for line in lines))
        with client.makefile("rb") as answers:
            return [json.loads(answer) for _ in lines if (answer := answers.readline())]


def test_the_owner_is_answered(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path), BrokerControl(str(tmp_path)) as control:
        assert control.ask("status", {})["data_dir"] == str(tmp_path)
        assert control.ask("ping", {})["product"] == "penstock"


def test_only_the_owner_can_open_the_socket_and_a_clean_stop_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with Broker(data_dir=tmp_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


def test_a_broker_takes_the_place_of_a_socket_that_a_crash_has_left(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path)
    broker.start()
    broker.kill()
    with socket.socket(socket.AF_UNIX) as left:
        if not (tmp_path / "control.sock").exists():
            left.bind(str(tmp_path / "control.sock"))
    with broker, BrokerControl(str(tmp_path)) as control:
        assert control.ask("ping", {})["product"] == "penstock"


def test_a_folder_with_a_long_path_has_a_socket_too(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    with Broker(data_dir=folder), BrokerControl(str(folder)) as control:
        assert control.ask("ping", {})["product"] == "penstock"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"", "bad_request"),
        (b"hello", "bad_request"),
        (b"[]", "bad_request"),
        (b'{"operation": 3}', "bad_request"),
        (b'{"operation": "status", "arguments": []}', "bad_request"),
        (b"[" * 100_000, "bad_request"),
        (b"\xff\xfe", "bad_request"),
    ],
)
def test_what_is_not_a_request_is_answered_and_the_connection_ends(tmp_path: Path, line: bytes, kind: str) -> None:
    with Broker(data_dir=tmp_path):
        (answer,) = speak(tmp_path, line, b'{"operation": "ping"}')
        assert (answer["ok"], answer["error"]["kind"]) == (False, kind)


def test_a_refused_request_is_followed_by_others(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        refused, done = speak(tmp_path, b'{"operation": "png"}', b'{"operation": "ping"}')
        assert refused["error"]["text"] == "there is no operation 'png'; did you mean 'ping'?"
        assert done["ok"]


def test_one_command_more_than_there_can_be_is_told_so_and_the_others_go_on(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        controls = [BrokerControl(str(tmp_path)) for _ in range(CONTROL_CONNECTIONS_MAX)]
        try:
            for control in controls:
                control.ask("ping", {})
            with BrokerControl(str(tmp_path)) as late, pytest.raises((Refused, NoBroker, BrokenPipeError)):
                late.ask("ping", {})
            assert controls[0].ask("ping", {})["product"] == "penstock"
        finally:
            for control in controls:
                control.__exit__(None, None, None)


def test_a_command_that_waits_is_told_when_the_broker_stops(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path).start()
    with BrokerControl(str(tmp_path)) as control:
        control.ask("ping", {})
        broker.stop()
        with pytest.raises((NoBroker, BrokenPipeError)):
            control.ask("ping", {})
