"""Headers of messages: read one by one, and changed without touching anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_strategies import OUR_ARGUMENTS, fields, key_text, tables

from penstock.errors import ConnectionException
from penstock.fields import Field, Table
from penstock.limits import TABLE_ITEMS_MAX
from penstock.message import Envelope
from penstock.wire.content import read_content
from penstock.wire.properties import Properties, decode_properties, encode_properties
from penstock.wire.property_edits import (
    HeaderReader,
    header_of,
    headers_of,
    with_changed_header,
    with_headers,
    with_properties,
    without_headers,
)

ONE: Field = ("I", 1)
TWO: Field = ("l", 2)
TEXT: Field = ("S", b"text")
PROPERTY_TYPES = {
    "content_type": "shortstr",
    "content_encoding": "shortstr",
    "headers": "table",
    "delivery_mode": "octet",
    "priority": "octet",
    "correlation_id": "shortstr",
    "reply_to": "shortstr",
    "message_id": "shortstr",
    "timestamp": "timestamp",
    "type": "shortstr",
    "user_id": "shortstr",
    "app_id": "shortstr",
    "cluster_id": "shortstr",
}


def envelope_of(properties: Properties) -> Envelope:
    return read_content("ex", "key", encode_properties(properties)).envelope


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    """A message with some of the properties."""
    chosen = draw(st.sets(st.sampled_from(sorted(PROPERTY_TYPES))))
    properties = Properties(**{name: draw(OUR_ARGUMENTS[PROPERTY_TYPES[name]]) for name in sorted(chosen)})
    if properties.headers is not None:
        # These two are judged at publishing, and that is not what is tested here.
        properties.headers = {name: field for name, field in properties.headers.items() if name not in ("CC", "BCC")}
    if draw(st.booleans()):
        properties.expiration = str(draw(st.integers(0, 100_000)))
    return envelope_of(properties)


def check_consistent(envelope: Envelope) -> None:
    """What the envelope says agrees with its properties, as publishing them again shows."""
    again = read_content(envelope.exchange, envelope.routing_key, envelope.properties).envelope
    assert again.persistent == envelope.persistent
    assert again.priority == envelope.priority
    assert again.expiration_ms == envelope.expiration_ms
    assert again.address == envelope.address


def test_a_message_without_headers_has_an_empty_table() -> None:
    for properties in (Properties(), Properties(content_type="a/b", expiration="5"), Properties(headers={})):
        envelope = envelope_of(properties)
        assert headers_of(envelope) == {}
        assert header_of(envelope, "a") is None


def test_headers_are_found_behind_other_properties() -> None:
    headers: Table = {"b": ONE, "a": TEXT}
    for before in (
        Properties(headers=headers),
        Properties(content_type="text/plain", headers=headers),
        Properties(content_encoding="utf-8", headers=headers, message_id="m"),
        Properties(content_type="", content_encoding="x", headers=headers, priority=3),
    ):
        envelope = envelope_of(before)
        assert list(headers_of(envelope).items()) == [("b", ONE), ("a", TEXT)]
        assert header_of(envelope, "a") == TEXT
        assert header_of(envelope, "c") is None


@given(envelopes())
def test_headers_are_those_that_the_whole_decoder_finds(envelope: Envelope) -> None:
    assert headers_of(envelope) == (decode_properties(envelope.properties).headers or {})


@given(envelopes(), tables, st.booleans())
def test_only_the_headers_are_exchanged(envelope: Envelope, headers: Table, drop_expiration: bool) -> None:
    headers.pop("CC", None)
    headers.pop("BCC", None)
    edited = with_headers(envelope, headers, drop_expiration=drop_expiration)
    expected = decode_properties(envelope.properties)
    expected.headers = headers
    if drop_expiration:
        expected.expiration = None
    assert edited.properties == encode_properties(expected)
    assert list(headers_of(edited)) == list(headers)
    assert (edited.exchange, edited.routing_key) == (envelope.exchange, envelope.routing_key)
    assert edited.address is envelope.address
    check_consistent(edited)


def test_an_edit_can_send_the_message_another_way() -> None:
    envelope = envelope_of(Properties(delivery_mode=2, priority=7, expiration="500"))
    edited = with_headers(envelope, {"a": ONE}, exchange="other", routing_key="")
    assert (edited.exchange, edited.routing_key, edited.address) == ("other", "", b"\x05other\x00")
    assert (edited.persistent, edited.priority, edited.expiration_ms) == (True, 7, 500)
    only_key = with_headers(envelope, {}, routing_key="new")
    assert (only_key.exchange, only_key.routing_key) == ("ex", "new")
    check_consistent(edited)
    check_consistent(only_key)


def test_properties_can_be_exchanged_as_a_whole() -> None:
    envelope = envelope_of(Properties(delivery_mode=2, priority=7, expiration="500"))
    edited = with_properties(envelope, Properties(delivery_mode=1, expiration="500", app_id="me"))
    assert (edited.persistent, edited.priority, edited.expiration_ms) == (False, 0, 500)
    check_consistent(edited)
    assert with_properties(envelope, Properties()).expiration_ms == -1


def test_a_header_that_is_changed_keeps_its_place() -> None:
    envelope = envelope_of(Properties(headers={"b": ONE, "a": TEXT}))
    changed = with_changed_header(envelope, HeaderReader("b"), lambda field: TWO if field == ONE else None)
    assert list(headers_of(changed).items()) == [("b", TWO), ("a", TEXT)]
    assert headers_of(envelope) == {"b": ONE, "a": TEXT}


def test_a_message_stays_as_it_is_without_the_header_or_without_another_value_for_it() -> None:
    for properties in (Properties(), Properties(headers={"b": ONE})):
        envelope = envelope_of(properties)
        assert with_changed_header(envelope, HeaderReader("a"), lambda field: TWO) is envelope
        assert with_changed_header(envelope, HeaderReader("b"), lambda field: None) is envelope


def test_headers_are_taken_off_and_an_empty_table_stays() -> None:
    envelope = envelope_of(Properties(headers={"b": ONE, "a": TEXT, "c": TWO}, message_id="m"))
    assert list(headers_of(without_headers(envelope, ["b", "unknown"]))) == ["a", "c"]
    bare = without_headers(envelope, ["a", "b", "c"])
    assert decode_properties(bare.properties) == Properties(headers={}, message_id="m")


def test_an_envelope_that_has_none_of_the_headers_is_handed_back() -> None:
    for properties in (Properties(), Properties(headers={"a": ONE})):
        envelope = envelope_of(properties)
        assert without_headers(envelope, ["b", "c"]) is envelope
        assert without_headers(envelope, []) is envelope


@given(envelopes(), key_text.filter(lambda name: name not in ("CC", "BCC")), fields)
def test_a_header_that_was_added_can_be_taken_off_again(envelope: Envelope, name: str, field: Field) -> None:
    added = with_headers(envelope, {**headers_of(envelope), name: field})
    assert header_of(added, name) == field
    check_consistent(added)
    removed = without_headers(added, [name])
    others = headers_of(envelope)
    others.pop(name, None)
    assert headers_of(removed) == others


def test_headers_that_nobody_could_read_again_are_refused() -> None:
    envelope = envelope_of(Properties())
    with pytest.raises(ConnectionException):
        with_headers(envelope, {"a": ("A", [ONE] * TABLE_ITEMS_MAX)})
    with pytest.raises(ValueError, match="short string"):
        with_headers(envelope, {"n" * 256: ONE})
    assert header_of(envelope_of(Properties(headers={"n": ONE})), "n" * 256) is None


def test_broken_properties_are_refused_with_a_declared_error() -> None:
    for raw in (b"\xa0\x00\xff\x00\x00\x00", b"\x20\x00\x00\x00\x00\x09", b"\xe0\x00\x03abc"):
        envelope = Envelope("", "q", raw)
        with pytest.raises(ConnectionException):
            headers_of(envelope)
        with pytest.raises(ConnectionException):
            header_of(envelope, "a")


@given(envelopes(), st.lists(key_text, max_size=3))
def test_one_header_is_found_as_if_all_were_decoded(envelope: Envelope, names: list[str]) -> None:
    headers = headers_of(envelope)
    for name in [*names, *headers]:
        assert header_of(envelope, name) == headers.get(name)


def test_a_header_is_not_taken_for_a_value_that_looks_like_one() -> None:
    looks_like_one: Field = ("S", b"\x01aI\x00\x00\x00\x07")
    nested: Field = ("F", {"a": TWO})
    for headers in ({"b": looks_like_one, "c": nested}, {"b": looks_like_one, "a": ONE, "c": nested}):
        envelope = envelope_of(Properties(headers=headers))
        assert header_of(envelope, "a") == headers.get("a")
        changed = with_changed_header(envelope, HeaderReader("a"), lambda field: TEXT)
        assert headers_of(changed) == {name: TEXT if name == "a" else field for name, field in headers.items()}


def test_of_two_headers_of_one_name_the_last_one_counts_and_stays_alone() -> None:
    fields = b"\x01aI\x00\x00\x00\x01" + b"\x01bt\x01" + b"\x01aI\x00\x00\x00\x02"
    envelope = Envelope("", "q", b"\x20\x00" + len(fields).to_bytes(4, "big") + fields)
    assert header_of(envelope, "a") == ("I", 2)
    edited = with_changed_header(envelope, HeaderReader("a"), lambda field: TEXT)
    assert edited.properties.count(b"\x01a") == 1
    assert header_of(edited, "a") == TEXT


@given(envelopes(), st.sampled_from([ONE, TEXT, ("l", -5), ("t", True), ("A", [ONE])]))
def test_a_header_that_is_changed_leaves_the_others_as_they_were(envelope: Envelope, field: Field) -> None:
    headers = headers_of(envelope)
    for name, old in headers.items():
        edited = with_changed_header(
            envelope, HeaderReader(name), lambda found, old=old: field if found == old else None
        )
        assert list(headers_of(edited).items()) == list({**headers, name: field}.items())
        check_consistent(edited)


@given(st.lists(st.tuples(st.lists(st.tuples(st.sampled_from(["a", "key", "é"]), fields), max_size=4), st.booleans())))
def test_a_reader_of_many_messages_finds_what_a_new_one_finds(
    messages: list[tuple[list[tuple[str, Field]], bool]],
) -> None:
    reader = HeaderReader("key")
    for headers, is_typed in messages:
        table = dict(headers)
        envelope = envelope_of(Properties(headers=table, content_type="t" if is_typed else None, message_id="3key"))
        for _ in range(2):
            assert reader.read(envelope) == HeaderReader("key").read(envelope) == table.get("key")


def test_a_reader_that_remembers_a_place_sees_a_second_header_of_the_same_name() -> None:
    one = b"\x03keyI\0\0\0\x01"
    two = b"\x03keyI\0\0\0\x02"
    reader = HeaderReader("key")
    start = b"\x20\0\0\0\0\x12"
    assert reader.read(Envelope("", "", start + one + b"\x03kexI\0\0\0\x02")) == ("I", 1)
    assert reader.read(Envelope("", "", start + one + two)) == ("I", 2)
    assert reader.read(Envelope("", "", start + one + b"\x03kexI\0\0\0\x02")) == ("I", 1)


def test_a_reader_that_remembers_a_place_notices_a_table_that_is_cut_short() -> None:
    whole = b"\x20\0\0\0\0\x12\x03keyI\0\0\0\x01\x03kexI\0\0\0\x02"
    reader = HeaderReader("key")
    assert reader.read(Envelope("", "", whole)) == ("I", 1)
    with pytest.raises(ConnectionException):
        reader.read(Envelope("", "", whole[:-1]))


@given(fields)
def test_a_whole_number_is_read_as_such_and_nothing_else_is(field: Field) -> None:
    envelope = envelope_of(Properties(headers={"x": TEXT, "key": field}))
    is_whole = field[0] in "bBsuIilLT" and isinstance(field[1], int) and field[1] >= 0
    assert HeaderReader("key").read_whole(envelope) == (field[1] if is_whole else -1)
    assert HeaderReader("other").read_whole(envelope) == -1
