"""Field tables: every type, both directions, the limits, and damage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import decode, encode
from tests.effort import examples
from wire_strategies import as_pamqp_decodes, check_refused, pamqp_tables, tables

from penstock.errors import AmqpError, ConnectionException
from penstock.fields import Field, Table
from penstock.limits import TABLE_DEPTH_MAX, TABLE_ITEMS_MAX
from penstock.wire.tables import decode_table, encode_table, skip_table, table_from_python, table_to_python


def decoded(data: bytes) -> Table:
    table, end = decode_table(data, 0, len(data))
    assert end == len(data)
    return table


def with_length(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


@given(tables)
def test_a_table_is_the_same_after_a_round_trip(table: Table) -> None:
    data = encode_table(table)
    again = decoded(data)
    assert again == table
    assert encode_table(again) == data


@given(tables)
def test_pamqp_reads_the_tables_that_we_write(table: Table) -> None:
    data = encode_table(table)
    assert decode.field_table(data) == (len(data), as_pamqp_decodes(table))


@given(pamqp_tables)
def test_we_read_the_tables_that_pamqp_writes(values: dict[str, Any]) -> None:
    assert table_to_python(decoded(encode.field_table(values))) == values


@given(tables, st.binary(max_size=20), st.binary(max_size=20))
def test_a_table_is_read_from_the_middle_of_a_buffer(table: Table, before: bytes, behind: bytes) -> None:
    data = encode_table(table)
    end = len(before) + len(data)
    buffer = before + data + behind
    assert decode_table(buffer, len(before), end) == (table, end)
    assert decode_table(buffer, len(before), len(buffer)) == (table, end)


@given(tables)
def test_a_table_cut_at_any_octet_is_a_syntax_error(table: Table) -> None:
    data = encode_table(table)
    for end in range(len(data)):
        check_refused(502, decode_table, data[:end], 0, end)
        check_refused(502, decode_table, data, 0, end)


@given(tables.filter(bool))
def test_fields_cut_at_any_octet_are_a_syntax_error(table: Table) -> None:
    """The length octets agree with what is there, so that the fields themselves are cut."""
    content = encode_table(table)[4:]
    whole = {0, len(content)}
    size = 0
    for key, field in table.items():
        size += len(encode_table({key: field})) - 4
        whole.add(size)
    for end in range(len(content)):
        if end not in whole:
            check_refused(502, decoded, with_length(content[:end]))


@given(st.binary(max_size=80))
def test_random_octets_are_read_or_refused_as_a_syntax_error(content: bytes) -> None:
    data = with_length(content)
    try:
        result = encode_table(decoded(data)) != b""
    except ConnectionException as error:
        result = error.reply_code == 502
    assert result


GOLDEN: list[tuple[Field, bytes]] = [
    (("t", True), b"t\x01"),
    (("t", False), b"t\x00"),
    (("b", -1), b"b\xff"),
    (("B", 255), b"B\xff"),
    (("s", -2), b"s\xff\xfe"),
    (("u", 65_534), b"u\xff\xfe"),
    (("I", -3), b"I\xff\xff\xff\xfd"),
    (("i", 4_294_967_293), b"i\xff\xff\xff\xfd"),
    (("l", -4), b"l\xff\xff\xff\xff\xff\xff\xff\xfc"),
    (("f", 1.5), b"f\x3f\xc0\x00\x00"),
    (("d", -2.25), b"d\xc0\x02\x00\x00\x00\x00\x00\x00"),
    (("D", (2, -314)), b"D\x02\xff\xff\xfe\xc6"),
    (("S", b"a\xff"), b"S\x00\x00\x00\x02a\xff"),
    (("x", b"\x00\x01"), b"x\x00\x00\x00\x02\x00\x01"),
    (("T", (1 << 64) - 1), b"T\xff\xff\xff\xff\xff\xff\xff\xff"),
    (("V", None), b"V"),
    (("A", []), b"A\x00\x00\x00\x00"),
    (("A", [("t", True), ("A", [("V", None)])]), b"A\x00\x00\x00\x08t\x01A\x00\x00\x00\x01V"),
    (("F", {}), b"F\x00\x00\x00\x00"),
    (("F", {"b": ("F", {"c": ("b", 1)})}), b"F\x00\x00\x00\x0b\x01bF\x00\x00\x00\x04\x01cb\x01"),
]


@pytest.mark.parametrize(("field", "octets"), GOLDEN, ids=[str(field) for field, _ in GOLDEN])
def test_octets_of_a_field(field: Field, octets: bytes) -> None:
    data = with_length(b"\x01a" + octets)
    assert encode_table({"a": field}) == data
    again = decoded(data)["a"]
    assert again == field
    assert type(again[1]) is type(field[1])


def test_an_empty_table_is_four_zero_octets() -> None:
    assert encode_table({}) == bytes(4)
    assert decoded(bytes(4)) == {}


def test_capital_l_is_read_as_a_signed_64_bit_integer_and_written_as_small_l() -> None:
    table = decoded(with_length(b"\x01aL" + b"\xff" * 8))
    assert table == {"a": ("l", -1)}
    assert encode_table(table) == with_length(b"\x01al" + b"\xff" * 8)


def test_any_octet_but_zero_is_true() -> None:
    assert decoded(with_length(b"\x01at\x02")) == {"a": ("t", True)}


def test_the_last_of_two_fields_with_the_same_name_stays() -> None:
    assert decoded(with_length(b"\x01aV\x01bV\x01at\x01")) == {"a": ("t", True), "b": ("V", None)}


def test_fields_stay_in_order() -> None:
    table: Table = {"z": ("V", None), "a": ("V", None), "m": ("V", None)}
    assert list(decoded(encode_table(table))) == ["z", "a", "m"]


@pytest.mark.parametrize("code", [code for code in range(256) if chr(code) not in "tbBsuIilLfdDSAxTFV"])
def test_an_unknown_type_code_is_a_syntax_error(code: int) -> None:
    text = check_refused(502, decoded, with_length(b"\x01a" + bytes((code,)) + bytes(16)))
    assert text == f"SYNTAX_ERROR - table field of unknown type {code}"


def test_a_field_name_that_is_not_utf8_is_a_syntax_error() -> None:
    check_refused(502, decoded, with_length(b"\x01\xffV"))


@pytest.mark.parametrize(
    "octets",
    ["66 7fc00000", "66 7f800000", "66 ff800000", "64 7ff8000000000000", "64 7ff0000000000000", "64 fff0000000000000"],
)
def test_a_float_that_is_not_finite_is_a_syntax_error(octets: str) -> None:
    check_refused(502, decoded, with_length(b"\x01a" + bytes.fromhex(octets)))


@pytest.mark.parametrize("code", [b"S", b"x", b"A", b"F"])
def test_a_value_that_reaches_beyond_its_table_is_a_syntax_error(code: bytes) -> None:
    inner = b"\x01b" + code + b"\x00\x00\x00\x01"
    # The octet that the inner value claims is there, but it belongs to the outer table.
    check_refused(502, decoded, with_length(b"\x01aF" + with_length(inner) + b"\x00V"))
    check_refused(502, decoded, with_length(b"\x01a" + code + b"\xff\xff\xff\xff"))


def nested(code: str, depth: int) -> Table:
    """A table with tables or arrays in it, `depth` containers in all."""
    field: Field = (code, [] if code == "A" else {})
    for _ in range(depth - 2):
        field = (code, [field] if code == "A" else {"a": field})
    return {"a": field}


@pytest.mark.parametrize("code", ["A", "F"])
def test_nesting_is_limited_in_both_directions(code: str) -> None:
    deepest = nested(code, TABLE_DEPTH_MAX)
    data = encode_table(deepest)
    assert decoded(data) == deepest
    check_refused(502, encode_table, nested(code, TABLE_DEPTH_MAX + 1))
    wrapped = with_length(b"\x01a" + (b"A" + with_length(b"F" + data) if code == "A" else b"F" + data))
    check_refused(502, decoded, wrapped)


def test_nesting_thousands_deep_is_refused_and_not_a_crash() -> None:
    data = bytes(4)
    for _ in range(5_000):
        data = with_length(b"\x01aF" + data)
    assert "nested" in check_refused(502, decoded, data)
    assert skip_table(data, 0, len(data), None) == -1
    assert "nested" in check_refused(502, encode_table, nested("F", 5_000))


def test_the_number_of_fields_is_limited_in_both_directions() -> None:
    most: Table = {str(number): ("V", None) for number in range(TABLE_ITEMS_MAX)}
    data = encode_table(most)
    assert decoded(data) == most
    assert skip_table(data, 0, len(data), None) == len(data)
    check_refused(502, encode_table, {**most, "one more": ("V", None)})
    more = with_length(data[4:] + b"\x00V")
    check_refused(502, decoded, more)
    assert skip_table(more, 0, len(more), None) == -1


def test_fields_are_counted_over_all_nested_tables_and_arrays() -> None:
    half: list[Field] = [("V", None)] * (TABLE_ITEMS_MAX // 2 - 1)
    most: Table = {"a": ("A", half), "b": ("A", half)}
    data = encode_table(most)
    assert decoded(data) == most
    check_refused(502, encode_table, {**most, "c": ("V", None)})
    check_refused(502, decoded, with_length(data[4:] + b"\x01cV"))


def test_a_field_name_of_more_than_255_octets_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="256 bytes"):
        encode_table({"k" * 256: ("V", None)})


def test_plain_values_become_fields() -> None:
    values: dict[str, object] = {
        "text": "é",
        "flag": True,
        "small": -(1 << 31),
        "large": 1 << 31,
        "float": 0.5,
        "decimal": Decimal("-3.14"),
        "hundred": Decimal("1E+2"),
        "bytes": b"\xff",
        "nothing": None,
        "moment": datetime(1970, 1, 2, tzinfo=UTC),
        "naive": datetime(1970, 1, 2),  # noqa: DTZ001 a value without a zone is the subject
        "elsewhere": datetime(1970, 1, 2, tzinfo=timezone(timedelta(hours=1))),
        "list": [1, "a", [None]],
        "table": {"inner": {"x": 1}},
    }
    assert table_from_python(values) == {
        "text": ("S", "é".encode()),
        "flag": ("t", True),
        "small": ("I", -(1 << 31)),
        "large": ("l", 1 << 31),
        "float": ("d", 0.5),
        "decimal": ("D", (2, -314)),
        "hundred": ("D", (0, 100)),
        "bytes": ("x", b"\xff"),
        "nothing": ("V", None),
        "moment": ("T", 86_400),
        "naive": ("T", 86_400),
        "elsewhere": ("T", 82_800),
        "list": ("A", [("I", 1), ("S", b"a"), ("A", [("V", None)])]),
        "table": ("F", {"inner": ("F", {"x": ("I", 1)})}),
    }


@given(tables)
def test_plain_values_of_a_table_become_an_equal_table_on_the_wire(table: Table) -> None:
    values = table_to_python(table)
    assert table_to_python(decoded(encode_table(table_from_python(values)))) == values


def test_long_strings_become_text_when_they_are_utf8() -> None:
    table: Table = {"a": ("S", b"x\xc3\xa9"), "b": ("S", b"\xff"), "c": ("x", b"x")}
    assert table_to_python(table) == {"a": "xé", "b": b"\xff", "c": b"x"}


def test_a_timestamp_beyond_the_year_9999_stays_a_number() -> None:
    table: Table = {"last": ("T", 253_402_300_799), "beyond": ("T", 253_402_300_800), "end": ("T", (1 << 64) - 1)}
    assert table_to_python(table) == {
        "last": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        "beyond": 253_402_300_800,
        "end": (1 << 64) - 1,
    }


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        -(1 << 63) - 1,
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("2147483648"),
        Decimal("1E+999999"),
        Decimal("1E-256"),
        Decimal("1E-999999"),
        datetime(1969, 12, 31, tzinfo=UTC),
        float("nan"),
        float("-inf"),
    ],
)
def test_a_plain_value_that_does_not_fit_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"fit|finite|1970"):
        table_from_python({"a": [value]})


def test_a_plain_value_without_amqp_type_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no AMQP type for set"):
        table_from_python({"a": {1}})


def test_plain_values_may_not_be_nested_deeper_than_tables() -> None:
    lists: list[object] = []
    dicts: dict[str, object] = {}
    for _ in range(TABLE_DEPTH_MAX - 2):
        lists = [lists]
        dicts = {"a": dicts}
    assert encode_table(table_from_python({"a": lists}))
    assert encode_table(table_from_python({"a": dicts}))
    for deeper in ({"a": [lists]}, {"a": {"a": dicts}}):
        with pytest.raises(ValueError, match="nested more than"):
            table_from_python(deeper)


@settings(deadline=None, max_examples=examples(500))
@given(tables, st.data())
def test_a_table_is_skipped_if_it_can_be_decoded_and_concerns_nobody(table: Table, data: st.DataObject) -> None:
    """Also after a few octets were changed, and with something before and behind it."""
    octets = bytearray(encode_table(table))
    for at in data.draw(st.lists(st.integers(0, len(octets) - 1), max_size=3)):
        octets[at] = data.draw(st.integers(0, 255))
    raw = b"ab" + bytes(octets) + data.draw(st.binary(max_size=4))
    spans: list[tuple[int, int]] = []
    skipped = skip_table(raw, 2, len(raw), spans)
    try:
        decoded, end = decode_table(raw, 2, len(raw))
    except AmqpError:
        assert skipped == -1
        return
    assert skipped == (-1 if {"CC", "BCC"} & decoded.keys() else end)
    assert all(2 < start <= stop <= end for start, stop in spans) or skipped == -1
