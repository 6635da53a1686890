"""Exchanges of a vhost: declared, redeclared, deleted, and gone with their last binding."""

from __future__ import annotations

import sys

import pytest
from vhost_house import House, check_refused

from penstock import limits
from penstock.errors import ChannelException, ConnectionException
from penstock.fields import Table
from penstock.routing.factory import INNER_TYPES, PREDECLARED


@pytest.fixture
def house() -> House:
    return House()


def alternate(name: str) -> Table:
    return {"alternate-exchange": ("S", name.encode())}


# --- declaring ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", INNER_TYPES)
def test_an_exchange_is_declared_as_it_was_asked_for(house: House, type_name: str) -> None:
    house.exchange("x", type_name, True, True, True, alternate("a"))
    exchange = house.vhost.exchange("x")
    assert (exchange.type_name, exchange.durable, exchange.auto_delete, exchange.internal) == (
        type_name,
        True,
        True,
        True,
    )
    assert exchange.alternate == "a"


def test_declaring_it_again_alike_changes_nothing(house: House) -> None:
    house.exchange("x", arguments=alternate("a"))
    exchange, version = house.vhost.exchange("x"), house.vhost.topology_version
    house.exchange("x", arguments={**alternate("a"), "x-other": ("I", 5)})
    assert house.vhost.exchange("x") is exchange
    assert house.vhost.topology_version == version


@pytest.mark.parametrize(
    ("attribute", "changed", "received", "current"),
    [
        ("type", {"type_name": "topic"}, "topic", "direct"),
        ("durable", {"durable": True}, "true", "false"),
        ("auto_delete", {"auto_delete": True}, "true", "false"),
        ("internal", {"internal": True}, "true", "false"),
    ],
)
def test_declaring_it_again_otherwise_is_refused(
    house: House, attribute: str, changed: dict[str, bool], received: str, current: str
) -> None:
    house.exchange("x")
    check_refused(
        f"PRECONDITION_FAILED - inequivalent arg '{attribute}' for exchange 'x' in vhost '/':"
        f" received '{received}' but current is '{current}'",
        lambda: house.exchange("x", **changed),
    )


@pytest.mark.parametrize(
    ("first", "second", "received", "current"),
    [
        ({}, alternate("a"), "the value 'a' of type 'longstr'", "none"),
        (alternate("a"), {}, "none", "the value 'a' of type 'longstr'"),
        (alternate("a"), alternate("b"), "'b'", "'a'"),
        (alternate(""), {}, "none", "the value '' of type 'longstr'"),
        ({}, {"alternate-exchange": ("I", 5)}, "the value '5' of type 'signedint'", "none"),
    ],
)
def test_another_alternate_exchange_is_refused(
    house: House, first: Table, second: Table, received: str, current: str
) -> None:
    house.exchange("x", arguments=first)
    check_refused(
        "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '/':"
        f" received {received} but current is {current}",
        lambda: house.exchange("x", arguments=second),
    )


def test_an_alternate_exchange_is_named_by_a_string(house: House) -> None:
    check_refused(
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'",
        lambda: house.exchange("x", arguments={"alternate-exchange": ("I", 5)}),
    )
    assert house.declared() == set()


@pytest.mark.parametrize("name", ["new", "x", "amq.new", "amq.direct"])
def test_an_unknown_type_closes_the_connection_whatever_is_wrong_besides(house: House, name: str) -> None:
    house.exchange("x")
    broken: Table = {"alternate-exchange": ("I", 5)}
    with pytest.raises(ConnectionException) as refused:
        house.exchange(name, "nonsense", arguments=broken)
    assert refused.value.reply_text == "COMMAND_INVALID - unknown exchange type 'nonsense'"
    check_refused("COMMAND_INVALID - invalid exchange type ''", lambda: house.exchange(name, "", arguments=broken))


def test_reserved_names_are_refused_before_arguments_are_looked_at(house: House) -> None:
    check_refused(
        "ACCESS_REFUSED - exchange name 'amq.new' contains reserved prefix 'amq.*'",
        lambda: house.exchange("amq.new", arguments={"alternate-exchange": ("I", 5)}),
    )


def test_a_predeclared_exchange_may_be_declared_as_it_is(house: House) -> None:
    for name, type_name, internal in PREDECLARED[1:]:
        house.exchange(name, type_name, durable=True, internal=internal)
    assert house.vhost.topology_version == 0
    check_refused(
        "PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'amq.direct' in vhost '/':"
        " received 'false' but current is 'true'",
        lambda: house.exchange("amq.direct", "direct"),
    )


def test_an_unknown_exchange_is_not_found(house: House) -> None:
    text = "NOT_FOUND - no exchange 'nowhere' in vhost '/'"
    check_refused(text, lambda: house.vhost.exchange("nowhere"))
    check_refused(text, lambda: house.vhost.check_publish("nowhere"))
    check_refused(text, lambda: house.route("nowhere", "k"))


def test_nobody_publishes_to_an_internal_exchange(house: House) -> None:
    house.exchange("x", internal=True)
    house.exchange("y")
    house.vhost.check_publish("y")
    check_refused(
        "ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'",
        lambda: house.vhost.check_publish("x"),
    )


def test_a_vhost_has_so_many_exchanges_and_no_more(house: House) -> None:
    for number in range(limits.EXCHANGES_PER_VHOST_MAX - len(PREDECLARED)):
        house.exchange(f"x{number}", "fanout")
    with pytest.raises(ChannelException, match=f"has its {limits.EXCHANGES_PER_VHOST_MAX} exchanges already"):
        house.exchange("one too many")
    house.exchange("x0", "fanout")
    house.delete_exchange("x0")
    house.exchange("another")
    assert len(house.vhost.exchanges) == limits.EXCHANGES_PER_VHOST_MAX


# --- deleting -------------------------------------------------------------------------------------------


def test_an_exchange_goes_with_the_bindings_from_and_to_it(house: House) -> None:
    house.queue("q")
    for name in ("a", "b", "c"):
        house.exchange(name, "fanout")
    house.link("a", "b")
    house.link("b", "c")
    house.bind("b", "q")
    house.link("b", "b")
    house.delete_exchange("b")
    house.check_registries()
    assert not house.vhost.exchange("a").has_bindings
    house.exchange("b", "fanout")
    assert house.route("a") == []
    assert house.route("b") == []


def test_an_unknown_exchange_is_deleted_already(house: House) -> None:
    house.delete_exchange("nowhere")
    house.delete_exchange("nowhere", if_unused=True)
    assert house.vhost.topology_version == 0


@pytest.mark.parametrize("name", ["amq.topic", "amq.mine"])
def test_system_exchanges_are_not_deleted(house: House, name: str) -> None:
    check_refused(
        f"ACCESS_REFUSED - deletion of system exchange '{name}' in vhost '/' not allowed",
        lambda: house.delete_exchange(name),
    )


def test_the_default_exchange_is_left_alone(house: House) -> None:
    house.queue("q")
    refusal = "ACCESS_REFUSED - operation not permitted on the default exchange"
    check_refused(refusal, lambda: house.delete_exchange(""))
    check_refused(refusal, lambda: house.bind("", "q", "k"))
    check_refused(refusal, lambda: house.unbind("", "q", "q"))
    assert house.route("", "q") == ["q"]
    house.check_registries()


def test_if_unused_looks_at_bindings_from_the_exchange_only(house: House) -> None:
    house.queue("q")
    house.exchange("x", "fanout")
    house.exchange("y", "fanout")
    house.link("x", "y")
    check_refused(
        "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use", lambda: house.delete_exchange("x", if_unused=True)
    )
    house.delete_exchange("y", if_unused=True)
    house.delete_exchange("x", if_unused=True)
    assert house.declared() == set()


# --- auto-delete ----------------------------------------------------------------------------------------


def test_an_auto_delete_exchange_goes_with_its_last_binding_and_stays_before_its_first(house: House) -> None:
    house.queue("q")
    house.exchange("x", auto_delete=True)
    house.bind("x", "q", "a")
    house.bind("x", "q", "b")
    house.unbind("x", "q", "a")
    assert house.declared() == {"x"}
    house.unbind("x", "q", "never bound")
    assert house.declared() == {"x"}
    house.unbind("x", "q", "b")
    assert house.declared() == set()
    house.check_registries()


def test_an_auto_delete_exchange_that_was_never_bound_survives_an_unbind(house: House) -> None:
    house.queue("q")
    house.exchange("x", auto_delete=True)
    house.unbind("x", "q", "k")
    assert house.declared() == {"x"}


def test_an_auto_delete_exchange_goes_with_its_last_queue(house: House) -> None:
    house.queue("q")
    house.queue("r")
    house.exchange("x", "fanout", auto_delete=True)
    house.bind("x", "q")
    house.bind("x", "q", "other key")
    house.bind("x", "r")
    house.delete_queue("q")
    assert house.declared() == {"x"}
    house.delete_queue("r")
    assert house.declared() == set()
    house.check_registries()


def test_being_a_destination_does_not_keep_an_auto_delete_exchange(house: House) -> None:
    house.queue("q")
    house.exchange("source", "fanout")
    house.exchange("x", "fanout", auto_delete=True)
    house.link("source", "x")
    house.bind("x", "q")
    house.unbind("x", "q")
    assert house.declared() == {"source"}
    assert not house.vhost.exchange("source").has_bindings
    house.check_registries()


def test_auto_delete_exchanges_in_a_row_go_together(house: House) -> None:
    house.queue("q")
    for name in ("a", "b", "c"):
        house.exchange(name, "fanout", auto_delete=True)
    house.exchange("stays", "fanout")
    house.link("stays", "a")
    house.link("a", "b")
    house.link("b", "c")
    house.bind("c", "q")
    house.delete_queue("q")
    assert house.declared() == {"stays"}
    house.check_registries()


def test_auto_delete_exchanges_that_lead_to_each_other_keep_each_other(house: House) -> None:
    house.queue("q")
    for name in ("a", "b"):
        house.exchange(name, "fanout", auto_delete=True)
    house.link("a", "b")
    house.link("b", "a")
    house.bind("a", "q")
    house.delete_queue("q")
    assert house.declared() == {"a", "b"}
    house.unlink("b", "a")
    assert house.declared() == set()
    house.check_registries()


def test_an_auto_delete_exchange_with_two_ways_to_what_is_deleted_goes_once(house: House) -> None:
    house.queue("q")
    for name in ("top", "left", "right"):
        house.exchange(name, "fanout", auto_delete=True)
    house.link("top", "left")
    house.link("top", "right")
    house.bind("left", "q")
    house.bind("right", "q")
    house.delete_queue("q")
    assert house.declared() == set()
    house.check_registries()


def test_a_long_row_of_auto_delete_exchanges_does_not_exhaust_the_stack(house: House) -> None:
    count = 2 * sys.getrecursionlimit()
    house.queue("q")
    for number in range(count):
        house.exchange(f"x{number}", "fanout", auto_delete=True)
        if number:
            house.link(f"x{number}", f"x{number - 1}")
    house.bind("x0", "q")
    house.delete_queue("q")
    assert house.declared() == set()
    house.check_registries()
