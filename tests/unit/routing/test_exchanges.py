"""What all exchanges have in common; direct, fanout and default exchanges; the factory."""

from __future__ import annotations

import pytest

from penstock.errors import ChannelException, ConnectionException
from penstock.fields import Table
from penstock.routing.bindings import EXCHANGE, QUEUE, Binding
from penstock.routing.default import DefaultExchange
from penstock.routing.exchange import Exchange
from penstock.routing.factory import INNER_TYPES, PREDECLARED, make_exchange, make_predeclared


def declare(type_name: str, arguments: Table | None = None) -> Exchange:
    return make_exchange(type_name, "x", False, False, False, arguments or {})


def to_queue(queue: str, routing_key: str = "k", arguments: Table | None = None) -> Binding:
    return Binding("x", (QUEUE, queue), routing_key, arguments or {})


def to_exchange(name: str, routing_key: str = "k") -> Binding:
    return Binding("x", (EXCHANGE, name), routing_key, {})


@pytest.mark.parametrize("type_name", INNER_TYPES)
def test_binding_twice_is_binding_once(type_name: str) -> None:
    exchange = declare(type_name)
    assert exchange.bind(to_queue("q"))
    assert not exchange.bind(to_queue("q"))
    assert len(exchange.bindings()) == 1
    assert exchange.matches("k", {}) == [(QUEUE, "q")]
    assert exchange.unbind(to_queue("q"))
    assert not exchange.has_bindings
    assert exchange.matches("k", {}) == []


@pytest.mark.parametrize("type_name", INNER_TYPES)
def test_unbinding_what_never_was_changes_nothing(type_name: str) -> None:
    exchange = declare(type_name)
    exchange.bind(to_queue("q"))
    assert not exchange.unbind(to_queue("r"))
    assert not exchange.unbind(to_queue("q", "other"))
    assert not exchange.unbind(to_queue("q", "k", {"a": ("I", 1)}))
    assert exchange.matches("k", {}) == [(QUEUE, "q")]


@pytest.mark.parametrize("type_name", INNER_TYPES)
def test_unbinding_finds_the_binding_whatever_the_order_of_its_arguments(type_name: str) -> None:
    exchange = declare(type_name)
    exchange.bind(to_queue("q", "k", {"a": ("I", 1), "b": ("I", 2)}))
    assert exchange.unbind(to_queue("q", "k", {"b": ("I", 2), "a": ("I", 1)}))
    assert not exchange.has_bindings


@pytest.mark.parametrize("type_name", INNER_TYPES)
def test_two_bindings_that_differ_in_arguments_are_one_destination(type_name: str) -> None:
    exchange = declare(type_name)
    one, other = to_queue("q", "k", {"a": ("I", 1)}), to_queue("q", "k", {"b": ("I", 1)})
    assert exchange.bind(one)
    assert exchange.bind(other)
    headers: Table = {"a": ("I", 1), "b": ("I", 1)}
    assert exchange.matches("k", headers) == [(QUEUE, "q")]
    assert exchange.unbind(one)
    assert exchange.matches("k", headers) == [(QUEUE, "q")]
    assert exchange.unbind(other)
    assert exchange.matches("k", headers) == []


@pytest.mark.parametrize("type_name", INNER_TYPES)
def test_bound_exchanges_are_known_until_their_last_binding_goes(type_name: str) -> None:
    exchange = declare(type_name)
    exchange.bind(to_exchange("y", "k"))
    exchange.bind(to_exchange("y", "l"))
    exchange.bind(to_queue("q"))
    assert exchange.exchange_targets() == ["y"]
    exchange.unbind(to_exchange("y", "k"))
    assert exchange.exchange_targets() == ["y"]
    exchange.unbind(to_exchange("y", "l"))
    assert exchange.exchange_targets() == []


@pytest.mark.parametrize("type_name", INNER_TYPES)
def test_an_answer_belongs_to_the_caller(type_name: str) -> None:
    exchange = declare(type_name)
    exchange.bind(to_queue("q"))
    exchange.matches("k", {}).clear()
    exchange.bindings().clear()
    assert exchange.matches("k", {}) == [(QUEUE, "q")]
    assert len(exchange.bindings()) == 1


def test_a_queue_and_an_exchange_of_one_name_are_two_destinations() -> None:
    exchange = declare("fanout")
    exchange.bind(to_queue("same"))
    exchange.bind(to_exchange("same"))
    assert exchange.matches("", None) == [(QUEUE, "same"), (EXCHANGE, "same")]


def test_a_direct_exchange_compares_the_whole_key() -> None:
    exchange = declare("direct")
    exchange.bind(to_queue("q1", "a"))
    exchange.bind(to_queue("q2", "a"))
    exchange.bind(to_queue("q3", "a.b"))
    exchange.bind(to_queue("q4", "#"))
    exchange.bind(to_queue("q5", ""))
    assert exchange.matches("a", None) == [(QUEUE, "q1"), (QUEUE, "q2")]
    assert exchange.matches("a.b", None) == [(QUEUE, "q3")]
    assert exchange.matches("", None) == [(QUEUE, "q5")]
    assert exchange.matches("A", None) == []


def test_a_fanout_exchange_names_each_destination_once() -> None:
    exchange = declare("fanout")
    exchange.bind(to_queue("q1", "a"))
    exchange.bind(to_queue("q1", "b"))
    exchange.bind(to_queue("q2", ""))
    assert exchange.matches("whatever", None) == [(QUEUE, "q1"), (QUEUE, "q2")]


def test_the_default_exchange_routes_to_the_queue_of_that_name() -> None:
    assert DefaultExchange().matches("some queue", None) == [(QUEUE, "some queue")]


def test_the_default_exchange_refuses_bindings() -> None:
    exchange = DefaultExchange()
    binding = Binding("", (QUEUE, "q"), "q", {})
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    with pytest.raises(ChannelException) as refused:
        exchange.bind(binding)
    assert (refused.value.reply_code, refused.value.reply_text) == (403, text)
    with pytest.raises(ChannelException) as refused:
        exchange.unbind(binding)
    assert (refused.value.reply_code, refused.value.reply_text) == (403, text)


def test_an_unknown_type_closes_the_connection() -> None:
    with pytest.raises(ConnectionException) as refused:
        declare("xyz")
    assert refused.value.reply_code == 503
    assert refused.value.reply_text == "COMMAND_INVALID - unknown exchange type 'xyz'"


@pytest.mark.parametrize("type_name", INNER_TYPES)
def test_an_exchange_is_what_was_declared(type_name: str) -> None:
    arguments: Table = {"alternate-exchange": ("S", b"other")}
    exchange = make_exchange(type_name, "x", True, True, True, arguments)
    assert (exchange.name, exchange.type_name) == ("x", type_name)
    assert (exchange.durable, exchange.auto_delete, exchange.internal) == (True, True, True)
    assert exchange.arguments == arguments
    assert exchange.alternate == "other"
    plain = make_exchange(type_name, "x", False, False, False, {})
    assert (plain.durable, plain.auto_delete, plain.internal) == (False, False, False)
    assert plain.alternate is None


def test_a_vhost_begins_with_the_exchanges_of_rabbitmq() -> None:
    exchanges = make_predeclared()
    assert {(x.name, x.type_name, x.internal) for x in exchanges.values()} == {
        ("", "direct", False),
        ("amq.direct", "direct", False),
        ("amq.fanout", "fanout", False),
        ("amq.headers", "headers", False),
        ("amq.match", "headers", False),
        ("amq.rabbitmq.trace", "topic", True),
        ("amq.topic", "topic", False),
    }
    assert list(exchanges) == [name for name, _, _ in PREDECLARED]
    for exchange in exchanges.values():
        assert exchange.durable
        assert not exchange.auto_delete
    assert exchanges["amq.match"] is not make_predeclared()["amq.match"]
