"""Routing over several exchanges: bindings between them, cycles, alternates, several routing keys."""

from __future__ import annotations

from collections.abc import ItemsView

from hypothesis import given
from hypothesis import strategies as st

from penstock.fields import Field, Table
from penstock.routing.bindings import EXCHANGE, QUEUE, Binding
from penstock.routing.factory import make_exchange, make_predeclared
from penstock.routing.router import Router


class House:
    """A vhost's exchanges, with short ways to declare and bind."""

    def __init__(self) -> None:
        self.exchanges = make_predeclared()
        self.router = Router(self.exchanges)

    def declare(self, name: str, type_name: str = "direct", alternate: str | None = None) -> None:
        arguments: Table = {} if alternate is None else {"alternate-exchange": ("S", alternate.encode())}
        self.exchanges[name] = make_exchange(type_name, name, False, False, False, arguments)

    def bind(self, source: str, kind: str, name: str, key: str = "", arguments: Table | None = None) -> None:
        self.exchanges[source].bind(Binding(source, (kind, name), key, arguments or {}))

    def unbind(self, source: str, kind: str, name: str, key: str = "") -> None:
        self.exchanges[source].unbind(Binding(source, (kind, name), key, {}))

    def route(self, exchange: str, *keys: str, headers: Table | None = None) -> list[str]:
        return self.router.route(self.exchanges[exchange], list(keys), headers)

    def needs_headers(self, exchange: str) -> bool:
        return self.router.needs_headers(self.exchanges[exchange])


class CountingHeaders(dict[str, Field]):
    """Headers that count how often they are read through."""

    readings = 0

    def items(self) -> ItemsView[str, Field]:
        self.readings += 1
        return super().items()


def test_queues_are_named_once_in_the_order_of_their_bindings() -> None:
    house = House()
    house.declare("x")
    for queue in ("q2", "q1", "q3"):
        house.bind("x", QUEUE, queue, "k")
    assert house.route("x", "k") == ["q2", "q1", "q3"]
    assert house.route("x", "other") == []


def test_the_default_exchange_names_a_queue_for_each_key_once() -> None:
    house = House()
    assert house.route("", "q") == ["q"]
    assert house.route("", "q", "r", "q") == ["q", "r"]


def test_several_routing_keys_reach_the_queues_of_all_of_them_once() -> None:
    house = House()
    house.declare("x", "topic")
    house.bind("x", QUEUE, "q1", "a.*")
    house.bind("x", QUEUE, "q2", "b.#")
    house.bind("x", QUEUE, "q1", "#.c")
    assert house.route("x", "a.c", "b", "nothing", "b.c") == ["q1", "q2"]


def test_messages_pass_from_exchange_to_exchange_with_their_key() -> None:
    house = House()
    house.declare("a", "fanout")
    house.declare("b", "topic")
    house.declare("c", "direct")
    house.bind("a", EXCHANGE, "b")
    house.bind("b", EXCHANGE, "c", "logs.#")
    house.bind("a", QUEUE, "qa")
    house.bind("b", QUEUE, "qb", "*.error")
    house.bind("c", QUEUE, "qc", "logs.error")
    assert house.route("a", "logs.error") == ["qa", "qb", "qc"]
    assert house.route("a", "logs.info") == ["qa"]
    house.unbind("a", EXCHANGE, "b")
    assert house.route("a", "logs.error") == ["qa"]


def test_a_queue_reached_by_two_ways_is_named_once() -> None:
    house = House()
    for name in ("top", "left", "right"):
        house.declare(name, "fanout")
    house.bind("top", EXCHANGE, "left")
    house.bind("top", EXCHANGE, "right")
    house.bind("left", QUEUE, "q")
    house.bind("right", QUEUE, "q")
    house.bind("top", QUEUE, "q")
    assert house.route("top", "") == ["q"]


def test_cycles_end() -> None:
    house = House()
    for name in ("a", "b", "c"):
        house.declare(name, "fanout")
        house.bind(name, QUEUE, f"q{name}")
    house.bind("a", EXCHANGE, "b")
    house.bind("b", EXCHANGE, "c")
    house.bind("c", EXCHANGE, "a")
    house.bind("a", EXCHANGE, "a")
    assert house.route("a", "") == ["qa", "qb", "qc"]
    assert house.route("b", "") == ["qb", "qc", "qa"]
    assert not house.needs_headers("a")


def test_a_binding_to_an_exchange_that_is_gone_leads_nowhere() -> None:
    house = House()
    house.declare("a", "fanout")
    house.declare("b", "fanout")
    house.bind("a", EXCHANGE, "b")
    house.bind("a", QUEUE, "qa")
    house.bind("b", QUEUE, "qb")
    del house.exchanges["b"]
    assert house.route("a", "") == ["qa"]


def test_the_alternate_is_asked_only_when_nothing_matched() -> None:
    house = House()
    house.declare("x", "direct", alternate="spare")
    house.declare("spare", "fanout")
    house.bind("x", QUEUE, "q", "k")
    house.bind("spare", QUEUE, "lost")
    assert house.route("x", "k") == ["q"]
    assert house.route("x", "other") == ["lost"]
    assert house.route("x", "other", "k") == ["q"]
    assert house.route("x", "other", "another") == ["lost"]


def test_alternates_are_chained() -> None:
    house = House()
    house.declare("a", "direct", alternate="b")
    house.declare("b", "topic", alternate="c")
    house.declare("c", "fanout")
    house.bind("b", QUEUE, "qb", "b.#")
    house.bind("c", QUEUE, "qc")
    assert house.route("a", "b.1") == ["qb"]
    assert house.route("a", "z") == ["qc"]


def test_a_missing_or_empty_alternate_drops_the_message() -> None:
    house = House()
    house.declare("a", "direct", alternate="missing")
    house.declare("b", "direct", alternate="")
    house.declare("c", "direct", alternate="deaf")
    house.declare("deaf", "fanout")
    assert house.route("a", "k") == []
    assert house.route("b", "k") == []
    assert house.route("c", "k") == []


def test_alternates_that_point_at_each_other_end() -> None:
    house = House()
    house.declare("a", "direct", alternate="b")
    house.declare("b", "direct", alternate="a")
    house.declare("self", "direct", alternate="self")
    assert house.route("a", "k") == []
    assert house.route("self", "k") == []
    assert not house.needs_headers("a")


def test_an_exchange_on_the_way_asks_its_own_alternate() -> None:
    house = House()
    house.declare("top", "fanout", alternate="top spare")
    house.declare("middle", "direct", alternate="middle spare")
    for name in ("top spare", "middle spare"):
        house.declare(name, "fanout")
        house.bind(name, QUEUE, f"q {name}")
    house.bind("top", EXCHANGE, "middle")
    house.bind("middle", QUEUE, "q", "k")
    assert house.route("top", "k") == ["q"]
    assert house.route("top", "other") == ["q middle spare"]


def test_a_match_that_leads_nowhere_is_a_match_and_the_alternate_is_not_asked() -> None:
    house = House()
    house.declare("top", "fanout", alternate="spare")
    house.declare("middle", "direct")
    house.declare("spare", "fanout")
    house.bind("top", EXCHANGE, "middle")
    house.bind("spare", QUEUE, "lost")
    assert house.route("top", "k") == []


def test_headers_are_seen_by_exchanges_behind_others() -> None:
    house = House()
    house.declare("a", "fanout")
    house.bind("a", EXCHANGE, "amq.headers")
    house.bind("amq.headers", QUEUE, "q", "", {"kind": ("S", b"x")})
    assert house.route("a", "k", headers={"kind": ("S", b"x")}) == ["q"]
    assert house.route("a", "k", headers={"kind": ("S", b"y")}) == []
    assert house.route("a", "k") == []


def test_whether_headers_matter_is_known_through_bindings_and_alternates() -> None:
    house = House()
    house.declare("a", "fanout")
    house.declare("b", "direct")
    house.declare("c", "topic")
    assert not house.needs_headers("")
    assert not house.needs_headers("a")
    assert house.needs_headers("amq.match")
    house.bind("a", EXCHANGE, "b")
    house.bind("b", EXCHANGE, "c", "k")
    assert not house.needs_headers("a")
    house.exchanges["c"].alternate = "amq.headers"
    assert house.needs_headers("a")
    house.exchanges["c"].alternate = "missing"
    assert not house.needs_headers("a")
    house.bind("c", EXCHANGE, "amq.match", "#")
    assert house.needs_headers("a")
    house.unbind("b", EXCHANGE, "c", "k")
    assert not house.needs_headers("a")


def test_an_exchange_that_ignores_the_key_is_asked_once_for_all_keys() -> None:
    house = House()
    house.bind("amq.headers", QUEUE, "q", "", {"kind": ("S", b"x")})
    headers = CountingHeaders(kind=("S", b"x"))
    assert house.route("amq.headers", *[f"key {number}" for number in range(100)], headers=headers) == ["q"]
    assert headers.readings == 1


names = st.sampled_from(["a", "b", "c", "d"])
graphs = st.lists(st.tuples(names, st.sampled_from([QUEUE, EXCHANGE]), names, st.sampled_from("kl")), max_size=12)
alternates = st.dictionaries(names, names | st.just("missing"))


@given(graphs, alternates, names, st.lists(st.sampled_from("klm"), min_size=1, max_size=3))
def test_any_graph_of_direct_exchanges_is_routed_as_reachability_says(
    edges: list[tuple[str, str, str, str]], spare: dict[str, str], start: str, keys: list[str]
) -> None:
    house = House()
    for name in "abcd":
        house.declare(name, "direct", alternate=spare.get(name))
    for source, kind, name, key in edges:
        house.bind(source, kind, name, key)
    reached = {start}
    queues: set[str] = set()
    for _ in "abcd":
        for source in sorted(reached):
            matched = [(kind, name) for s, kind, name, key in edges if s == source and key in keys]
            reached |= {name for kind, name in matched if kind == EXCHANGE}
            queues |= {name for kind, name in matched if kind == QUEUE}
            if not matched and spare.get(source, "missing") != "missing":
                reached.add(spare[source])
    found = house.route(start, *keys)
    assert set(found) == queues
    assert len(found) == len(queues)
