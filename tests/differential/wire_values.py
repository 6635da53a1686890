"""AMQP values as bytes and as text, independent of penstock's own codec.

Encoding takes Python values, `Typed` where the wire type matters, and `Raw` where the bytes themselves are the
point. Decoding gives text: a transcript shows the wire type of every field of a table (`I:5` is not `l:5`).
"""

from __future__ import annotations

import inspect
import re
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

from pamqp import commands
from pamqp.base import Frame

# One letter before each value of a table: how RabbitMQ reads and writes it.
NUMBERS = {
    "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "T": ">Q", "f": ">f", "d": ">d",
}  # fmt: skip
PROPERTIES = commands.Basic.Properties


@dataclass(frozen=True)
class Typed:
    """A field value with its wire type spelled out."""

    kind: str
    value: Any


@dataclass(frozen=True)
class Raw:
    """Bytes put on the wire as they are."""

    data: bytes


def shortstr(value: str | bytes | Raw) -> bytes:
    if isinstance(value, Raw):
        return value.data
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">B", len(data)) + data


def longstr(value: str | bytes | Raw) -> bytes:
    if isinstance(value, Raw):
        return value.data
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


def table(fields: dict[str, Any] | Raw | None) -> bytes:
    if isinstance(fields, Raw):
        return fields.data
    return longstr(b"".join(shortstr(key) + field(value) for key, value in (fields or {}).items()))


def field(value: Any) -> bytes:
    """One value of a table or array, its type letter first."""
    if isinstance(value, Raw):
        return value.data
    if not isinstance(value, Typed):
        value = Typed(_natural_kind(value), value)
    kind, content = value.kind, value.value
    letter = kind.encode()
    if kind in NUMBERS:
        return letter + struct.pack(NUMBERS[kind], content)
    if kind == "t":
        return letter + (b"\x01" if content else b"\x00")
    if kind in "Sx":
        return letter + longstr(content)
    if kind == "F":
        return letter + table(content)
    if kind == "A":
        return letter + longstr(b"".join(field(item) for item in content))
    if kind == "D":
        return letter + struct.pack(">Bi", *content)
    assert kind == "V", kind
    return letter


def _natural_kind(value: Any) -> str:
    if value is None:
        return "V"
    if isinstance(value, bool):
        return "t"
    if isinstance(value, int):
        return "I" if -(2**31) <= value < 2**31 else "l"
    return {str: "S", bytes: "x", float: "d", dict: "F", list: "A"}[type(value)]


class Reader:
    """Takes values off a payload, front to back."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        piece = self.data[self.at : self.at + count]
        if len(piece) != count:
            raise ValueError(f"{count} bytes expected at {self.at} of {self.data!r}")
        self.at += count
        return piece

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def shortstr(self) -> str:
        return self.take(self.number(">B")).decode(errors="backslashreplace")

    def longstr(self) -> str:
        return self.take(self.number(">I")).decode(errors="backslashreplace")

    def table(self) -> str:
        inner = Reader(self.take(self.number(">I")))
        fields = []
        while inner.at < len(inner.data):
            fields.append(f"{inner.shortstr()!r}: {inner.field()}")
        return "{" + ", ".join(fields) + "}"

    def field(self) -> str:
        kind = self.take(1).decode("latin-1")
        if kind in NUMBERS:
            return f"{kind}:{self.number(NUMBERS[kind])}"
        if kind == "t":
            return f"t:{self.number('>B')}"
        if kind in "Sx":
            return f"{kind}:{self.longstr()!r}"
        if kind == "F":
            return self.table()
        if kind == "A":
            inner = Reader(self.take(self.number(">I")))
            items = []
            while inner.at < len(inner.data):
                items.append(inner.field())
            return "[" + ", ".join(items) + "]"
        if kind == "D":
            return f"D:{self.number('>B')}/{self.number('>i')}"
        if kind == "V":
            return "V"
        raise ValueError(f"unknown field type {kind!r}")


# --- methods: the layouts are pamqp's, without its checks, because wrong values must be sent too -------------


def _spec_name(name: str) -> str:
    """`Queue.DeclareOk` -> `queue.declare-ok`."""
    owner, method = name.split(".")
    return f"{owner.lower()}.{re.sub('(?<!^)(?=[A-Z])', '-', method).lower()}"


METHODS: dict[str, type[Frame]] = {_spec_name(kind.name): kind for kind in commands.INDEX_MAPPING.values()}
NAMES: dict[int, str] = {kind.index: name for name, kind in METHODS.items()}


def replies_of(name: str) -> tuple[str, ...]:
    return tuple(_spec_name(reply) for reply in METHODS[name].valid_responses)


@cache
def _defaults(name: str) -> dict[str, Any]:
    parameters = inspect.signature(METHODS[name].__init__).parameters
    # pamqp puts the text "0" into the reserved argument of channel.open; clients send an empty one.
    return {key: "" if key == "out_of_band" else parameter.default for key, parameter in parameters.items()}


def method(name: str, **arguments: Any) -> bytes:
    """The payload of a method frame. An argument given as `Raw` goes out as its bytes."""
    kind = METHODS[name]
    values = {key: arguments.pop(key, _defaults(name).get(key)) for key in kind.attributes()}
    assert not arguments, f"{name} has no {sorted(arguments)}"
    output = [struct.pack(">I", kind.index)]
    bits: list[bool] = []
    for key, value in values.items():
        if kind.amqp_type(key) == "bit":
            bits.append(bool(value))
            continue
        output.append(_bits(bits) + _argument(kind.amqp_type(key), value))
        bits = []
    return b"".join(output) + _bits(bits)


def _bits(bits: list[bool]) -> bytes:
    return bytes([sum(1 << place for place, bit in enumerate(bits) if bit)]) if bits else b""


def _argument(kind: str, value: Any) -> bytes:
    if isinstance(value, Raw):
        return value.data
    if kind in ("octet", "short", "long", "longlong", "timestamp"):
        layout = {"octet": ">B", "short": ">H", "long": ">I"}.get(kind, ">Q")
        return struct.pack(layout, value or 0)
    if kind == "table":
        return table(value)
    return (shortstr if kind == "shortstr" else longstr)(value or "")


def read_method(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a method frame; tables come as text."""
    reader = Reader(payload)
    index = reader.number(">I")
    if index not in NAMES:
        return f"unknown.{index >> 16}-{index & 0xFFFF}", {"rest": payload[4:].hex()}
    kind = METHODS[NAMES[index]]
    arguments: dict[str, Any] = {}
    place, octet = 8, 0
    for key in kind.attributes():
        if kind.amqp_type(key) == "bit":
            if place == 8:
                place, octet = 0, reader.number(">B")
            arguments[key] = bool(octet >> place & 1)
            place += 1
            continue
        place = 8
        arguments[key] = _read(reader, kind.amqp_type(key))
    if reader.at != len(payload):
        arguments["rest"] = payload[reader.at :].hex()
    return NAMES[index], arguments


def _read(reader: Reader, kind: str) -> Any:
    if kind in ("shortstr", "longstr", "table"):
        return getattr(reader, kind)()
    return reader.number({"octet": ">B", "short": ">H", "long": ">I"}.get(kind, ">Q"))


def content_header(body_size: int, properties: dict[str, Any] | Raw, class_id: int = 60, weight: int = 0) -> bytes:
    """The payload of a content header frame."""
    head = struct.pack(">HHQ", class_id, weight, body_size)
    if isinstance(properties, Raw):
        return head + properties.data
    flags = 0
    output = []
    for name, flag in PROPERTIES.flags.items():
        if name in properties:
            flags |= flag
            output.append(_argument(PROPERTIES.amqp_type(name), properties[name]))
    assert set(properties) <= set(PROPERTIES.flags), properties
    return head + struct.pack(">H", flags) + b"".join(output)


def read_content_header(payload: bytes) -> tuple[int, str]:
    """Body size and the properties as text."""
    reader = Reader(payload)
    class_id, weight, body_size = reader.number(">H"), reader.number(">H"), reader.number(">Q")
    flags = reader.number(">H")
    parts = [] if (class_id, weight) == (60, 0) else [f"class {class_id} weight {weight}"]
    for name, flag in PROPERTIES.flags.items():
        if flags & flag:
            value = _read(reader, PROPERTIES.amqp_type(name))
            parts.append(f"{name}={value if name == 'headers' else repr(value)}")
    if reader.at != len(payload):
        parts.append(f"rest={payload[reader.at :].hex()}")
    return body_size, " ".join(parts)
