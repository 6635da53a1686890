"""The identity of bindings, and the two equalities of field tables that it and the headers exchange rest on."""

from __future__ import annotations

import pytest

from penstock.fields import Field, Table, comparable, freeze_table, term_text
from penstock.routing.bindings import QUEUE, Binding, Destinations, add_destination, drop_destination


def key_of(arguments: Table) -> object:
    return Binding("x", (QUEUE, "q"), "k", arguments).key


def test_the_order_of_arguments_does_not_matter() -> None:
    one: Table = {"a": ("I", 1), "b": ("S", b"2")}
    other: Table = {"b": ("S", b"2"), "a": ("I", 1)}
    assert key_of(one) == key_of(other)
    assert hash(key_of(one)) == hash(key_of(other))


@pytest.mark.parametrize(
    "other",
    [
        Binding("y", (QUEUE, "q"), "k", {"a": ("I", 1)}),
        Binding("x", ("exchange", "q"), "k", {"a": ("I", 1)}),
        Binding("x", (QUEUE, "r"), "k", {"a": ("I", 1)}),
        Binding("x", (QUEUE, "q"), "", {"a": ("I", 1)}),
        Binding("x", (QUEUE, "q"), "k", {}),
        Binding("x", (QUEUE, "q"), "k", {"a": ("I", 2)}),
        Binding("x", (QUEUE, "q"), "k", {"a": ("l", 1)}),
        Binding("x", (QUEUE, "q"), "k", {"a": ("t", True)}),
        Binding("x", (QUEUE, "q"), "k", {"b": ("I", 1)}),
        Binding("x", (QUEUE, "q"), "k", {"a": ("I", 1), "b": ("V", None)}),
    ],
)
def test_a_binding_that_differs_anywhere_is_another(other: Binding) -> None:
    assert Binding("x", (QUEUE, "q"), "k", {"a": ("I", 1)}).key != other.key


def test_nested_arguments_are_compared_with_their_types_and_order() -> None:
    nested: Table = {"n": ("A", [("F", {"a": ("I", 1), "b": ("V", None)})])}
    same: Table = {"n": ("A", [("F", {"a": ("I", 1), "b": ("V", None)})])}
    wider: Table = {"n": ("A", [("F", {"a": ("l", 1), "b": ("V", None)})])}
    swapped: Table = {"n": ("A", [("F", {"b": ("V", None), "a": ("I", 1)})])}
    assert key_of(nested) == key_of(same)
    assert key_of(nested) != key_of(wider)
    assert key_of(nested) != key_of(swapped)


def test_not_a_number_is_the_same_argument_each_time_it_is_sent() -> None:
    assert freeze_table({"a": ("d", float("nan"))}) == freeze_table({"a": ("d", float("nan"))})
    assert comparable(("d", float("nan"))) == comparable(("f", float("nan")))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("I", 5), ("l", 5)),
        (("b", 5), ("T", 5)),
        (("I", 5), ("d", 5.0)),
        (("S", b"x"), ("x", b"x")),
        (("d", 0.0), ("d", -0.0)),
        (("A", []), ("F", {})),
        (("D", (2, 5)), ("D", (2, 5))),
        (("A", [("I", 1)]), ("A", [("I", 1)])),
        (("F", {"a": ("I", 1)}), ("F", {"a": ("I", 1)})),
    ],
)
def test_headers_are_equal_by_value_whatever_their_outermost_type(one: Field, other: Field) -> None:
    assert comparable(one) == comparable(other)
    assert hash(comparable(one)) == hash(comparable(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("t", True), ("I", 1)),
        (("t", False), ("I", 0)),
        (("t", True), ("d", 1.0)),
        (("S", b"1"), ("I", 1)),
        (("V", None), ("S", b"")),
        (("V", None), ("I", 0)),
        (("V", None), ("A", [])),
        (("D", (2, 5)), ("D", (1, 5))),
        (("D", (0, 5)), ("I", 5)),
        (("A", [("I", 1)]), ("A", [("l", 1)])),
        (("A", [("t", True)]), ("A", [("I", 1)])),
        (("A", [("I", 1)]), ("I", 1)),
        (("F", {"a": ("I", 1), "b": ("I", 2)}), ("F", {"b": ("I", 2), "a": ("I", 1)})),
        (("A", [("A", [])]), ("A", [("F", {})])),
    ],
)
def test_headers_of_different_kinds_are_not_equal(one: Field, other: Field) -> None:
    assert comparable(one) != comparable(other)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (("S", b"foo"), '<<"foo">>'),
        (("S", b""), "<<>>"),
        (("S", b'f"o\\o'), '<<"f\\"o\\\\o">>'),
        (("S", "é".encode()), '<<"é">>'),
        (("x", b"\x00\xff"), "<<0,255>>"),
        (("t", True), "true"),
        (("t", False), "false"),
        (("I", -5), "-5"),
        (("d", 1.5), "1.5"),
        (("V", None), "undefined"),
        (("D", (2, 5)), "{2,5}"),
        (("A", [("S", b"a"), ("I", 1)]), '[{longstr,<<"a">>},{signedint,1}]'),
        (("F", {"k": ("S", b"v")}), '[{<<"k">>,longstr,<<"v">>}]'),
        (("A", []), "[]"),
    ],
)
def test_a_field_is_printed_as_rabbitmq_prints_it(field: Field, text: str) -> None:
    assert term_text(field) == text


def test_the_text_of_a_long_value_is_no_longer_than_a_reply_text_needs() -> None:
    assert len(term_text(("S", b"x" * 100_000))) < 300


def test_a_destination_stays_until_its_last_binding_goes() -> None:
    destinations: Destinations = {}
    add_destination(destinations, (QUEUE, "q"))
    add_destination(destinations, (QUEUE, "q"))
    drop_destination(destinations, (QUEUE, "q"))
    assert list(destinations) == [(QUEUE, "q")]
    drop_destination(destinations, (QUEUE, "q"))
    assert destinations == {}
