"""What is fed with arbitrary bytes: one function per decoder. Each swallows declared errors and checks what it decoded.

Shared by the hypothesis tests and by `with_atheris`. A target fails by raising anything that is not declared.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock import limits
from penstock.broker.access.scram_verifier import scram_verifier
from penstock.config import SETTINGS, Config
from penstock.errors import AmqpError, ConnectionException, StartupError
from penstock.fields import Field, Table
from penstock.message import Entry
from penstock.server.connection import auth
from penstock.server.connection.scram import ScramExchange
from penstock.settings.rabbitmq_conf import read_lines
from penstock.settings.rabbitmq_keys import read_keys
from penstock.settings.toml_file import read_toml
from penstock.settings.values import from_text, to_text
from penstock.wire import frames
from penstock.wire.content import read_content, scan_run
from penstock.wire.methods import Method, decode_method
from penstock.wire.mixed_run import MixedRoute, scan_mixed
from penstock.wire.properties import Properties, decode_properties, encode_properties
from penstock.wire.property_shapes import PropertyShapes
from penstock.wire.tables import decode_table, encode_table, table_to_python

from .client_frames import publish
from .server_frames import split

MIXED_PUBLISH = publish(1, "x", "key", b"")[0].encode()
WIRE_CODES = (501, 502, 503)
SCRAM_VERIFIER = scram_verifier(b"secret", b"salt", 4096)


def decoded(call: Callable[[], Method | Properties | tuple[Table, int]]) -> object | None:
    """What the call returns; None when it refuses the bytes as it should."""
    try:
        return call()
    except ConnectionException as error:
        if error.reply_code not in WIRE_CODES:
            raise
        return None


def check_table(table: Table) -> None:
    """It keeps the limits, and what is written from it is read back as the same."""
    depth, items = measure(table)
    assert depth <= limits.TABLE_DEPTH_MAX
    assert items <= limits.TABLE_ITEMS_MAX
    table_to_python(table)
    raw = encode_table(table)
    assert decode_table(raw, 0, len(raw)) == (table, len(raw))


def measure(table: Table) -> tuple[int, int]:
    """How deep a table is, and how many fields it has with all that is in it."""
    depth, items = 0, 0
    level: list[Field] = [("F", table)]
    while level:
        depth += 1
        inner: list[Field] = []
        for _, value in level:
            held = list(value.values()) if isinstance(value, dict) else value
            assert isinstance(held, list)
            items += len(held)
            inner += [field for field in held if field[0] in "FA"]
        level = inner
    return depth, items


def fuzz_method(data: bytes) -> None:
    method = decoded(lambda: decode_method(data, 0, len(data)))
    if isinstance(method, Method):
        raw = method.encode()
        assert decode_method(raw, 0, len(raw)) == method
        # Only the position matters, not what stands around it.
        assert decode_method(b"\xff" + data + b"\xff", 1, len(data) + 1) == method


def fuzz_table(data: bytes) -> None:
    found = decoded(lambda: decode_table(data, 0, len(data)))
    if isinstance(found, tuple):
        table, end = found
        assert 4 <= end <= len(data)
        check_table(table)


def fuzz_properties(data: bytes) -> None:
    properties = decoded(lambda: decode_properties(data))
    if isinstance(properties, Properties):
        assert decode_properties(encode_properties(properties)) == properties
        if properties.headers is not None:
            check_table(properties.headers)


def fuzz_content(data: bytes) -> None:
    try:
        content = read_content("exchange", "key", data)
    except AmqpError as error:
        if error.reply_code not in (*WIRE_CODES, 406):
            raise
        return
    # What is delivered must be readable for the receiver, and must not tell it the BCC.
    headers = decode_properties(content.envelope.properties).headers
    assert not content.bcc or "BCC" not in (headers or {})
    assert content.envelope.expiration_ms >= -1


def fuzz_sasl_plain(data: bytes) -> None:
    check_sasl("PLAIN", data)


def fuzz_sasl_amqplain(data: bytes) -> None:
    check_sasl("AMQPLAIN", data)


def check_sasl(mechanism: str, data: bytes) -> None:
    try:
        user, password = auth.read_response(mechanism, data)
    except auth.BadResponse:
        return
    assert isinstance(user, str)
    assert isinstance(password, bytes)
    # Nothing is made up: both stand in the response.
    assert user.encode() in data
    assert password in data


def fuzz_scan_run(data: bytes) -> None:
    """The first bytes say how long the prefix and the bodies are; the rest is scanned."""
    if len(data) < 3:
        return
    prefix_size, body_size, data = data[0] % 32 + 1, data[1] % 16 + 1, data[2:]
    prefix = data[:prefix_size]
    bodies: list[bytes] = []
    end = scan_run(data, 0, prefix, body_size, bodies)
    assert end <= len(data)
    assert b"".join([prefix + body for body in bodies]) == data[:end]
    for body in bodies:
        assert len(body) == body_size + 1
        assert body[-1] == 0xCE


def fuzz_scan_mixed(data: bytes) -> None:
    """Whatever is taken is what whole frames say, and has properties that the careful decoder accepts."""
    route = MixedRoute(MIXED_PUBLISH, "x", "key", b"\x01x\x03key", 8184, 2000, PropertyShapes())
    entries: list[Entry] = []
    end = scan_mixed(route, data, 0, entries)
    taken, rest = split(data[:end])
    assert rest == b""
    assert [frame.kind for frame in taken] == [frames.METHOD, frames.HEADER, frames.BODY] * len(entries)
    for at, (envelope, body, _) in enumerate(entries):
        header, content = taken[3 * at + 1].payload, taken[3 * at + 2].payload
        assert taken[3 * at].encode() == MIXED_PUBLISH
        assert header == b"\x00\x3c\x00\x00" + len(content).to_bytes(8, "big") + envelope.properties
        assert {taken[3 * at + 1].channel, taken[3 * at + 2].channel} == {1}
        assert body == content + b"\xce"
        assert 0 < len(content) <= 2000
        found = decode_properties(envelope.properties)
        assert (found.headers, found.reply_to, found.expiration, found.user_id) == (None, None, None, None)
        careful = read_content("x", "key", envelope.properties).envelope
        for name in ("properties", "persistent", "priority", "expiration_ms", "exchange", "routing_key"):
            assert getattr(envelope, name) == getattr(careful, name), name


def fuzz_settings_toml(data: bytes) -> None:
    """penstock.toml, and whether what it says can be a configuration."""
    one_line(lambda: Config(**read_toml(text_of(data), "penstock.toml")))


def fuzz_settings_rabbitmq_conf(data: bytes) -> None:
    one_line(lambda: Config(**read_keys(read_lines(text_of(data), "rabbitmq.conf", {"SET": "x"}), [])))


def fuzz_settings_value(data: bytes) -> None:
    """A variable or a flag: the first octet says which setting."""
    rows = list(SETTINGS.values())
    row = rows[data[0] % len(rows)] if data else rows[0]
    one_line(lambda: Config(**{row.name: from_text(row, text_of(data[1:]), row.variable)}))


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def one_line(call: Callable[[], Config]) -> None:
    """A good configuration, or one line that says what is wrong."""
    complaint = ""
    try:
        config = call()
    except StartupError as error:
        complaint = str(error)
    else:
        for row in SETTINGS.values():
            to_text(row, getattr(config, row.name))
    assert "\n" not in complaint


def fuzz_sasl_scram(data: bytes) -> None:
    """The first message, and behind a NUL the last one. No bytes prove to know a password."""
    first, _, last = data.partition(b"\x00")
    try:
        exchange = ScramExchange(first)
        exchange.challenge(SCRAM_VERIFIER if len(data) % 2 else None)
        assert exchange.finish(last) is None
    except auth.BadResponse:
        return


TARGETS: dict[str, Callable[[bytes], None]] = {
    "method": fuzz_method,
    "table": fuzz_table,
    "properties": fuzz_properties,
    "content": fuzz_content,
    "sasl_plain": fuzz_sasl_plain,
    "sasl_amqplain": fuzz_sasl_amqplain,
    "sasl_scram": fuzz_sasl_scram,
    "scan_run": fuzz_scan_run,
    "scan_mixed": fuzz_scan_mixed,
    "settings_toml": fuzz_settings_toml,
    "settings_rabbitmq_conf": fuzz_settings_rabbitmq_conf,
    "settings_value": fuzz_settings_value,
}
