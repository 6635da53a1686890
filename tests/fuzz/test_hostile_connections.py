"""Hostile bytes against a whole connection, without sockets: only declared errors, no hang, no growth."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from . import budget
from .census import Census, clean_up, living, weigh
from .client_frames import HEADER, encode_all, handshake
from .mutations import chunks, hostile_session
from .socketless import SocketlessServer

KINDS = ("Connection", "Channel", "Queue", "Subscription", "Handshake", "FrameReader", "PublishRoute", "Envelope")


@pytest.fixture
def bench() -> Iterator[SocketlessServer]:
    with SocketlessServer() as server:
        yield server


def attack(bench: SocketlessServer, data: bytes, random: Random) -> None:
    """Send it all, hang up, and judge what the server said."""
    client = bench.connect()
    client.send_chunks(chunks(random, data), turns_between=random.random() < 0.5 and len(data) < 3000)
    bench.settle()
    client.said().check()
    client.hang_up()


def test_hostile_sessions_meet_declared_errors_and_leave_nothing_behind(bench: SocketlessServer) -> None:
    attack(bench, HEADER + encode_all(handshake()), Random(0))
    before, weight, alive = Census.of(bench.server), weigh(bench.server), living(*KINDS)
    for seed in budget.seeds(1500, budget.MACHINE_SHARE):
        random = Random(seed)
        data = hostile_session(random)
        try:
            attack(bench, data, random)
            bench.check_clean()
            clean_up(bench)
            assert Census.of(bench.server) == before
        except AssertionError as fault:
            raise AssertionError(f"seed {seed}: {fault}\n{data.hex()}") from fault
    assert weigh(bench.server) == weight
    assert living(*KINDS) == alive
    assert not bench.complaints.broken_lines, "a client has written into the log what is not one printable line"


def test_random_bytes_meet_declared_errors_and_leave_nothing_behind(bench: SocketlessServer) -> None:
    before, weight = Census.of(bench.server), weigh(bench.server)
    for seed in budget.seeds(1000, budget.MACHINE_SHARE / 4):
        random = Random(seed)
        start = random.choice([b"", b"AMQP", HEADER, HEADER + encode_all(handshake())])
        attack(bench, start + random.randbytes(random.choice([1, 7, 8, 30, 300])), random)
        bench.check_clean()
    assert Census.of(bench.server) == before
    assert weigh(bench.server) == weight
