"""Heartbeats: pika that keeps them, a raw peer that stays silent, and a raw peer that only listens late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.interop.fixture_types import Connect
from tests.server.amqp_client import Client


@pytest.fixture
def raw(broker_url: str) -> Iterator[Client]:
    parts = urlsplit(broker_url)
    assert parts.hostname is not None
    assert parts.port is not None
    with Client(parts.hostname, parts.port) as client:
        yield client


def test_a_client_that_stays_silent_gets_heartbeats_and_is_then_cut_off(raw: Client) -> None:
    raw.handshake(heartbeat_s=1)
    started = time.monotonic()
    raw.expect_end()
    assert time.monotonic() - started >= 1.0
    raw.expect_heartbeat()


def test_heartbeats_alone_keep_a_connection_open(raw: Client) -> None:
    raw.handshake(heartbeat_s=1)
    started = time.monotonic()
    received = 0
    while time.monotonic() - started < 3:
        raw.expect_heartbeat()
        received += 1
        raw.send_heartbeat()
    assert received >= 2
    raw.close()


def test_pika_with_a_short_heartbeat_stays_connected_while_it_serves_its_loop(connect: Connect) -> None:
    connection = connect(heartbeat=1)
    channel = connection.channel()
    connection.process_data_events(time_limit=3.5)
    assert channel.queue_declare("", exclusive=True).method.queue


def test_a_heartbeat_of_zero_switches_them_off(raw: Client) -> None:
    raw.handshake(heartbeat_s=0)
    raw.socket.settimeout(2.5)
    with pytest.raises(TimeoutError):
        raw.socket.recv(1)
