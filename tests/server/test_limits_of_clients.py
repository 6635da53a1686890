"""Every limit that a client can go over: it is told so with the right code and text, and its neighbours are served.

Each row is a broker's settings, what a client sends that is one too many, and the answer. docs/limits.md lists them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import base, commands, frame

from penstock import limits
from tests.server.amqp_client import DEADLINE_S, Client, ConnectionEnded, publish_frames
from tests.server.conftest import Connect, StartBroker

# A step sends something; the last of a row is the one that is refused.
Step = Callable[[Client], None]


def send(*sent: base.Frame, channel: int = 1) -> Step:
    return lambda client: client.send(channel, *sent)


def call(method: base.Frame, reply: type[base.Frame]) -> Step:
    return lambda client: client.call(1, method, reply) and None  # type: ignore[func-returns-value]


def raw(data: bytes) -> Step:
    return lambda client: client.socket.sendall(data)


def declare(name: str, **attributes: Any) -> Step:
    return call(commands.Queue.Declare(0, name, **attributes), commands.Queue.DeclareOk)


def bind(key: str) -> commands.Queue.Bind:
    return commands.Queue.Bind(0, "q", "amq.topic", key)


def table_frame(table: bytes) -> bytes:
    """queue.declare with arguments that are given in octets."""
    payload = struct.pack(">HHH", 50, 10, 0) + b"\x01q\x00" + struct.pack(">I", len(table)) + table
    return struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce"


def nested(depth: int) -> bytes:
    """A table in a table in a table."""
    table = b""
    for _ in range(depth):
        table = b"\x01aF" + struct.pack(">I", len(table)) + table
    return table


CHANNEL, CONNECTION = commands.Channel.Close, commands.Connection.Close
ITEMS = b"".join(b"\x04%04dt\x01" % number for number in range(limits.TABLE_ITEMS_MAX + 1))
MANY_QUEUES = [f"q{number}" for number in range(limits.QUEUES_PER_CONSUMER_MAX + 1)]
LARGE = {"x-anything": "x" * (limits.ARGUMENTS_BYTES_MAX + 1)}
DEEP = limits.TABLE_DEPTH_MAX + 1

ROWS: dict[str, tuple[dict[str, Any], list[Step], type[base.Frame], int, str]] = {
    "queues of a vhost": (
        {"queues_per_vhost_max": 2},
        [declare("a"), declare("b"), declare("a"), send(commands.Queue.Declare(0, "c"))],
        *(CHANNEL, 406, "vhost '/' has its 2 queues already"),
    ),
    "exchanges of a vhost": (
        {"exchanges_per_vhost_max": 10},
        [send(*(commands.Exchange.Declare(0, f"e{number}", "fanout") for number in range(10)))],
        *(CHANNEL, 406, "vhost '/' has its 10 exchanges already"),
    ),
    "bindings of a vhost": (
        {"bindings_per_vhost_max": 2},
        [declare("q"), send(bind("a"), bind("a"), bind("b"), bind("c"))],
        *(CHANNEL, 406, "vhost '/' has its 2 bindings already"),
    ),
    "consumers of a channel": (
        {"consumers_per_channel_max": 2},
        [declare("q"), send(*[commands.Basic.Consume(0, "q")] * 3)],
        *(CHANNEL, 406, "this channel has its 2 consumers already"),
    ),
    "channels of a connection": (
        {"channels_max": 2},
        [send(commands.Channel.Open(), channel=2), send(commands.Channel.Open(), channel=3)],
        *(CONNECTION, 530, "number of channels opened (2) has reached the negotiated channel_max (2)"),
    ),
    "arguments of a declaration": (
        {"frame_bytes_max": 131_072},
        [send(commands.Queue.Declare(0, "q", arguments=LARGE))],
        *(CHANNEL, 406, "are too large"),
    ),
    "nesting of a table": ({}, [raw(table_frame(nested(DEEP)))], CONNECTION, 502, "nested"),
    "items of a table": ({}, [raw(table_frame(ITEMS))], CONNECTION, 502, "table with more than 4096 fields"),
    "octets of a frame": (
        {"frame_bytes_max": 4_096},
        # RabbitMQ allows the octets around the payload besides.
        [raw(struct.pack(">BHI", 1, 1, 4_097))],
        *(CONNECTION, 501, "frame"),
    ),
    "octets of a message": (
        {"message_bytes_max": 1_000},
        [declare("q"), raw(publish_frames(1, "q", b"x" * 1_001))],
        *(CHANNEL, 406, "message size 1001 is larger than configured max size 1000"),
    ),
    "words of a topic pattern": (
        {},
        [declare("q"), send(bind("." * limits.TOPIC_WORDS_MAX))],
        *(CHANNEL, 406, "words"),
    ),
    "time to live": (
        {},
        [declare("q"), raw(publish_frames(1, "q", b"x", expiration=str(limits.EXPIRATION_MS_MAX + 1)))],
        *(CHANNEL, 406, "invalid expiration"),
    ),
    "queues of a consumer": (
        {},
        [declare("q"), send(commands.Basic.Consume(0, "q", arguments={"x-multiqueue": MANY_QUEUES}))],
        *(CHANNEL, 406, "128"),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_one_too_many_is_refused_with_its_code_and_the_neighbour_is_served(
    name: str, start_broker: StartBroker, connect: Connect
) -> None:
    settings, steps, kind, code, text = ROWS[name]
    broker = start_broker(**settings)
    agreed = {
        "frame_bytes_max": settings.get("frame_bytes_max", 131_072),
        "channels_max": settings.get("channels_max", 2_047),
    }
    neighbour, client = connect(broker, **agreed), connect(broker, **agreed)
    for step in steps:
        step(client)
    close: Any = client.expect(kind)
    assert (close.reply_code, text in close.reply_text) == (code, True), close.reply_text
    neighbour.barrier(1)
    if kind is CHANNEL:
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(2)


def test_a_frame_before_the_login_is_a_small_one(start_broker: StartBroker, dial: Connect) -> None:
    client = dial(start_broker())
    client.socket.sendall(b"AMQP\x00\x00\x09\x01")
    client.expect(commands.Connection.Start)
    client.socket.sendall(struct.pack(">BHI", 1, 0, limits.PRE_AUTH_FRAME_BYTES_MAX + 1))
    assert client.expect(commands.Connection.Close).reply_code == 501


@pytest.mark.parametrize("size", [4_097, 2**32 - 1])
def test_a_client_that_agrees_to_no_limit_gets_ours(size: int, start_broker: StartBroker, connect: Connect) -> None:
    """A frame_max of 0 in tune-ok means no limit to the client; the size that a frame announces takes no memory."""
    broker = start_broker(frame_bytes_max=4_096)
    neighbour, client = connect(broker, frame_bytes_max=4_096), connect(broker, frame_bytes_max=0)
    client.socket.sendall(struct.pack(">BHI", 3, 1, size))
    assert client.expect(commands.Connection.Close).reply_code == 501
    neighbour.barrier(1)


@pytest.mark.parametrize("kind", [0, 4, 5, 7, 9, 255])
def test_a_frame_of_an_unknown_type_is_not_passed_over(kind: int, start_broker: StartBroker, connect: Connect) -> None:
    client = connect(start_broker())
    client.socket.sendall(struct.pack(">BHI", kind, 1, 0) + b"\xce")
    assert client.expect(commands.Connection.Close).reply_code == 501


def test_a_channel_number_above_the_agreed_one_makes_no_state(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(channels_max=2)
    client = connect(broker, channels_max=2)
    client.send(2, commands.Channel.Open())
    client.expect(commands.Channel.OpenOk, 2)
    client.send(65_535, commands.Channel.Open())
    assert client.expect(commands.Connection.Close).reply_code == 530


def test_more_connections_than_the_settings_allow_are_refused(
    start_broker: StartBroker, connect: Connect, dial: Connect
) -> None:
    broker = start_broker(connections_max=2)
    first = connect(broker)
    connect(broker)
    third = dial(broker)
    with pytest.raises(ConnectionEnded):
        third.handshake()
    (close,) = third.seen(commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (
        530,
        "NOT_ALLOWED - connection refused: node connection limit (2) is reached",
    )
    first.drop()
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        again = dial(broker)
        try:
            again.handshake()
        except ConnectionEnded:
            continue
        break
    again.open_channel(1)


FLOODS: dict[str, list[tuple[base.Frame, type[base.Frame]]]] = {
    "channels": [
        (commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk),
        (commands.Channel.Open(), commands.Channel.OpenOk),
    ],
    "queues": [
        (commands.Queue.Declare(0, "f"), commands.Queue.DeclareOk),
        (commands.Queue.Delete(0, "f"), commands.Queue.DeleteOk),
    ],
    "exchanges": [
        (commands.Exchange.Declare(0, "f"), commands.Exchange.DeclareOk),
        (commands.Exchange.Delete(0, "f"), commands.Exchange.DeleteOk),
    ],
    "bindings": [
        (commands.Queue.Bind(0, "q", "amq.direct", "f"), commands.Queue.BindOk),
        (commands.Queue.Unbind(0, "q", "amq.direct", "f"), commands.Queue.UnbindOk),
    ],
    "consumers": [
        (commands.Basic.Consume(0, "q", "f"), commands.Basic.ConsumeOk),
        (commands.Basic.Cancel("f"), commands.Basic.CancelOk),
    ],
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_slowed_and_answered_while_the_neighbour_is_served(
    name: str, start_broker: StartBroker, connect: Connect
) -> None:
    """Two hundred above a burst of ten, at two hundred a second: about a second."""
    broker = start_broker(churn_burst=10, churn_per_s_max=200, queues_per_vhost_max=100)
    client, neighbour = connect(broker), connect(broker)
    neighbour.declare(1, "q")
    began = time.monotonic()
    client.socket.sendall(b"".join(frame.marshal(method, 1) for method, _ in FLOODS[name]) * 100)
    neighbour.barrier(1)
    served_s = time.monotonic() - began
    for _ in range(100):
        for _, reply in FLOODS[name]:
            client.expect(reply)
    took_s = time.monotonic() - began
    assert took_s > 0.7, "it was slowed"
    assert served_s < took_s / 2, "the neighbour did not wait for it"
    client.barrier(1)


def test_a_burst_and_a_slow_pace_are_not_slowed(start_broker: StartBroker, connect: Connect) -> None:
    client = connect(start_broker())
    began = time.monotonic()
    for number in range(300):
        client.declare(1, f"q{number}")
    assert time.monotonic() - began < DEADLINE_S / 4
