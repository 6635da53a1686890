"""Hostile bytes against a whole connection, without sockets: only declared errors, no hang, no growth."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from penstock.wire import methods

from . import budget
from .census import Census, clean_up, living, weigh
from .client_frames import HEADER, Frame, encode_all, handshake, method, publish
from .mutations import chunks, hostile_session
from .socketless import SocketlessServer

KINDS = (
    "Connection",
    "Channel",
    "Queue",
    "Subscription",
    "QueueConsumer",
    "Handshake",
    "FrameReader",
    "PublishRoute",
    "Envelope",
)


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


def test_what_hostile_clients_took_and_never_acknowledged_comes_back_in_order(bench: SocketlessServer) -> None:
    bodies = [b"message %d" % number for number in range(40)]
    honest = bench.login()
    declared = [method(1, methods.ChannelOpen()), method(1, methods.QueueDeclare("shared"))]
    honest.send(encode_all(declared) + b"".join([encode_all(publish(1, "", "shared", body)) for body in bodies]))
    bench.settle()
    for seed in budget.seeds(100, budget.MACHINE_SHARE / 10):
        random = Random(f"shared {seed}")
        hostile = bench.login()
        taking = [
            method(9, methods.ChannelOpen()),
            method(9, methods.BasicQos(0, random.choice([0, 1, 7]), random.random() < 0.5)),
            *[method(9, methods.BasicGet("shared"))] * random.randint(0, 5),
            method(9, methods.BasicConsume("shared", "taker")),
            method(9, random.choice([methods.TxSelect(), methods.ConfirmSelect()])),
        ]
        hostile.send(encode_all(taking))
        bench.settle()
        assert len(bench.server.broker.vhosts["/"].queues["shared"]) < len(bodies)
        ending = [
            [method(9, methods.BasicAck(99_999))],
            [method(9, methods.BasicReject(1, True)), method(9, methods.ChannelClose(200, "", 0, 0))],
            [method(9, methods.BasicNack(3, True, True)), method(9, methods.TxRollback())],
            [method(9, methods.BasicRecoverAsync(True)), method(9, methods.BasicRecover(False))],
            [method(9, methods.BasicCancel("taker")), Frame(9, 9, b"")],
        ]
        hostile.send(encode_all(random.choice(ending)))
        bench.settle()
        hostile.hang_up()
    honest.take()
    honest.send(encode_all([method(1, methods.BasicGet("shared", True))] * len(bodies)))
    bench.settle()
    assert [frame.payload for frame in honest.said().frames if frame.kind == 3] == bodies
    bench.check_clean()
