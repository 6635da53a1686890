"""What a client can make the server keep is bounded, and nothing is set aside for what it only announces."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from penstock import limits
from penstock.config import Config
from penstock.wire import methods
from penstock.wire.methods import Method

from .census import Census, weigh
from .client_frames import HEADER, Frame, body, content_header, encode_all, handshake, method, publish, start_ok
from .samples import METHODS
from .server_frames import Said, split
from .socketless import Client, SocketlessServer

MIB = 1024 * 1024


@pytest.fixture
def bench() -> Iterator[SocketlessServer]:
    with SocketlessServer() as server:
        yield server
        server.check_clean()


def opened(bench: SocketlessServer, client_reads: bool = True) -> Client:
    """A client with channel 1 and an exclusive queue."""
    client = bench.login(client_reads=client_reads)
    declared = [method(1, methods.ChannelOpen()), method(1, methods.QueueDeclare("q", exclusive=True))]
    client.send(encode_all(declared))
    bench.settle()
    client.take()
    return client


def wait_until(bench: SocketlessServer, condition: Callable[[], bool], what: str) -> None:
    stop_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < stop_at, what
        bench.settle()


# --- output -----------------------------------------------------------------------------------------------


def get_and_put_back(count: int) -> bytes:
    sent = []
    for tag in range(1, count + 1):
        sent += [method(1, methods.BasicGet("q")), method(1, methods.BasicReject(tag, True))]
    return encode_all(sent)


def unroutable(count: int) -> bytes:
    return encode_all(publish(1, "", "nowhere", bytes(50_000), mandatory=True)) * count


@pytest.mark.parametrize("questions", [get_and_put_back(500), unroutable(500)], ids=["basic.get", "basic.return"])
def test_answers_to_a_client_that_does_not_read_are_bounded_and_come_when_it_does(
    bench: SocketlessServer, questions: bytes
) -> None:
    client = opened(bench, client_reads=False)
    client.send(encode_all(publish(1, "", "q", bytes(50_000))))
    for at in range(0, len(questions), 256 * 1024):
        client.send(questions[at : at + 256 * 1024])
    bench.settle()
    assert len(client.transport.written) < limits.OUTPUT_BYTES_MAX + MIB
    heard = b""
    stop_at = time.monotonic() + 60
    while len(Said(heard, cut_short=True).methods) < 500:
        heard += client.transport.client_reads_on()
        bench.settle()
        assert time.monotonic() < stop_at, "the rest was never answered"
    assert len([frame for frame in split(heard)[0] if frame.kind == 3]) == 500
    client.hang_up()


# --- input ------------------------------------------------------------------------------------------------

ANNOUNCEMENTS = {
    "a frame of 128 KiB": b"\x03\x00\x01" + (131_064).to_bytes(4, "big"),
    "a frame of 4 GiB": b"\x03\x00\x01\xff\xff\xff\xff",
    "a message of 128 MiB": encode_all([*publish(1, "", "q", b"")[:1], content_header(1, 128 * MIB)]),
    "a message of 16 EiB": encode_all([*publish(1, "", "q", b"")[:1], content_header(1, 2**64 - 1)]),
    "a table of 4 GiB": Frame(1, 1, methods.QueueDeclare("t").encode()[:-4] + b"\xff\xff\xff\xff").encode(),
    "a short string that is not there": Frame(1, 1, b"\x00\x32\x00\x0a\x00\x00\xff").encode(),
}


@pytest.mark.parametrize("name", ANNOUNCEMENTS)
def test_an_announced_size_takes_no_memory(bench: SocketlessServer, name: str) -> None:
    client = opened(bench)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        client.send(ANNOUNCEMENTS[name])
        bench.settle()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 256 * 1024
    client.hang_up()


@pytest.mark.slow
def test_unfinished_messages_on_many_channels_are_bounded(bench: SocketlessServer) -> None:
    """Each is below the limit for a message; together they are more than one connection may have on its way."""
    client = bench.login()
    before = Census.of(bench.server)
    channels = range(1, 5)
    for number in channels:
        begun = [method(number, methods.ChannelOpen()), *publish(number, "", "q", b"")[:1]]
        client.send(encode_all([*begun, content_header(number, limits.MESSAGE_BYTES_MAX)]))
    for number in channels:
        part = body(number, bytes(131_064)).encode()
        for _ in range(limits.MESSAGE_BYTES_MAX // 131_064):
            client.send(part)
    bench.settle()
    assert [str(close) for close in client.said().closes()] == ["connection 506"]
    client.hang_up()
    assert Census.of(bench.server).connections == before.connections - 1


@pytest.mark.slow
def test_publishes_that_are_never_committed_are_bounded(bench: SocketlessServer) -> None:
    client = opened(bench)
    client.send(method(1, methods.TxSelect()).encode())
    message = encode_all(publish(1, "", "q", bytes(130_000)))
    for _ in range(limits.PARTIAL_CONTENT_BYTES_MAX // 130_000 + 1):
        client.send(message)
    bench.settle()
    assert [str(close) for close in client.said().closes()] == ["connection 506"]
    assert weigh(bench.server).text_bytes < MIB
    client.hang_up()


def test_remembered_routes_are_bounded(bench: SocketlessServer) -> None:
    client = opened(bench)
    weights = []
    for start in range(0, 8 * limits.PUBLISH_ROUTES_MAX, limits.PUBLISH_ROUTES_MAX):
        for number in range(start, start + limits.PUBLISH_ROUTES_MAX):
            client.send(encode_all(publish(1, "", f"key {number}", b"x")))
        bench.settle()
        weights.append(weigh(bench.server).objects)
    assert max(weights[4:]) <= max(weights[:4]) * 1.1
    client.hang_up()


# --- connections and channels -------------------------------------------------------------------------------


def test_a_flood_of_channels_ends_at_the_negotiated_number(bench: SocketlessServer) -> None:
    before, weight = Census.of(bench.server), weigh(bench.server)
    client = bench.login()
    client.send(encode_all([method(number, methods.ChannelOpen()) for number in range(1, 3000)]))
    bench.settle()
    said = client.said()
    assert len([1 for _, each in said.methods if isinstance(each, methods.ChannelOpenOk)]) == limits.CHANNELS_MAX
    assert [str(close) for close in said.closes()] == ["connection 530"]
    client.hang_up()
    assert (Census.of(bench.server), weigh(bench.server)) == (before, weight)


def test_connections_that_never_log_in_are_bounded_and_forgotten(bench: SocketlessServer) -> None:
    before, weight = Census.of(bench.server), weigh(bench.server)
    most = bench.server.budget.handshakes_per_address
    assert 1 < most < limits.PRE_AUTH_CONNECTIONS_MAX
    clients = [bench.connect() for _ in range(most + 20)]
    assert Census.of(bench.server).connections == most
    # Newcomers were refused, or the oldest have made room for them.
    assert [client.is_open for client in clients].count(False) == 20
    next(client for client in clients if client.is_open).hang_up()
    late = bench.login()
    assert late.is_open
    for client in [*clients, late]:
        client.hang_up()
    clients.clear()
    assert (Census.of(bench.server), weigh(bench.server)) == (before, weight)


def test_a_handshake_that_drips_is_cut_off_in_time() -> None:
    with SocketlessServer(Config(handshake_s=0.1)) as bench:
        client = bench.connect()
        data = HEADER + encode_all(handshake())
        started = time.monotonic()
        at = 0
        while client.is_open and time.monotonic() < started + 60:
            if at < 60:
                client.send(data[at : at + 1])
                at += 1
            bench.settle()
        assert not client.is_open
        assert time.monotonic() - started > 0.05
        wait_until(bench, lambda: not bench.server.connections, "the connection is forgotten")
        bench.check_clean()


# --- nothing without a login ---------------------------------------------------------------------------------

BAD_RESPONSES = {
    "empty": b"",
    "only a name": b"guest",
    "name and password without NUL": b"guestguest",
    "no password": b"\x00guest",
    "an empty password": b"\x00guest\x00",
    "an empty name": b"\x00\x00guest",
    "only NULs": b"\x00\x00",
    "three NULs": b"\x00guest\x00guest\x00",
    "a password with more behind it": b"\x00guest\x00guest\n",
    "a name that is not UTF-8": b"\x00\xff\xfe\x00guest",
    "a long one": b"\x00" + b"g" * 4000 + b"\x00guest",
    "a table": b"\x05LOGINS\x00\x00\x00\x05guest",
}


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
@pytest.mark.parametrize("name", BAD_RESPONSES)
def test_a_bad_login_is_refused(bench: SocketlessServer, mechanism: str, name: str) -> None:
    client = bench.connect()
    # Whatever a client sends without waiting for the refusal must not be served either.
    client.send(HEADER + encode_all([start_ok(BAD_RESPONSES[name], mechanism), *handshake()[1:]]))
    wait_until(bench, lambda: not client.is_open or bool(client.said().closes()), "the login is refused")
    said = client.said()
    assert [type(each) for _, each in said.methods] in (
        [methods.ConnectionStart],
        [methods.ConnectionStart, methods.ConnectionClose],
    )
    assert {close.reply_code for close in said.closes()} <= {403, 501, 502, 503, 504, 505}
    client.hang_up()


# How far a client comes before it sends something out of turn; and what the server has said by then.
STAGES: dict[str, tuple[list[Frame], int]] = {
    "before the login": ([], 1),
    "before tune-ok": (handshake()[:1], 2),
    "before open": (handshake()[:2], 2),
}
EXPECTED = {
    "before the login": methods.ConnectionStartOk,
    "before tune-ok": methods.ConnectionTuneOk,
    "before open": methods.ConnectionOpen,
}


@pytest.mark.parametrize("stage", STAGES)
def test_no_method_but_the_expected_one_is_served_before_the_connection_is_open(
    bench: SocketlessServer, stage: str
) -> None:
    sent, answers = STAGES[stage]
    bare: list[Frame] = [
        Frame(1, channel, index.INDEX.to_bytes(4, "big") + arguments)
        for index in Method.__subclasses__()
        if index is not EXPECTED[stage]
        for channel in (0, 1)
        for arguments in (b"", bytes(8), bytes(24))
    ]
    whole = [method(channel, each) for each in METHODS if not isinstance(each, EXPECTED[stage]) for channel in (0, 1)]
    for frame in [*bare, *whole]:
        client = bench.connect()
        client.send(HEADER + encode_all([*sent, frame, *handshake()[1:]]))
        bench.settle()
        said = client.said()
        said.check()
        for _, found in said.methods[answers:]:
            assert isinstance(found, methods.ConnectionClose | methods.ConnectionCloseOk), (frame, found)
        client.hang_up()


# --- the log --------------------------------------------------------------------------------------------------


def test_a_client_cannot_write_its_own_lines_into_the_log(bench: SocketlessServer) -> None:
    nasty = "q\nWARNING forged\r\x1b[31m\u2028\x00"
    for sent in (
        [method(1, methods.BasicGet(nasty))],
        [method(1, methods.QueueDeclare(nasty, passive=True))],
        [method(1, methods.ExchangeDeclare("x", nasty))],
        [method(1, methods.QueueDeclare("q2", exclusive=True, arguments={"x-queue-type": ("S", nasty.encode())}))],
        [method(1, methods.QueueDeclare(nasty, exclusive=True, arguments={"x-queue-mode": ("S", b"lazy")}))],
        [method(0, methods.ConnectionUpdateSecret(b"", nasty))],
        publish(1, nasty, "", b""),
    ):
        client = opened(bench)
        client.send(encode_all(sent))
        bench.settle()
        client.hang_up()
    for opening in (
        [start_ok(b"\x00" + nasty.encode() + b"\x00")],
        [start_ok(b"", nasty)],
        [start_ok(nasty.encode())],
        [*handshake()[:2], method(0, methods.ConnectionOpen(nasty))],
        [start_ok(about={"connection_name": ("S", nasty.encode())}), *handshake()[1:]],
    ):
        client = bench.connect()
        client.send(HEADER + encode_all(opening))
        bench.settle()
        client.hang_up()
    client = bench.connect()
    client.send(b"AMQ\n\r\x1b\x00\x01")
    bench.settle()
    assert not bench.complaints.broken_lines, bench.complaints.broken_lines
