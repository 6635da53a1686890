"""Definitions: what is written down comes back, applying is idempotent, and rubbish is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.definitions import definitions as defs
from penstock.broker.definitions.definitions import (
    CHANGE_BYTES_MAX,
    BadDefinitions,
    Definitions,
    ExchangeDefinition,
    Json,
    QueueDefinition,
    encode_all,
    encode_change,
    vhost_whole,
)
from penstock.broker.definitions.field_json import table_from_json, table_to_json
from penstock.fields import Field, Table, freeze_table
from penstock.limits import TABLE_DEPTH_MAX
from penstock.routing.bindings import EXCHANGE, QUEUE, Binding, Destination

VHOST_ID = "0123456789abcdef"
QUEUE_ID = "fedcba9876543210"

scalars = st.one_of(
    st.tuples(st.just("t"), st.booleans()),
    st.tuples(st.sampled_from("bBsuIilT"), st.integers(-(2**63), 2**64 - 1)),
    st.tuples(st.sampled_from("fd"), st.floats(allow_nan=False)),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(-(2**31), 2**31 - 1))),
    st.tuples(st.sampled_from("Sx"), st.binary(max_size=20)),
    st.just(("V", None)),
)
# Names of fields may hold octets that are not UTF-8, as lone surrogates.
field_names = st.text(st.characters() | st.sampled_from("\udc80\udcff"), max_size=8)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.tuples(st.just("A"), st.lists(inner, max_size=4))
    return lists | st.tuples(st.just("F"), st.dictionaries(field_names, inner, max_size=4))


fields = st.recursive(scalars, nested, max_leaves=10)
tables = st.dictionaries(field_names, fields, max_size=5)


def through_json(table: Table) -> Table:
    return table_from_json(json.loads(encode_change(table_to_json(table))))


@given(tables)
def test_a_table_comes_back_as_it_was(table: Table) -> None:
    back = through_json(table)
    assert back == table
    assert list(back) == list(table)
    assert freeze_table(back) == freeze_table(table)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-0.0", "5e-324", "1.7976931348623157e308"])
def test_every_float_comes_back(text: str) -> None:
    (back,) = through_json({"x": ("d", float(text))}).values()
    assert repr(back) == repr(("d", float(text)))


def deep(levels: int) -> Field:
    field: Field = ("V", None)
    for _ in range(levels):
        field = ("A", [field])
    return field


def test_tables_as_deep_as_the_wire_allows_come_back_and_deeper_ones_are_refused() -> None:
    table = {"x": deep(TABLE_DEPTH_MAX)}
    assert through_json(table) == table
    with pytest.raises(ValueError, match="not a"):
        through_json({"x": deep(TABLE_DEPTH_MAX + 2)})


@pytest.mark.parametrize(
    "data",
    [
        5,
        [],
        {"x": 5},
        {"x": ["S"]},
        {"x": ["?", 5]},
        {"x": ["t", 1]},
        {"x": ["I", True]},
        {"x": ["I", 1.5]},
        {"x": ["S", 5]},
        {"x": ["S", {"hex": "zz"}]},
        {"x": ["S", {"hex": 5}]},
        {"x": ["D", [1]]},
        {"x": ["D", 5]},
        {"x": ["d", []]},
        {"x": ["d", "ten"]},
        {"x": ["A", {}]},
        {"x": ["F", []]},
        {"x": ["V", 0]},
    ],
)
def test_what_is_not_a_table_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"not|hex|convert"):
        table_from_json(data)


# --- changes ------------------------------------------------------------------------------------------


def exchange(name: str, **arguments: Field) -> ExchangeDefinition:
    return ExchangeDefinition(name, "topic", True, False, dict(arguments))


def queue(name: str, queue_id: str = QUEUE_ID) -> QueueDefinition:
    return QueueDefinition(name, queue_id, False, {"x-max-length": ("I", 5)})


def binding(source: str, to: Destination, key: str = "key", arguments: Table | None = None) -> Binding:
    return Binding(source, to, key, arguments or {})


CHANGES: list[Json] = [
    defs.vhost_declared("/", VHOST_ID),
    defs.exchange_declared("/", exchange("x", **{"alternate-exchange": ("S", b"y")})),
    defs.exchange_declared("/", exchange("y")),
    defs.queue_declared("/", queue("q")),
    defs.queue_declared("/", queue("r", QUEUE_ID + "00")),
    defs.bound("/", binding("x", (QUEUE, "q"))),
    defs.bound("/", binding("x", (QUEUE, "q"), arguments={"a": ("I", 1)})),
    defs.bound("/", binding("amq.topic", (QUEUE, "r"), "schl\udcfcssel")),
    defs.bound("/", binding("x", (EXCHANGE, "y"))),
    defs.bound("/", binding("y", (QUEUE, "r"))),
]


def applied(*changes: Json) -> Definitions:
    definitions = Definitions()
    for change in changes:
        definitions.apply(encode_change(change))
    return definitions


def summary(definitions: Definitions) -> object:
    return {
        name: (vhost.vhost_id, vhost.exchanges, vhost.queues, set(vhost.bindings))
        for name, vhost in definitions.vhosts.items()
    }


def written(definitions: Definitions) -> bytes:
    pieces = encode_all(
        [
            vhost_whole(
                vhost.name,
                vhost.vhost_id,
                vhost.exchanges.values(),
                vhost.queues.values(),
                vhost.bindings.values(),
            )
            for vhost in definitions.vhosts.values()
        ]
    )
    return b"".join(pieces)


def test_changes_build_what_they_say() -> None:
    vhost = applied(*CHANGES).vhosts["/"]
    assert vhost.vhost_id == VHOST_ID
    assert vhost.exchanges["x"] == exchange("x", **{"alternate-exchange": ("S", b"y")})
    assert vhost.queues["q"] == queue("q")
    assert len(vhost.bindings) == 5


def test_the_whole_comes_back_as_it_was() -> None:
    definitions = applied(*CHANGES)
    back = Definitions()
    back.load(written(definitions))
    assert summary(back) == summary(definitions)


def test_changes_that_are_applied_again_change_nothing() -> None:
    once = applied(*CHANGES)
    again = Definitions()
    again.load(written(once))
    for change in CHANGES:
        again.apply(encode_change(change))
        again.apply(encode_change(change))
    assert summary(again) == summary(once)


DELETIONS: list[tuple[Json, set[str], set[str], int]] = [
    (defs.exchange_deleted("/", "x"), {"y"}, {"q", "r"}, 2),
    (defs.exchange_deleted("/", "y"), {"x"}, {"q", "r"}, 3),
    (defs.queue_deleted("/", "q"), {"x", "y"}, {"r"}, 3),
    (defs.queue_deleted("/", "r"), {"x", "y"}, {"q"}, 3),
    (defs.exchange_deleted("/", "unknown"), {"x", "y"}, {"q", "r"}, 5),
    (defs.queue_deleted("/", "unknown"), {"x", "y"}, {"q", "r"}, 5),
    (defs.unbound("/", binding("x", (QUEUE, "q"), arguments={"a": ("I", 1)})), {"x", "y"}, {"q", "r"}, 4),
    (defs.unbound("/", binding("x", (QUEUE, "q"), arguments={"a": ("l", 1)})), {"x", "y"}, {"q", "r"}, 5),
]


@pytest.mark.parametrize(("deletion", "exchanges", "queues", "bindings"), DELETIONS)
def test_a_deletion_takes_its_bindings_along(
    deletion: Json, exchanges: set[str], queues: set[str], bindings: int
) -> None:
    for times in (1, 2):
        vhost = applied(*CHANGES, *[deletion] * times).vhosts["/"]
        assert (set(vhost.exchanges), set(vhost.queues), len(vhost.bindings)) == (exchanges, queues, bindings)


def test_what_was_deleted_and_declared_again_has_its_new_id_and_no_old_bindings() -> None:
    changes = [*CHANGES, defs.queue_deleted("/", "q"), defs.queue_declared("/", queue("q", "a" * 32))]
    for definitions in (applied(*changes), applied(*changes, *changes)):
        vhost = definitions.vhosts["/"]
        assert vhost.queues["q"].queue_id == "a" * 32
        assert not [each for each in vhost.bindings.values() if each.destination == (QUEUE, "q")]


def test_keys_that_a_later_version_adds_are_passed_over() -> None:
    later = [{**change, "shiny": [1]} for change in CHANGES]
    assert summary(applied(*later)) == summary(applied(*CHANGES))
    whole = json.loads(written(applied(*CHANGES)))
    whole["shiny"] = whole["vhosts"][0]["shiny"] = whole["vhosts"][0]["queues"][0]["shiny"] = {}
    back = Definitions()
    back.load(json.dumps(whole).encode())
    assert summary(back) == summary(applied(*CHANGES))


BAD_CHANGES: list[bytes] = [
    b"",
    b"not json",
    b"[]",
    b"{}",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"kind": "dance"}',
    b'{"kind": []}',
    b'{"kind": "vhost", "name": "v", "id": "../../etc"}',
    b'{"kind": "vhost", "name": "v", "id": ""}',
    b'{"kind": "vhost", "name": "v", "id": "ABCDEF0123"}',
    b'{"kind": "vhost", "name": 5, "id": "0123456789"}',
    encode_change(defs.queue_declared("nowhere", queue("q"))),
    encode_change({**CHANGES[3], "id": "x/y"}),
    encode_change({**CHANGES[3], "id": "a" * 65}),
    encode_change({**CHANGES[3], "auto_delete": 1}),
    encode_change({**CHANGES[3], "arguments": []}),
    encode_change({**CHANGES[3], "vhost": []}),
    encode_change({**CHANGES[5], "to": "moon"}),
    encode_change({**CHANGES[5], "key": None}),
    encode_change({**CHANGES[3], "name": "n" * CHANGE_BYTES_MAX}),
]


@pytest.mark.parametrize("text", BAD_CHANGES, ids=lambda text: text[:40].decode("latin-1"))
def test_a_change_that_is_not_understood_is_refused_and_changes_nothing(text: bytes) -> None:
    definitions = applied(*CHANGES)
    before = summary(definitions)
    with pytest.raises(BadDefinitions):
        definitions.apply(text)
    assert summary(definitions) == before


@pytest.mark.parametrize(
    "text", [b"", b"5", b"{}", b'{"vhosts": 5}', b'{"vhosts": [{"name": "v"}]}', b'{"vhosts": [5]}']
)
def test_a_whole_that_is_not_understood_is_refused(text: bytes) -> None:
    with pytest.raises(BadDefinitions):
        Definitions().load(text)


@given(st.binary(max_size=200))
def test_no_octets_do_more_than_being_refused(text: bytes) -> None:
    definitions = Definitions()
    for take in (definitions.apply, definitions.load):
        with suppress(BadDefinitions):
            take(text)
    assert definitions.vhosts == {}
