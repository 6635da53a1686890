"""Random values for the wire tests, and the comparison of our methods with pamqp's."""

from __future__ import annotations

import string
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st
from pamqp import base, commands

from penstock.errors import ConnectionException
from penstock.fields import Field, Table
from penstock.wire import methods
from penstock.wire.methods import Method

# Every class of ours, by its index.
OUR_METHODS: dict[int, type[Method]] = {cls.INDEX: cls for cls in Method.__subclasses__()}
PAMQP_METHODS: dict[int, type[base.Frame]] = dict(commands.INDEX_MAPPING)
# pamqp's name for an argument where it is not ours. What it has and we have not is reserved.
OUR_NAMES = {"nowait": "no_wait", "exchange_type": "type", "message_type": "type"}

assert methods.BasicPublish.INDEX in OUR_METHODS


def encodable(text: str) -> bool:
    return len(text.encode()) <= 255


short_text = st.text(max_size=80, alphabet=st.characters(codec="utf-8")).filter(encodable)
# pamqp validates the names of exchanges, queues and virtual hosts before it encodes them.
name_text = st.text(max_size=127, alphabet=string.ascii_letters + string.digits + "-_.:@#,/+ ")
VALIDATED_NAMES = ("destination", "exchange", "queue", "source", "virtual_host")
# pamqp cuts a field name of more than 128 octets.
key_text = st.text(max_size=32, alphabet=st.characters(codec="utf-8"))


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


def field_of(code: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Field]:
    return values.map(lambda value: (code, value))


simple_fields: st.SearchStrategy[Field] = st.one_of(
    field_of("t", st.booleans()),
    field_of("b", signed(8)),
    field_of("B", unsigned(8)),
    field_of("s", signed(16)),
    field_of("u", unsigned(16)),
    field_of("I", signed(32)),
    field_of("i", unsigned(32)),
    field_of("l", signed(64)),
    field_of("f", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    field_of("d", st.floats(allow_nan=False, allow_infinity=False)),
    field_of("D", st.tuples(unsigned(8), signed(32))),
    field_of("S", st.binary(max_size=20)),
    field_of("S", st.text(max_size=20).map(lambda text: text.encode(errors="replace"))),
    # pamqp takes a number beyond 32 bits for milliseconds.
    field_of("T", unsigned(32)),
    field_of("x", st.binary(max_size=20)),
    field_of("V", st.none()),
)
fields = st.recursive(
    simple_fields,
    lambda inner: (
        field_of("A", st.lists(inner, max_size=4)) | field_of("F", st.dictionaries(key_text, inner, max_size=4))
    ),
    max_leaves=12,
)
tables: st.SearchStrategy[Table] = st.dictionaries(key_text, fields, max_size=5)

# What pamqp can encode, as the Python values that it takes.
pamqp_values = st.recursive(
    st.one_of(
        st.booleans(),
        signed(64),
        st.floats(width=32, allow_nan=False, allow_infinity=False),
        st.tuples(st.integers(0, 9), signed(32)).map(lambda pair: Decimal(pair[1]).scaleb(-pair[0])),
        st.text(max_size=20, alphabet=st.characters(codec="utf-8")),
        st.binary(max_size=20).map(bytearray),
        unsigned(32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
        st.none(),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(key_text, inner, max_size=4),
    max_leaves=12,
)
pamqp_tables = st.dictionaries(key_text, pamqp_values, max_size=5)

OUR_ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": unsigned(8),
    "short": unsigned(16),
    "long": unsigned(32),
    # pamqp reads these as signed; ours are unsigned, and the upper half is tested without it.
    "longlong": unsigned(63),
    "timestamp": unsigned(32),
    "shortstr": short_text,
    "longstr": st.binary(max_size=60),
    "table": tables,
}


def as_pamqp_decodes(value: Any) -> Any:
    """What pamqp makes of the octets of our argument."""
    if isinstance(value, bytes):
        return text_or_bytes(value)
    if isinstance(value, dict):
        return {key: field_as_pamqp_decodes(field) for key, field in value.items()}
    return value


def field_as_pamqp_decodes(field: Field) -> Any:
    code, value = field
    if code == "A":
        return [field_as_pamqp_decodes(item) for item in value]
    if code == "F":
        return {key: field_as_pamqp_decodes(item) for key, item in value.items()}
    if code == "S":
        return text_or_bytes(value)
    if code == "D":
        return Decimal(value[1]) * Decimal(10) ** -value[0]
    if code == "T":
        return datetime.fromtimestamp(value, UTC)
    return value


def text_or_bytes(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def argument_types(pamqp_class: type[base.Frame]) -> dict[str, tuple[str, str]]:
    """pamqp's argument names, each with ours ("" for a reserved one) and its AMQP type."""
    ours = OUR_METHODS[pamqp_class.index].__slots__
    found = {}
    for pamqp_name in pamqp_class.__slots__:
        our_name = OUR_NAMES.get(pamqp_name, pamqp_name)
        found[pamqp_name] = (our_name if our_name in ours else "", pamqp_class.amqp_type(pamqp_name))
    return found


@st.composite
def our_methods(draw: st.DrawFn, pamqp_class: type[base.Frame]) -> Method:
    """One of our methods with random arguments."""
    arguments = {
        our_name: draw(OUR_ARGUMENTS[amqp_type])
        for our_name, amqp_type in argument_types(pamqp_class).values()
        if our_name
    }
    return OUR_METHODS[pamqp_class.index](**arguments)


any_method = st.sampled_from(sorted(PAMQP_METHODS)).flatmap(lambda index: our_methods(PAMQP_METHODS[index]))


@st.composite
def pamqp_methods(draw: st.DrawFn, pamqp_class: type[base.Frame]) -> base.Frame:
    """One of pamqp's methods with random arguments, reserved ones as pamqp insists on them."""
    method = pamqp_class()
    for pamqp_name, (our_name, amqp_type) in argument_types(pamqp_class).items():
        if not our_name:
            continue
        values = OUR_ARGUMENTS[amqp_type]
        if amqp_type == "longstr":
            values = st.text(max_size=40, alphabet=st.characters(codec="utf-8"))
        elif amqp_type == "table":
            values = pamqp_tables
        elif pamqp_name in VALIDATED_NAMES:
            values = name_text
        setattr(method, pamqp_name, draw(values))
    return method


def check_refused(reply_code: int, call: Callable[..., object], *arguments: object) -> str:
    """The call is refused with this reply code; returns the text."""
    with pytest.raises(ConnectionException) as caught:
        call(*arguments)
    assert caught.value.reply_code == reply_code
    return caught.value.reply_text
