"""The headers exchange against a brute-force matcher, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ChannelException
from penstock.fields import Field, FieldValue, Table
from penstock.routing.bindings import QUEUE, Binding
from penstock.routing.headers import HeadersExchange


def headers_exchange() -> HeadersExchange:
    return HeadersExchange("x", False, False, False, {})


def binding(arguments: Table, queue: str = "q") -> Binding:
    return Binding("x", (QUEUE, queue), "", arguments)


def matches(arguments: Table, headers: Table | None) -> bool:
    exchange = headers_exchange()
    exchange.bind(binding(arguments))
    return exchange.matches("", headers) == [(QUEUE, "q")]


def same_value(one: FieldValue, other: FieldValue) -> bool:
    """Erlang's `==` on what RabbitMQ makes of the two fields."""
    if isinstance(one, (list, dict)) and isinstance(other, (list, dict)) and not one and not other:
        return True
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_field, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(same_field, one.values(), other.values()))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def same_field(one: Field, other: Field) -> bool:
    return one[0] == other[0] and same_value(one[1], other[1])


def brute_force(arguments: Table, headers: Table) -> bool:
    kind = arguments.get("x-match", ("S", b"all"))[1]
    hits = []
    for name, wanted in arguments.items():
        if name == "x-match" or (name.startswith("x-") and kind in (b"all", b"any")):
            continue
        present = name in headers
        hits.append(present and (wanted[0] == "V" or same_value(wanted[1], headers[name][1])))
    return any(hits) if kind in (b"any", b"any-with-x") else all(hits)


numbers = [("I", 1), ("l", 1), ("b", 0), ("d", 1.0), ("f", 0.0), ("T", 1), ("D", (0, 1)), ("D", (1, 0))]
others = [("t", True), ("t", False), ("S", b"a"), ("x", b"a"), ("S", b""), ("V", None)]
scalars = st.sampled_from(numbers + others)
fields = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: ("A", items))
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2).map(lambda items: ("F", items))
    ),
    max_leaves=3,
)
names = st.sampled_from(["k", "l", "x-k"])
message_headers = st.dictionaries(names | st.just("x-match"), fields, max_size=4)
kinds = st.sampled_from([None, b"all", b"any", b"all-with-x", b"any-with-x"])


@st.composite
def binding_arguments(draw: st.DrawFn) -> Table:
    arguments: Table = draw(st.dictionaries(names, fields, max_size=3))
    kind = draw(kinds)
    if kind is not None:
        arguments["x-match"] = ("S", kind)
    return arguments


@given(st.lists(binding_arguments(), max_size=6), st.lists(message_headers, min_size=1, max_size=3), st.data())
def test_the_index_agrees_with_brute_force_while_bindings_come_and_go(
    bound: list[Table], messages: list[Table], data: st.DataObject
) -> None:
    exchange = headers_exchange()
    bindings = [binding(arguments, f"q{number % 3}") for number, arguments in enumerate(bound)]
    for one in bindings:
        exchange.bind(one)
    removed = data.draw(st.sets(st.sampled_from(bindings))) if bindings else set()
    for one in removed:
        exchange.unbind(one)
    left = exchange.bindings()
    for headers in messages:
        expected = {b.destination for b in left if brute_force(b.arguments, headers)}
        found = exchange.matches("", headers)
        assert set(found) == expected
        assert len(found) == len(expected)
    for one in bindings:
        exchange.unbind(one)
    for headers in messages:
        assert exchange.matches("", headers) == []
    assert (exchange.index, exchange.patterns, exchange.always) == ({}, {}, {})


def test_all_is_the_default_and_asks_for_every_argument() -> None:
    arguments: Table = {"a": ("I", 1), "b": ("S", b"x")}
    assert matches(arguments, {"a": ("I", 1), "b": ("S", b"x"), "c": ("I", 3)})
    assert not matches(arguments, {"a": ("I", 1)})
    assert not matches(arguments, {"a": ("I", 1), "b": ("S", b"y")})
    assert not matches(arguments, None)
    explicit: Table = {**arguments, "x-match": ("S", b"all")}
    assert matches(explicit, {"a": ("I", 1), "b": ("S", b"x")})
    assert not matches(explicit, {"b": ("S", b"x")})


def test_any_asks_for_one_argument() -> None:
    arguments: Table = {"x-match": ("S", b"any"), "a": ("I", 1), "b": ("S", b"x")}
    assert matches(arguments, {"a": ("I", 1)})
    assert matches(arguments, {"a": ("I", 2), "b": ("S", b"x")})
    assert not matches(arguments, {"a": ("I", 2), "b": ("S", b"y")})
    assert not matches(arguments, {"c": ("I", 1)})
    assert not matches(arguments, None)


def test_without_arguments_all_matches_every_message_and_any_matches_none() -> None:
    for headers in (None, {}, {"a": ("I", 1)}):
        assert matches({}, headers)
        assert matches({"x-match": ("S", b"all")}, headers)
        assert not matches({"x-match": ("S", b"any")}, headers)


def test_headers_that_start_with_x_count_only_where_x_match_says_so() -> None:
    with_all: Table = {"x-match": ("S", b"all-with-x"), "a": ("I", 1), "x-b": ("I", 2)}
    assert matches(with_all, {"a": ("I", 1), "x-b": ("I", 2)})
    assert not matches(with_all, {"a": ("I", 1)})
    with_any: Table = {"x-match": ("S", b"any-with-x"), "a": ("I", 1), "x-b": ("I", 2)}
    assert matches(with_any, {"x-b": ("I", 2)})
    assert matches({"x-match": ("S", b"all"), "a": ("I", 1), "x-b": ("I", 2)}, {"a": ("I", 1)})
    assert not matches({"x-match": ("S", b"any"), "a": ("I", 1), "x-b": ("I", 2)}, {"x-b": ("I", 2)})


def test_x_match_itself_is_never_compared() -> None:
    arguments: Table = {"x-match": ("S", b"any-with-x"), "a": ("I", 1)}
    assert not matches(arguments, {"x-match": ("S", b"any-with-x")})
    assert matches({"x-match": ("S", b"all-with-x"), "a": ("I", 1)}, {"a": ("I", 1)})


def test_a_void_argument_asks_only_for_presence() -> None:
    for kind in (b"all", b"any"):
        arguments: Table = {"x-match": ("S", kind), "a": ("V", None)}
        for value in (("I", 1), ("S", b"x"), ("V", None), ("A", []), ("t", False)):
            assert matches(arguments, {"a": value})
        assert not matches(arguments, {"b": ("I", 1)})


def test_a_void_header_equals_no_value() -> None:
    for value in (("I", 0), ("S", b""), ("t", False), ("A", []), ("F", {})):
        assert not matches({"a": value}, {"a": ("V", None)})


def test_integers_are_equal_in_every_width_and_never_to_booleans() -> None:
    for code in "bBsuIilT":
        assert matches({"a": ("I", 1)}, {"a": (code, 1)})
    assert matches({"a": ("I", 1)}, {"a": ("d", 1.0)})
    assert not matches({"a": ("I", 1)}, {"a": ("t", True)})
    assert not matches({"a": ("t", True)}, {"a": ("I", 1)})
    assert matches({"a": ("t", True)}, {"a": ("t", True)})
    assert not matches({"a": ("I", 1)}, {"a": ("S", b"1")})


def test_nested_tables_are_compared() -> None:
    nested: Field = ("F", {"list": ("A", [("S", b"x"), ("I", 1)]), "on": ("t", True)})
    same: Field = ("F", {"list": ("A", [("S", b"x"), ("I", 1)]), "on": ("t", True)})
    other: Field = ("F", {"list": ("A", [("S", b"x"), ("I", 2)]), "on": ("t", True)})
    assert matches({"a": nested}, {"a": same})
    assert not matches({"a": nested}, {"a": other})


def test_bindings_with_equal_arguments_share_a_pattern_and_each_gets_the_message() -> None:
    exchange = headers_exchange()
    for number in range(3):
        exchange.bind(binding({"a": ("I", 1)}, f"q{number}"))
    assert len(exchange.patterns) == 1
    assert exchange.matches("", {"a": ("I", 1)}) == [(QUEUE, "q0"), (QUEUE, "q1"), (QUEUE, "q2")]
    exchange.unbind(binding({"a": ("I", 1)}, "q1"))
    assert exchange.matches("", {"a": ("I", 1)}) == [(QUEUE, "q0"), (QUEUE, "q2")]


def test_a_binding_with_not_a_number_can_be_unbound() -> None:
    exchange = headers_exchange()
    assert exchange.bind(binding({"a": ("d", float("nan"))}))
    assert not exchange.bind(binding({"a": ("d", float("nan"))}))
    assert exchange.unbind(binding({"a": ("d", float("nan"))}))
    assert not exchange.has_bindings
    assert (exchange.index, exchange.patterns, exchange.always) == ({}, {}, {})


@pytest.mark.parametrize(
    ("x_match", "explanation"),
    [
        (
            ("S", b"most"),
            'Invalid x-match field value <<"most">>; expected all, any, all-with-x, or any-with-x',
        ),
        (("S", b""), "Invalid x-match field value <<>>; expected all, any, all-with-x, or any-with-x"),
        (("t", True), "Invalid x-match field type bool (value true); expected longstr"),
        (("I", 5), "Invalid x-match field type signedint (value 5); expected longstr"),
        (("x", b"all"), 'Invalid x-match field type binary (value <<"all">>); expected longstr'),
        (("V", None), "Invalid x-match field type void (value undefined); expected longstr"),
    ],
)
def test_a_bad_x_match_is_refused_in_rabbitmqs_words(x_match: Field, explanation: str) -> None:
    exchange = headers_exchange()
    with pytest.raises(ChannelException) as refused:
        exchange.bind(binding({"x-match": x_match, "a": ("I", 1)}))
    assert refused.value.reply_code == 406
    assert refused.value.reply_text == f"PRECONDITION_FAILED - {explanation}"
    assert not exchange.has_bindings
    assert exchange.matches("", {"a": ("I", 1)}) == []
