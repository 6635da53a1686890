"""What goes wrong with a session on its way to the server: frames are lost, doubled, swapped, cut, and made to lie."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.wire import frames, methods
from penstock.wire.methods import Method

from .client_frames import HEADER, Frame, body, content_header, encode_all, handshake, method
from .sessions import SessionWriter

FRAME_TYPES = (0, 1, 2, 3, 4, 8, 65, 255)
CHANNELS = (0, 1, 2, 3, 2047, 2048, 65535)
SIZES = (0, 1, 3, 4, 12, 8192, 131_064, 131_065, 2**31, 2**32 - 1)
ALL_METHODS = sorted([kind.INDEX for kind in Method.__subclasses__()])


def any_position(random: Random, items: list[Frame]) -> int:
    return random.randrange(len(items))


def swap(random: Random, sent: list[Frame]) -> None:
    first, second = any_position(random, sent), any_position(random, sent)
    sent[first], sent[second] = sent[second], sent[first]


def duplicate(random: Random, sent: list[Frame]) -> None:
    at = any_position(random, sent)
    sent[at:at] = [sent[at]] * random.choice([1, 1, 1, 40])


def drop(random: Random, sent: list[Frame]) -> None:
    del sent[any_position(random, sent)]


def cut_payload(random: Random, sent: list[Frame]) -> None:
    at = any_position(random, sent)
    payload = sent[at].payload
    sent[at] = sent[at]._replace(payload=payload[: random.randint(0, len(payload))])


def lengthen_payload(random: Random, sent: list[Frame]) -> None:
    at = any_position(random, sent)
    sent[at] = sent[at]._replace(payload=sent[at].payload + random.randbytes(random.choice([1, 2, 30])))


def flip_payload(random: Random, sent: list[Frame]) -> None:
    at = any_position(random, sent)
    payload = bytearray(sent[at].payload)
    for _ in range(random.randint(1, 3)):
        if payload:
            payload[random.randrange(len(payload))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
    sent[at] = sent[at]._replace(payload=bytes(payload))


def other_channel(random: Random, sent: list[Frame]) -> None:
    at = any_position(random, sent)
    sent[at] = sent[at]._replace(channel=random.choice(CHANNELS))


def other_type(random: Random, sent: list[Frame]) -> None:
    at = any_position(random, sent)
    sent[at] = sent[at]._replace(kind=random.choice(FRAME_TYPES))


def other_body_size(random: Random, sent: list[Frame]) -> None:
    """A content header that does not tell the truth."""
    size = random.choice([0, 1, 2**20, 2**40, 2**64 - 1])
    sent.insert(any_position(random, sent), content_header(1, size))


def stray_body(random: Random, sent: list[Frame]) -> None:
    sent.insert(any_position(random, sent), body(random.choice(CHANNELS), random.randbytes(20)))


def foreign_method(random: Random, sent: list[Frame]) -> None:
    """A method of any class, with what may or may not be its arguments."""
    index = random.choice([*ALL_METHODS, 0, 0x003C0000, random.randrange(2**32)])
    arguments = random.choice([b"", bytes(8), bytes(30), random.randbytes(12)])
    frame = Frame(frames.METHOD, random.choice(CHANNELS), index.to_bytes(4, "big") + arguments)
    sent.insert(any_position(random, sent), frame)


def deep_table(random: Random, sent: list[Frame]) -> None:
    code = random.choice([b"F", b"A"])
    table = b""
    for _ in range(random.choice([5, 31, 32, 33, 600])):
        name = b"" if code == b"A" else b"\x01k"
        table = name + code + len(table).to_bytes(4, "big") + table
    arguments = (b"" if code == b"F" else b"\x01a") + table
    raw = methods.QueueDeclare("q1", exclusive=True).encode()[:-4] + len(arguments).to_bytes(4, "big") + arguments
    sent.insert(any_position(random, sent), Frame(frames.METHOD, 1, raw))


def early_goodbye(random: Random, sent: list[Frame]) -> None:
    closing = random.choice(
        [
            method(0, methods.ConnectionCloseOk()),
            method(0, methods.ConnectionClose(200, "", 0, 0)),
            method(1, methods.ChannelClose(200, "", 0, 0)),
            method(1, methods.ChannelCloseOk()),
        ]
    )
    sent.insert(any_position(random, sent), closing)


def heartbeat_with_a_payload(random: Random, sent: list[Frame]) -> None:
    sent.insert(any_position(random, sent), Frame(frames.HEARTBEAT, random.choice([0, 1]), random.randbytes(3)))


FRAME_MUTATIONS: list[Callable[[Random, list[Frame]], None]] = [
    swap,
    duplicate,
    drop,
    cut_payload,
    lengthen_payload,
    flip_payload,
    flip_payload,
    flip_payload,
    other_channel,
    other_type,
    other_body_size,
    stray_body,
    foreign_method,
    deep_table,
    early_goodbye,
    heartbeat_with_a_payload,
]


def lie_about_a_size(random: Random, sent: list[Frame], data: bytearray) -> None:
    """In the head of a frame; all that follows is read from the wrong place, or never comes."""
    at = any_position(random, sent)
    start = len(encode_all(sent[:at])) + 3
    size = random.choice([*SIZES, max(len(sent[at].payload) - 1, 0), len(sent[at].payload) + 1])
    data[start : start + 4] = size.to_bytes(4, "big")


def break_an_end(random: Random, sent: list[Frame], data: bytearray) -> None:
    at = any_position(random, sent)
    data[len(encode_all(sent[: at + 1])) - 1] = random.choice([0, 0xCD, 0xFF])


def flip_bytes(random: Random, sent: list[Frame], data: bytearray) -> None:
    for _ in range(random.randint(1, 4)):
        data[random.randrange(len(data))] = random.randrange(256)


def cut_off(random: Random, sent: list[Frame], data: bytearray) -> None:
    del data[random.randrange(len(data)) :]


def insert_garbage(random: Random, sent: list[Frame], data: bytearray) -> None:
    at = random.randrange(len(data))
    data[at:at] = random.randbytes(random.choice([1, 7, 8, 100]))


BYTE_MUTATIONS: list[Callable[[Random, list[Frame], bytearray], None]] = [
    lie_about_a_size,
    break_an_end,
    flip_bytes,
    cut_off,
    insert_garbage,
]


def hostile_session(random: Random) -> bytes:
    """Everything that a hostile client sends, from its first byte."""
    head = HEADER
    opening = handshake(random.choice([0, 0, 8192]))
    sent = SessionWriter(random).write(random.randint(1, 25))
    kind = random.random()
    if kind < 0.05:
        head = random.choice([b"AMQP\x01\x01\x00\x09", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"AMQP"])
    if kind < 0.2:
        # The handshake itself is attacked.
        sent = opening + sent[:3]
        opening = []
    for _ in range(random.choice([0, 1, 1, 1, 2, 3, 6])):
        random.choice(FRAME_MUTATIONS)(random, sent)
        if not sent:
            sent = [method(1, methods.ChannelOpen())]
    data = bytearray(encode_all(sent))
    if random.random() < 0.3:
        random.choice(BYTE_MUTATIONS)(random, sent, data)
    return head + encode_all(opening) + bytes(data)


def chunks(random: Random, data: bytes) -> list[bytes]:
    """The bytes as they may arrive: whole, one by one, or in pieces of any size."""
    kind = random.random()
    if kind < 0.25:
        return [data]
    if kind < 0.35 and len(data) < 5000:
        return [data[at : at + 1] for at in range(len(data))]
    largest = random.choice([3, 20, 100, 1000, 10_000])
    found = []
    at = 0
    while at < len(data):
        size = random.randint(1, largest)
        found.append(data[at : at + size])
        at += size
    return found
