"""From fields on the wire to values that a selector compares."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selector_house import matches

from penstock.fields import TYPE_NAMES, Field
from penstock.selectors.expression import Value
from penstock.selectors.field_values import plain_value

FIELDS: list[tuple[Field, Value]] = [
    (("t", True), True),
    (("t", False), False),
    (("b", -128), -128),
    (("B", 255), 255),
    (("s", -32768), -32768),
    (("u", 65535), 65535),
    (("I", -(2**31)), -(2**31)),
    (("i", 2**32 - 1), 2**32 - 1),
    (("l", -(2**63)), -(2**63)),
    (("T", 2**64 - 1), 2**64 - 1),
    (("f", 0.5), 0.5),
    (("d", -1e300), -1e300),
    (("D", (2, 12345)), 123.45),
    (("D", (0, 7)), 7.0),
    (("D", (1, -5)), -0.5),
    (("D", (255, 1)), 1e-255),
    (("S", "größe".encode()), "größe"),
    (("S", b""), ""),
    (("x", b"raw"), "raw"),
    (("S", b"\xff\xfe"), None),
    (("x", b"\xc3"), None),
    (("A", [("I", 1)]), None),
    (("A", []), None),
    (("F", {"a": ("I", 1)}), None),
    (("V", None), None),
]


@pytest.mark.parametrize(("field", "value"), FIELDS)
def test_a_field_has_the_plain_value_of_its_type(field: Field, value: Value) -> None:
    plain = plain_value(field)
    assert plain == value
    assert type(plain) is type(value)


def test_every_type_of_the_wire_is_in_the_list_above() -> None:
    assert {field[0] for field, _ in FIELDS} == TYPE_NAMES.keys()


def test_a_float_that_is_not_a_number_stays_one_and_matches_nothing() -> None:
    plain = plain_value(("d", math.nan))
    assert isinstance(plain, float)
    assert math.isnan(plain)
    assert not matches("a = a OR a <> a", {"a": plain})


@given(st.integers(), st.integers())
def test_no_decimal_is_an_error(scale: int, digits: int) -> None:
    plain = plain_value(("D", (scale, digits)))
    assert plain is None or (isinstance(plain, float) and math.isfinite(plain))


@given(st.binary())
def test_octets_are_their_text_or_nothing(octets: bytes) -> None:
    plain = plain_value(("S", octets))
    assert plain is None or (isinstance(plain, str) and plain.encode() == octets)


@pytest.mark.parametrize(("scale", "digits"), [(-1, 1), (256, 1), (10**9, 1), (0, 10**400), (0, -(10**400))])
def test_a_decimal_that_the_wire_cannot_carry_has_no_value(scale: int, digits: int) -> None:
    assert plain_value(("D", (scale, digits))) is None
