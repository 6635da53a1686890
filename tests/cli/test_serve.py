"""`penstock serve` as users start it: a process, its output, its signals, its exit code."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from pamqp import commands, frame

from tests.cli.conftest import Serve
from tests.cli.process import environment
from tests.interop.deadline import wait_until
from tests.server.amqp_client import ConnectionEnded, publish_frames


def test_it_says_on_stdout_where_it_listens_and_on_stderr_that_it_is_ready(serve: Serve) -> None:
    broker = serve("--port", "0").ready()
    assert broker.ready_line == {
        "host": "127.0.0.1",
        "port": broker.port,
        "pid": broker.process.pid,
        "data_dir": str(broker.data_dir),
        "recovery": [],
    }
    assert f"[INFO] penstock.server: started TCP listener on 127.0.0.1:{broker.port}\n" in broker.log
    assert re.search(r"^\d{4}-\d\d-\d\d .*\[INFO\] penstock\.server: Server startup complete$", broker.log, re.M)
    with broker.client() as client:
        client.barrier(1)
    broker.process.send_signal(signal.SIGTERM)
    assert broker.wait_until_it_ends() == 0
    assert broker.process.stdout is not None
    assert broker.process.stdout.read() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_and_clients_are_told(number: signal.Signals, serve: Serve) -> None:
    broker = serve("--port", "0").ready()
    with broker.client() as client:
        client.declare(1, "q")
        broker.process.send_signal(number)
        close = client.expect(commands.Connection.Close)
        assert close.reply_code == 320
        client.send(0, commands.Connection.CloseOk())
        client.expect_end()
    assert broker.wait_until_it_ends() == 0
    assert "Server stopped" in broker.log
    assert "Traceback" not in broker.log


def test_a_signal_as_soon_as_the_log_says_ready_is_not_too_early(serve: Serve) -> None:
    for _ in range(3):
        broker = serve("--port", "0")
        broker.wait_until_logged("Server startup complete")
        broker.process.send_signal(signal.SIGTERM)
        assert broker.wait_until_it_ends() == 0


def test_a_client_that_does_not_answer_does_not_keep_it_from_stopping(serve: Serve) -> None:
    broker = serve("--port", "0").ready()
    with broker.client() as silent:
        silent.barrier(1)
        broker.process.send_signal(signal.SIGTERM)
        assert broker.wait_until_it_ends() == 0
        assert silent.expect(commands.Connection.Close).reply_code == 320


def test_a_second_signal_while_it_stops_does_no_harm(serve: Serve) -> None:
    broker = serve("--port", "0").ready()
    with broker.client() as silent:
        broker.process.send_signal(signal.SIGTERM)
        silent.expect(commands.Connection.Close)
        broker.process.send_signal(signal.SIGINT)
        broker.process.send_signal(signal.SIGTERM)
        silent.send(0, commands.Connection.CloseOk())
        assert broker.wait_until_it_ends() == 0
    assert "Traceback" not in broker.log


def test_a_port_in_use_is_said_with_what_to_do(serve: Serve) -> None:
    first = serve("--port", "0").ready()
    second = serve("--port", str(first.port))
    assert second.wait_until_it_ends() == 1
    assert f"penstock: cannot listen on 127.0.0.1:{first.port}: " in second.log
    assert "Choose another port with --port." in second.log
    assert "Traceback" not in second.log
    with first.client() as client:
        client.barrier(1)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "198.51.100.1", "a..b"])
def test_a_host_that_cannot_be_listened_on_is_said_without_talk_of_ports(host: str, serve: Serve) -> None:
    broker = serve("--host", host, "--port", "0")
    assert broker.wait_until_it_ends() == 1
    assert host in broker.log
    assert "another port" not in broker.log
    assert "Traceback" not in broker.log


def test_users_vhosts_and_port_come_from_options(serve: Serve) -> None:
    broker = serve("--port", "0", "--user", "alice:p:w", "--user", "bob:ü€", "--vhost", "one", "--vhost", "two").ready()
    for user, password, vhost in (("alice", "p:w", "one"), ("alice", "p:w", "two"), ("bob", "ü€", "two")):
        with broker.client(user=user, password=password, vhost=vhost) as client:
            client.declare(1, "q")
    with pytest.raises(ConnectionEnded, match="ACCESS_REFUSED"):
        broker.client()


@pytest.mark.parametrize("prefix", ["PENSTOCK", "RABBITMQ"])
def test_user_password_vhost_and_port_come_from_the_environment(prefix: str, serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = {
        f"{prefix}_DEFAULT_USER": "alice",
        f"{prefix}_DEFAULT_PASS": "secret",
        f"{prefix}_DEFAULT_VHOST": "shop",
        "PENSTOCK_PORT" if prefix == "PENSTOCK" else "RABBITMQ_NODE_PORT": str(port),
    }
    broker = serve(**variables).ready()
    assert broker.port == port
    with broker.client(user="alice", password="secret", vhost="shop") as client:
        client.declare(1, "q")


def test_the_memory_limit_blocks_publishers(serve: Serve) -> None:
    broker = serve("--port", "0", "--memory-limit", "1").ready()
    with broker.client() as client:
        client.declare(1, "q")
        client.publish(1, "q", *[b"x" * 100_000] * 12)
        assert client.expect(commands.Connection.Blocked).reason == "low on memory"
    assert "memory alarm set: publishers are blocked" in broker.log


def test_the_log_level_is_kept(serve: Serve) -> None:
    broker = serve("--port", "0", "--log-level", "error").ready()
    with broker.client() as client:
        client.socket.sendall(b"\x09\x00\x00\x00\x00\x00\x00\xce")
        assert client.expect(commands.Connection.Close).reply_code == 501
    broker.process.send_signal(signal.SIGTERM)
    assert broker.wait_until_it_ends() == 0
    assert broker.log == ""


def test_names_that_clients_choose_cannot_forge_log_lines(serve: Serve) -> None:
    broker = serve("--port", "0").ready()
    forged = "x\n2030-01-01 00:00:00,000 [ERROR] penstock.server: forged"
    # pamqp refuses to write such names, so they take the place of others.
    stand_in = "y" * len(forged)
    purge = frame.marshal(commands.Queue.Purge(0, stand_in), 1)
    publish = publish_frames(2, "key", b"", exchange=stand_in)
    with broker.client() as client:
        client.open_channel(2)
        client.socket.sendall((purge + publish).replace(stand_in.encode(), forged.encode()))
        assert forged in client.expect(commands.Channel.Close).reply_text
        assert forged in client.expect(commands.Channel.Close).reply_text
    for arguments in ({"user": forged}, {"vhost": forged}):
        with pytest.raises(ConnectionEnded):
            broker.client(**arguments)
    broker.process.send_signal(signal.SIGTERM)
    assert broker.wait_until_it_ends() == 0
    assert not re.search(r"^2030-01-01", broker.log, re.M)


def test_an_idle_broker_is_small(serve: Serve, record_property: pytest.RecordProperty) -> None:
    if not os.path.exists("/proc/self/status"):
        pytest.skip("this system does not tell the memory of a process in /proc")
    broker = serve("--port", "0").ready()
    with broker.client() as client:
        client.barrier(1)
    resident_mib = broker.resident_mib()
    record_property("idle_rss_mib", round(resident_mib, 1))
    # The goal is 60; this bound only tells that something large was imported.
    assert resident_mib < 100


def test_it_runs_without_uvloop_too(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> None:
    # An import of that name that fails, as if it were not installed.
    folder = tmp_path_factory.mktemp("without")
    (folder / "uvloop.py").write_text("raise ImportError('not here')\n")
    broker = serve("--port", "0", PYTHONPATH=str(folder)).ready()
    with broker.client() as client:
        client.declare(1, "q")
        client.publish(1, "q", b"x")
        client.consume(1, "q", no_ack=True)
        assert client.message().body == b"x"
        broker.process.send_signal(signal.SIGTERM)
        assert client.expect(commands.Connection.Close).reply_code == 320
        client.send(0, commands.Connection.CloseOk())
    assert broker.wait_until_it_ends() == 0


def test_a_client_that_is_cut_off_in_a_run_costs_no_one_else(serve: Serve) -> None:
    broker = serve("--port", "0").ready()
    with broker.client() as other:
        other.declare(1, "q")
        for _ in range(20):
            with broker.client() as client:
                client.publish(1, "q", *[b"x" * 1000] * 100)
                client.reset()
        other.barrier(1)
        wait_until(lambda: "internal error" in broker.log or other.declare(1, "q") == "q", "it still answers")
    assert "Traceback" not in broker.log


def test_stdout_has_nothing_without_json() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "serve", "--port", "0", "--in-memory"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stderr is not None
    lines = iter(process.stderr.readline, b"")
    assert any(b"Server startup complete" in line for line in lines)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == (b"", 0)
