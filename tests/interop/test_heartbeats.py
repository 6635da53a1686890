"""Heartbeats: pika that keeps them, a raw peer that stays silent, and a raw peer that only listens late."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pamqp.commands as amqp
import pytest
from pamqp import frame, header, heartbeat

from tests.interop.fixture_types import Connect

HEARTBEAT_FRAME = heartbeat.Heartbeat().marshal()


class RawPeer:
    """A socket that knows just enough AMQP to log in and to read whole frames."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=60)
        self.buffer = b""

    def send(self, method: object) -> None:
        self.socket.sendall(frame.marshal(method, 0))

    def read(self) -> object:
        """The next frame, or None when the broker has closed the socket."""
        while True:
            try:
                used, _, value = frame.unmarshal(self.buffer)
            except Exception:
                used, value = 0, None
            if used:
                self.buffer = self.buffer[used:]
                return value
            try:
                chunk = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            self.buffer += chunk

    def log_in(self, heartbeat_s: int) -> None:
        self.socket.sendall(header.ProtocolHeader(0, 9, 1).marshal())
        assert isinstance(self.read(), amqp.Connection.Start)
        self.send(amqp.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
        assert isinstance(self.read(), amqp.Connection.Tune)
        self.send(amqp.Connection.TuneOk(2047, 131072, heartbeat_s))
        self.send(amqp.Connection.Open("/"))
        assert isinstance(self.read(), amqp.Connection.OpenOk)


@pytest.fixture
def raw(broker_url: str) -> Iterator[RawPeer]:
    peer = RawPeer(broker_url)
    yield peer
    peer.socket.close()


def test_a_client_that_stays_silent_gets_heartbeats_and_is_then_cut_off(raw: RawPeer) -> None:
    raw.log_in(heartbeat_s=1)
    started = time.monotonic()
    frames: list[object] = []
    while (value := raw.read()) is not None:
        frames.append(value)
    assert time.monotonic() - started >= 1.0
    assert any(isinstance(value, heartbeat.Heartbeat) for value in frames)


def test_heartbeats_alone_keep_a_connection_open(raw: RawPeer) -> None:
    raw.log_in(heartbeat_s=1)
    started = time.monotonic()
    received = 0
    while time.monotonic() - started < 3:
        assert isinstance(raw.read(), heartbeat.Heartbeat)
        received += 1
        raw.socket.sendall(HEARTBEAT_FRAME)
    assert received >= 2
    raw.send(amqp.Connection.Close(200, "bye", 0, 0))
    answer = raw.read()
    while isinstance(answer, heartbeat.Heartbeat):
        answer = raw.read()
    assert isinstance(answer, amqp.Connection.CloseOk)


def test_pika_with_a_short_heartbeat_stays_connected_while_it_serves_its_loop(connect: Connect) -> None:
    connection = connect(heartbeat=1)
    channel = connection.channel()
    connection.process_data_events(time_limit=3.5)
    assert channel.queue_declare("", exclusive=True).method.queue


def test_a_heartbeat_of_zero_switches_them_off(raw: RawPeer) -> None:
    raw.log_in(heartbeat_s=0)
    raw.socket.settimeout(2.5)
    with pytest.raises(TimeoutError):
        raw.read()
