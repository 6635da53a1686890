"""Bindings of a vhost: registered at both ends, counted, and gone with either end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from vhost_house import Connection, House, check_refused

from penstock.errors import AmqpError
from penstock.fields import Table


@pytest.fixture
def house() -> House:
    house = House()
    house.queue("q")
    house.exchange("x")
    return house


def test_binding_twice_is_binding_once(house: House) -> None:
    house.bind("x", "q", "k")
    version = house.vhost.topology_version
    house.bind("x", "q", "k")
    assert house.vhost.topology_version == version
    assert house.route("x", "k") == ["q"]
    house.unbind("x", "q", "k")
    assert house.route("x", "k") == []
    house.check_registries()


def test_bindings_differ_by_key_and_by_arguments_with_their_types(house: House) -> None:
    arguments: list[Table] = [{}, {"a": ("I", 1)}, {"a": ("l", 1)}, {"a": ("I", 2)}]
    for given_arguments in arguments:
        house.bind("x", "q", "k", given_arguments)
    house.bind("x", "q", "other")
    house.check_registries()
    assert house.vhost._bindings_count == 5
    for given_arguments in arguments:
        assert house.route("x", "k") == ["q"]
        house.unbind("x", "q", "k", given_arguments)
    assert house.route("x", "k") == []


def test_the_order_of_arguments_does_not_make_another_binding(house: House) -> None:
    house.bind("x", "q", "k", {"a": ("I", 1), "b": ("I", 2)})
    house.unbind("x", "q", "k", {"b": ("I", 2), "a": ("I", 1)})
    assert house.route("x", "k") == []
    assert house.vhost._bindings_count == 0


def test_unbinding_what_is_not_there_is_fine(house: House) -> None:
    version = house.vhost.topology_version
    house.unbind("x", "q", "k")
    house.unbind("nowhere", "q", "k")
    house.unbind("x", "nowhere", "k")
    house.unlink("x", "nowhere")
    assert house.vhost.topology_version == version


def test_both_ends_must_be_there_and_the_source_is_named_first(house: House) -> None:
    check_refused(
        "NOT_FOUND - no exchange 'nowhere' in vhost '/'",
        lambda: house.vhost.bind_queue("nowhere", house.vhost.queues["q"], "k", {}),
    )
    check_refused("NOT_FOUND - no exchange 'nowhere' in vhost '/'", lambda: house.link("nowhere", "neither"))
    check_refused("NOT_FOUND - no exchange 'neither' in vhost '/'", lambda: house.link("x", "neither"))
    house.check_registries()


def test_a_refused_binding_leaves_no_trace(house: House) -> None:
    house.exchange("h", "headers")
    check_refused(
        'PRECONDITION_FAILED - Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x',
        lambda: house.bind("h", "q", "", {"x-match": ("S", b"some")}),
    )
    assert house.vhost._bindings_to == {}
    house.check_registries()


def test_a_queue_made_anew_has_no_bindings_of_the_one_before(house: House) -> None:
    house.bind("x", "q", "k")
    house.delete_queue("q")
    house.check_registries()
    house.queue("q")
    assert house.route("x", "k") == []


# --- any topology ---------------------------------------------------------------------------------------

QUEUES = ("q0", "q1", "q2")
EXCHANGES = ("x0", "x1", "x2", "x3")
KEYS = ("", "a", "a.b", "q0")
PATTERNS = ("", "a", "a.b", "#", "a.*")
HEADERS: tuple[Table | None, ...] = (None, {"h": ("I", 1)})
ARGUMENTS: tuple[Table, ...] = ({}, {"h": ("I", 1)}, {"x-match": ("S", b"any"), "h": ("V", None)})

step = st.one_of(
    st.tuples(st.just("queue"), st.sampled_from(QUEUES), st.booleans()),
    st.tuples(st.just("delete queue"), st.sampled_from(QUEUES)),
    st.tuples(
        st.just("exchange"),
        st.sampled_from(EXCHANGES),
        st.sampled_from(("direct", "fanout", "topic", "headers")),
        st.booleans(),
        st.sampled_from((None, *EXCHANGES)),
    ),
    st.tuples(st.just("delete exchange"), st.sampled_from(EXCHANGES), st.booleans()),
    st.tuples(
        st.sampled_from(("bind", "bind", "unbind")),
        st.sampled_from((*EXCHANGES, "amq.topic")),
        st.sampled_from(QUEUES),
        st.sampled_from(PATTERNS),
        st.sampled_from(ARGUMENTS),
    ),
    st.tuples(
        st.sampled_from(("link", "link", "unlink")),
        st.sampled_from(EXCHANGES),
        st.sampled_from(EXCHANGES),
        st.sampled_from(PATTERNS),
    ),
    st.tuples(st.just("owner leaves")),
)


class AnyTopology:
    """A vhost that is changed at random, and the answers of a publisher that remembers them."""

    def __init__(self) -> None:
        self.house = House()
        self.owner = Connection()
        self.remembered: dict[object, list[str]] = {}
        self.version = -1

    def change(self, what: str, *how: object) -> None:
        house = self.house
        if what == "queue":
            house.queue(str(how[0]), owner=self.owner if how[1] else None)
        elif what == "delete queue" and how[0] in house.vhost.queues:
            house.delete_queue(str(how[0]))
        elif what == "exchange":
            arguments: Table = {} if how[3] is None else {"alternate-exchange": ("S", str(how[3]).encode())}
            house.exchange(str(how[0]), str(how[1]), auto_delete=bool(how[2]), arguments=arguments)
        elif what == "delete exchange":
            house.delete_exchange(str(how[0]), if_unused=bool(how[1]))
        elif what == "bind" and how[1] in house.vhost.queues:
            house.bind(*how)
        elif what == "unbind":
            house.unbind(*how)
        elif what in ("link", "unlink"):
            (house.link if what == "link" else house.unlink)(*how)
        elif what == "owner leaves":
            house.vhost.connection_closed(self.owner)

    def fresh_routes(self) -> dict[object, list[str]]:
        """Where messages go now."""
        vhost = self.house.vhost
        return {
            (name, key, number): self.house.route(name, key, headers=headers)
            for name in vhost.exchanges
            for key in KEYS
            for number, headers in enumerate(HEADERS)
        }

    def check_remembered(self) -> None:
        """What was remembered for this version is still true, and for other headers where they do not matter."""
        vhost = self.house.vhost
        fresh = self.fresh_routes()
        if self.version == vhost.topology_version:
            assert fresh == self.remembered
        for name in vhost.exchanges:
            if not vhost.route_needs_headers(name):
                for key in KEYS:
                    assert len({tuple(fresh[name, key, number]) for number in range(len(HEADERS))}) == 1
        self.remembered, self.version = fresh, vhost.topology_version


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(step, min_size=5, max_size=30))
def test_remembered_routes_hold_until_the_topology_has_another_version(steps: list[tuple[object, ...]]) -> None:
    topology = AnyTopology()
    for what, *how in steps:
        version = topology.house.vhost.topology_version
        try:
            topology.change(str(what), *how)
        except AmqpError:
            # What is refused has changed nothing.
            assert topology.house.vhost.topology_version == version
        assert topology.house.vhost.topology_version >= version
        topology.check_remembered()
        topology.house.check_registries()
