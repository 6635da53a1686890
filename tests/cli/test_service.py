"""A broker as a service: drain, reload, systemd, logs."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from tests.cli.conftest import Serve
from tests.cli.process import ServeProcess, environment
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client, ConnectionEnded

LONG = "30"
QUICK_S = 10.0


def consume(client: Client, queue: str) -> int:
    """Consume without acknowledging; return the delivery tag of the first message."""
    client.consume(1, queue)
    return int(client.message().method.delivery_tag)


def with_messages(broker: ServeProcess, *bodies: bytes) -> Client:
    client = broker.client()
    client.declare(1, "q", durable=True)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    for body in bodies:
        client.publish(1, "q", body, delivery_mode=2)
        client.expect(commands.Basic.Ack)
    return client


# --- drain ------------------------------------------------------------------------------------------------


def test_a_stop_waits_for_acks_and_what_was_acknowledged_is_not_delivered_again(serve: Serve) -> None:
    broker = serve("--port", "0", "--drain", LONG).ready()
    with with_messages(broker, b"one", b"two") as client:
        client.qos(1, 1)
        tag = consume(client, "q")
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_until_logged("waiting up to 30 s for 1 acks and confirms of clients")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", broker.port), 5)
        client.ack(1, tag)
        # "two" is not delivered any more.
        assert client.expect(commands.Connection.Close).reply_code == 320
        client.send(0, commands.Connection.CloseOk())
    assert broker.wait_until_it_ends() == 0
    again = serve("--port", "0", "--data-dir", str(broker.data_dir)).ready()
    with again.client() as client:
        client.send(1, commands.Basic.Get(queue="q", no_ack=True))
        got = client.message()
        assert (got.body, got.method.message_count, got.method.redelivered) == (b"two", 0, False)


def test_a_second_signal_ends_the_wait(serve: Serve) -> None:
    broker = serve("--port", "0", "--drain", LONG).ready()
    with with_messages(broker, b"one") as client:
        consume(client, "q")
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_until_logged("waiting up to 30 s")
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_until_logged("SIGTERM again: the broker stops at once")
        assert client.expect(commands.Connection.Close).reply_code == 320
        client.send(0, commands.Connection.CloseOk())
    assert broker.wait_until_it_ends() == 0
    assert "1 acks and confirms are still missing" in broker.log


def test_the_wait_ends_after_its_time(serve: Serve) -> None:
    broker = serve("--port", "0", "--drain", "200ms").ready()
    with with_messages(broker, b"one") as client:
        consume(client, "q")
        broker.process.send_signal(signal.SIGTERM)
        assert client.expect(commands.Connection.Close).reply_code == 320
        client.send(0, commands.Connection.CloseOk())
    assert broker.wait_until_it_ends() == 0


def test_without_anything_to_wait_for_a_stop_does_not_wait(serve: Serve) -> None:
    broker = serve("--port", "0", "--drain", LONG).ready()
    with with_messages(broker, b"one") as client:
        begin_s = time.monotonic()
        broker.process.send_signal(signal.SIGTERM)
        assert client.expect(commands.Connection.Close).reply_code == 320
        client.send(0, commands.Connection.CloseOk())
        assert broker.wait_until_it_ends() == 0
    assert time.monotonic() - begin_s < QUICK_S


def test_clients_that_can_hear_it_are_told_with_connection_blocked(serve: Serve) -> None:
    broker = serve("--port", "0", "--drain", LONG).ready()
    capabilities = {"connection.blocked": True}
    with with_messages(broker, b"one") as consumer, broker.client(capabilities=capabilities) as publisher:
        tag = consume(consumer, "q")
        broker.process.send_signal(signal.SIGTERM)
        assert publisher.expect(commands.Connection.Blocked).reason == "the broker is shutting down"
        # It is served all the same.
        publisher.declare(1, "still")
        consumer.ack(1, tag)
        assert consumer.expect(commands.Connection.Close).reply_code == 320
    assert broker.wait_until_it_ends() == 0


# --- SIGHUP -----------------------------------------------------------------------------------------------


def test_sighup_applies_what_can_change_and_names_what_cannot(serve: Serve, tmp_path: Path) -> None:
    settings = tmp_path / "penstock.toml"
    settings.write_text('channels_max = 7\nlog_level = "info"\nport = 0')
    broker = serve("--config", str(settings)).ready()
    with broker.client(channels_max=7) as before:
        settings.write_text('channels_max = 9\nlog_level = "warning"\nport = 0\nembed_bytes_below = 100')
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_until_logged("these settings have changed and count from the next start: embed_bytes_below")
        before.barrier(1)
        with Client("127.0.0.1", broker.port) as after:
            after.handshake(channels_max=9)
    broker.process.send_signal(signal.SIGTERM)
    assert broker.wait_until_it_ends() == 0
    assert "SIGTERM: the broker stops" not in broker.log, "the level is a higher one now"


def test_a_wrong_file_changes_nothing_and_stops_nothing(serve: Serve, tmp_path: Path) -> None:
    settings = tmp_path / "penstock.toml"
    settings.write_text("channels_max = 7\nport = 0")
    broker = serve("--config", str(settings)).ready()
    settings.write_text("channels_max = 9\nprot = 0")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_until_logged("the settings stay as they are: ")
    assert "did you mean port?" in broker.log
    with Client("127.0.0.1", broker.port) as client, pytest.raises(ConnectionEnded):
        client.handshake(channels_max=8)


def test_a_closed_terminal_stops_it(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    log_file = tmp_path / "log"
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "serve", "--port", "0", "--in-memory", "--log-file", str(log_file)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(),
    )
    try:
        os.close(theirs)
        wait_until(lambda: log_file.exists() and "startup complete" in log_file.read_text(), "it is ready")
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
        os.close(ours)
    assert "SIGHUP: the broker stops" in log_file.read_text()


# --- systemd ----------------------------------------------------------------------------------------------


@pytest.fixture
def notices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path_factory.mktemp("n") / "s"))
        listening.settimeout(60)
        yield listening


def heard(notices: socket.socket, wanted: str) -> list[str]:
    """Read notices until one of them has that line; return its lines."""
    while True:
        lines = notices.recv(4096).decode().split("\n")
        if wanted in lines:
            return lines


def test_systemd_is_told_when_it_is_ready_alive_reloading_and_stopping(serve: Serve, notices: socket.socket) -> None:
    broker = serve("--port", "0", NOTIFY_SOCKET=notices.getsockname(), WATCHDOG_USEC="100000")
    heard(notices, "READY=1")
    broker.ready()
    heard(notices, "WATCHDOG=1")
    heard(notices, "WATCHDOG=1")
    broker.process.send_signal(signal.SIGHUP)
    assert any(line.startswith("MONOTONIC_USEC=") for line in heard(notices, "RELOADING=1"))
    heard(notices, "READY=1")
    broker.process.send_signal(signal.SIGTERM)
    heard(notices, "STOPPING=1")
    assert broker.wait_until_it_ends() == 0


def with_descriptor_3(descriptor: int) -> subprocess.Popen[str]:
    """Start a broker as systemd would: with a descriptor, and with variables that name its own process."""
    begin = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()));"
        " os.execv(sys.executable, [sys.executable, '-m', 'penstock', 'serve', *sys.argv[2:]])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", begin, str(descriptor), "--in-memory", "--json", "--port", "1"],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def test_it_serves_on_a_socket_that_systemd_has_opened() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        process = with_descriptor_3(listening.fileno())
        try:
            # Before it is there: the system keeps the connection.
            with Client("127.0.0.1", port) as early:
                early.handshake()
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["port"] == port
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


def test_a_descriptor_that_is_no_listening_socket_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        _, errors = (process := with_descriptor_3(file.fileno())).communicate(timeout=60)
    assert process.returncode == 1
    assert "LISTEN_FDS names the file descriptor 3, which is no socket" in errors
    assert "Traceback" not in errors


def test_the_units_are_what_systemd_understands(tmp_path: Path) -> None:
    for option, name in (((), "penstock.service"), (("--socket",), "penstock.socket")):
        command = [sys.executable, "-m", "penstock", "service", "--user", "root", *option]
        text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout
        (tmp_path / name).write_text(text)
        assert text.startswith(f"# /etc/systemd/system/{name}\n[Unit]\n")
    service = (tmp_path / "penstock.service").read_text()
    for line in (
        "Type=notify",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Environment=PENSTOCK_DATA_DIR=/var/lib/penstock",
    ):
        assert line in service.splitlines()
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", *map(str, tmp_path.iterdir())], capture_output=True, text=True, timeout=60
        )
        assert str(tmp_path) not in done.stderr, done.stderr


# --- logs -------------------------------------------------------------------------------------------------


def test_a_json_log_has_an_object_a_line_also_for_hostile_names(serve: Serve) -> None:
    broker = serve("--port", "0", "--log-format", "json").ready()
    name = 'a\n{"level": "error"}\u2028\r'
    with Client("127.0.0.1", broker.port) as client, pytest.raises(ConnectionEnded):
        client.handshake(user=name, password="s3cret-canary")
    broker.wait_until_logged("refused")
    broker.stop()
    lines = [json.loads(line) for line in broker.log.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert "Server startup complete" in [line["message"] for line in lines]
    assert "s3cret-canary" not in broker.log


def test_a_log_file_that_is_moved_away_is_begun_anew(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    broker = serve("--port", "0", "--log-file", str(path)).ready()
    path.rename(tmp_path / "broker.log.1")
    broker.process.send_signal(signal.SIGTERM)
    assert broker.wait_until_it_ends() == 0
    assert "Server startup complete" in (tmp_path / "broker.log.1").read_text()
    assert "Server stopped" in path.read_text()
    assert broker.log == "", "nothing goes to stderr"


def test_a_log_file_that_cannot_be_written_ends_the_start_with_advice(serve: Serve, tmp_path: Path) -> None:
    broker = serve("--port", "0", "--log-file", str(tmp_path / "no" / "folder"))
    assert broker.wait_until_it_ends() == 1
    assert "Choose another file with --log-file." in broker.log
    assert "Traceback" not in broker.log
