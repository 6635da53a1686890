"""Properties of messages: against pamqp, golden octets, and damage."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header
from tests.builds import interpreted_only
from wire_strategies import (
    OUR_ARGUMENTS,
    OUR_NAMES,
    as_pamqp_decodes,
    check_refused,
    pamqp_tables,
    short_text,
    unsigned,
)

from penstock.errors import ConnectionException
from penstock.wire.properties import Properties, decode_properties, encode_properties
from penstock.wire.tables import table_to_python

PamqpProperties = commands.Basic.Properties
# pamqp's names in wire order, each with ours and its AMQP type.
NAMES = {name: (OUR_NAMES.get(name, name), PamqpProperties.amqp_type(name)) for name in PamqpProperties.__slots__}


@st.composite
def properties(draw: st.DrawFn) -> Properties:
    """Some of the properties, with random values."""
    chosen = draw(st.sets(st.sampled_from(sorted(NAMES))))
    return Properties(**{NAMES[name][0]: draw(OUR_ARGUMENTS[NAMES[name][1]]) for name in sorted(chosen)})


@interpreted_only("a compiled class does not tell its fields")
def test_the_properties_are_those_of_the_specification() -> None:
    assert sorted(Properties.__slots__) == sorted(our_name for our_name, _ in NAMES.values())


@given(properties())
def test_pamqp_reads_the_properties_that_we_write(ours: Properties) -> None:
    content_header = header.ContentHeader()
    content_header.unmarshal(b"\x00\x3c" + bytes(10) + encode_properties(ours))
    for name, (our_name, amqp_type) in NAMES.items():
        expected: Any = as_pamqp_decodes(getattr(ours, our_name))
        if amqp_type == "timestamp" and expected is not None:
            expected = datetime.fromtimestamp(expected, UTC)
        if name == "cluster_id" and expected is None:
            # pamqp has no absent cluster-id, only an empty one.
            expected = ""
        assert getattr(content_header.properties, name) == expected


@given(st.data(), st.sets(st.sampled_from(sorted(set(NAMES) - {"cluster_id"}))))
def test_we_read_the_properties_that_pamqp_writes(data: st.DataObject, chosen: set[str]) -> None:
    values: dict[str, st.SearchStrategy[Any]] = {
        # An empty string is an absent property to pamqp.
        "shortstr": short_text.filter(bool),
        "octet": unsigned(8),
        "table": pamqp_tables,
        "timestamp": unsigned(32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    }
    theirs = PamqpProperties()
    for name in sorted(chosen):
        setattr(theirs, name, data.draw(values[NAMES[name][1]]))
    ours = decode_properties(theirs.marshal())
    for name, (our_name, amqp_type) in NAMES.items():
        value, expected = getattr(ours, our_name), getattr(theirs, name)
        if name not in chosen:
            assert value is None
        elif amqp_type == "table":
            assert table_to_python(value) == expected
        elif amqp_type == "timestamp":
            assert value == expected.timestamp()
        else:
            assert value == expected


@given(properties())
def test_properties_are_the_same_after_a_round_trip(ours: Properties) -> None:
    raw = encode_properties(ours)
    again = decode_properties(raw)
    assert again == ours
    for name, _ in NAMES.values():
        assert getattr(again, name) == getattr(ours, name)


@given(properties())
def test_properties_cut_at_any_octet_are_a_syntax_error(ours: Properties) -> None:
    raw = encode_properties(ours)
    for end in range(len(raw)):
        check_refused(502, decode_properties, raw[:end])


@given(properties(), st.binary(min_size=1, max_size=20))
def test_octets_behind_the_properties_are_a_syntax_error(ours: Properties, more: bytes) -> None:
    check_refused(502, decode_properties, encode_properties(ours) + more)


@given(st.binary(max_size=60))
def test_random_octets_are_read_or_refused_as_a_syntax_error(raw: bytes) -> None:
    try:
        result = encode_properties(decode_properties(raw)) != b""
    except ConnectionException as error:
        result = error.reply_code == 502
    assert result


@pytest.mark.parametrize("raw", [b"\x00\x01", b"\x00\x01\x00\x00", b"\x00\x02", b"\x80\x03\x01a"])
def test_flags_that_are_no_property_are_a_syntax_error(raw: bytes) -> None:
    assert "property flags" in check_refused(502, decode_properties, raw)


def test_a_property_that_is_not_utf8_leaves_as_it_came() -> None:
    raw = b"\x04\x00\x10" + bytes(range(0xF0, 0x100))
    assert encode_properties(decode_properties(raw)) == raw


def test_a_property_of_more_than_255_octets_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="256 bytes"):
        encode_properties(Properties(message_id="m" * 256))


def test_no_properties_are_two_zero_octets() -> None:
    assert encode_properties(Properties()) == b"\x00\x00"
    assert decode_properties(b"\x00\x00") == Properties()


def test_an_empty_property_is_present() -> None:
    raw = encode_properties(Properties(content_type="", headers={}, priority=0))
    assert raw == b"\xa8\x00\x00\x00\x00\x00\x00\x00"
    again = decode_properties(raw)
    assert (again.content_type, again.headers, again.priority, again.reply_to) == ("", {}, 0, None)


def test_octets_of_all_properties() -> None:
    everything = Properties(
        "text/plain", "gzip", {"h": ("t", True)}, 2, 9, "c", "r", "60000", "m", (1 << 64) - 1, "t", "u", "a", "k"
    )
    raw = (
        b"\xff\xfc\x0atext/plain\x04gzip\x00\x00\x00\x04\x01ht\x01\x02\x09\x01c\x01r\x0560000\x01m"
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x01t\x01u\x01a\x01k"
    )
    assert encode_properties(everything) == raw
    assert decode_properties(raw) == everything


def test_properties_are_not_equal_to_others_or_to_something_else() -> None:
    assert Properties(priority=1) != Properties(priority=2)
    assert Properties(app_id="a") != Properties(user_id="a")
    assert Properties() != b"\x00\x00"
