"""Arguments of queues and exchanges. The texts are those of RabbitMQ 3.10.8, read off the wire."""

from __future__ import annotations

import pytest
from vhost_house import House, check_refused

from penstock.broker.definitions.arguments import queue_notes
from penstock.fields import Field, Table

TEN_YEARS_MS = 315_360_000_000


@pytest.fixture
def house() -> House:
    return House()


def longstr(text: str) -> Field:
    return ("S", text.encode())


# --- what is accepted -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("x-expires", ("I", 1)),
        ("x-expires", ("l", TEN_YEARS_MS)),
        ("x-message-ttl", ("I", 0)),
        ("x-message-ttl", ("l", 4294967296)),
        ("x-message-ttl", ("l", TEN_YEARS_MS)),
        ("x-max-length", ("I", 0)),
        ("x-max-length", ("l", 2**62)),
        ("x-max-length-bytes", ("I", 0)),
        ("x-max-priority", ("I", 0)),
        ("x-max-priority", ("B", 255)),
        ("x-dead-letter-exchange", longstr("anywhere")),
        ("x-dead-letter-exchange", longstr("")),
        ("x-overflow", longstr("drop-head")),
        ("x-overflow", longstr("reject-publish")),
        ("x-overflow", longstr("reject-publish-dlx")),
        ("x-queue-mode", longstr("default")),
        ("x-queue-mode", longstr("lazy")),
        ("x-queue-version", ("I", 1)),
        ("x-queue-version", ("I", 2)),
        ("x-single-active-consumer", ("t", True)),
        ("x-single-active-consumer", ("t", False)),
        ("x-queue-type", longstr("classic")),
        ("x-queue-master-locator", longstr("min-masters")),
        ("x-unheard-of", ("V", None)),
        ("anything", ("A", [("I", 1)])),
    ],
)
def test_an_argument_with_a_usable_value_is_accepted(house: House, name: str, field: Field) -> None:
    house.queue(arguments={name: field})
    assert house.vhost.queues["q"].arguments == {name: field}


@pytest.mark.parametrize("code", list("bBsuIil"))
def test_integers_of_every_width_are_integers(house: House, code: str) -> None:
    house.queue(arguments={"x-max-length": (code, 100)})
    assert "q" in house.vhost.queues


# --- what is not ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "field", "reason"),
    [
        ("x-expires", ("I", 0), "{value_zero,0}"),
        ("x-expires", ("I", -1), "{value_negative,-1}"),
        ("x-expires", longstr("a"), '"expected integer, got longstr"'),
        ("x-expires", ("t", True), '"expected integer, got bool"'),
        ("x-expires", ("l", TEN_YEARS_MS + 1), f"{{value_too_large,{TEN_YEARS_MS + 1}}}"),
        ("x-message-ttl", ("I", -1), "{value_negative,-1}"),
        ("x-message-ttl", longstr("a"), '"expected integer, got longstr"'),
        ("x-message-ttl", ("d", 1.5), '"expected integer, got double"'),
        ("x-message-ttl", ("T", 5), '"expected integer, got timestamp"'),
        ("x-message-ttl", ("l", TEN_YEARS_MS + 1), f"{{value_too_large,{TEN_YEARS_MS + 1}}}"),
        ("x-max-length", ("I", -5), "{value_negative,-5}"),
        ("x-max-length", longstr("a"), '"expected integer, got longstr"'),
        ("x-max-length-bytes", ("I", -1), "{value_negative,-1}"),
        ("x-max-length-bytes", ("A", []), '"expected integer, got array"'),
        ("x-max-priority", ("I", -1), "{value_negative,-1}"),
        ("x-max-priority", ("I", 256), "{max_value_exceeded,256}"),
        ("x-max-priority", longstr("a"), '"expected integer, got longstr"'),
        ("x-dead-letter-routing-key", longstr("k"), "routing_key_but_no_dlx_defined"),
        ("x-dead-letter-routing-key", ("I", 5), "{unacceptable_type,signedint}"),
        ("x-overflow", longstr("bad"), "invalid_overflow"),
        ("x-overflow", ("I", 5), "{unacceptable_type,signedint}"),
        ("x-queue-mode", longstr("bad"), "\"unsupported queue mode 'bad'\""),
        ("x-queue-mode", ("I", 5), "{unacceptable_type,signedint}"),
        ("x-queue-version", ("I", 0), "\"unsupported queue version '0'\""),
        ("x-queue-version", ("I", 3), "\"unsupported queue version '3'\""),
        ("x-queue-version", ("I", -1), "{value_negative,-1}"),
        ("x-queue-version", longstr("a"), '"expected integer, got longstr"'),
        ("x-single-active-consumer", ("I", 1), "{unacceptable_type,signedint}"),
        ("x-single-active-consumer", longstr("true"), "{unacceptable_type,longstr}"),
        ("x-queue-type", longstr("bad"), "\"unsupported queue type 'bad'\""),
        ("x-queue-type", ("I", 5), "{unacceptable_type,signedint}"),
    ],
)
def test_an_argument_with_an_unusable_value_is_refused(house: House, name: str, field: Field, reason: str) -> None:
    check_refused(
        f"PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/': {reason}",
        lambda: house.queue(arguments={name: field}),
    )
    assert house.vhost.queues == {}
    assert house.vhost.topology_version == 0


def test_a_dead_letter_exchange_that_is_no_string_has_a_text_of_its_own(house: House) -> None:
    check_refused(
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'",
        lambda: house.queue(arguments={"x-expires": ("I", 0), "x-dead-letter-exchange": ("I", 5)}),
    )


def test_a_routing_key_for_dead_letters_goes_with_an_exchange_for_them(house: House) -> None:
    exchange = longstr("d")
    house.queue(arguments={"x-dead-letter-routing-key": longstr("k"), "x-dead-letter-exchange": exchange})
    check_refused(
        "PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for queue 'r' in vhost '/':"
        " {unacceptable_type,signedint}",
        lambda: house.queue("r", arguments={"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": ("I", 5)}),
    )


def test_of_two_unusable_arguments_the_one_that_rabbitmq_checks_first_is_named(house: House) -> None:
    check_refused(
        "PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'q' in vhost '/': {value_zero,0}",
        lambda: house.queue(arguments={"x-max-length": ("I", -1), "x-expires": ("I", 0)}),
    )


@pytest.mark.parametrize(
    ("durable", "auto_delete", "exclusive", "fault"),
    [
        (False, False, False, "non-durable"),
        (True, True, False, "auto-delete"),
        (True, False, True, "exclusive-owner"),
        (False, True, True, "auto-delete"),
    ],
)
def test_a_quorum_queue_is_durable_shared_and_stays(
    house: House, durable: bool, auto_delete: bool, exclusive: bool, fault: str
) -> None:
    owner = House() if exclusive else None
    arguments: Table = {"x-queue-type": longstr("quorum")}
    check_refused(
        f"PRECONDITION_FAILED - invalid property '{fault}' for queue 'q' in vhost '/'",
        lambda: house.vhost.declare_queue("q", durable, auto_delete, owner, arguments),
    )
    house.queue(durable=True, arguments=arguments)
    assert house.vhost.queues["q"].durable


# --- redeclaring ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"x-max-length": ("I", 5)}, {"x-max-length": ("l", 5)}),
        ({"x-max-length": ("b", 5)}, {"x-max-length": ("i", 5)}),
        ({"x-colour": ("S", b"red")}, {"x-colour": ("S", b"blue")}),
        ({"x-colour": ("S", b"red")}, {}),
        ({}, {"x-queue-type": ("S", b"classic")}),
        ({"x-queue-type": ("S", b"classic")}, {}),
    ],
)
def test_a_queue_may_be_declared_again_with_equal_arguments(house: House, first: Table, second: Table) -> None:
    queue = house.queue(arguments=first)
    assert house.queue(arguments=second) is queue
    assert queue.arguments == first


@pytest.mark.parametrize(
    ("name", "first", "second", "received", "current"),
    [
        ("x-message-ttl", ("I", 5), ("I", 6), "'6'", "'5'"),
        ("x-message-ttl", ("I", 5), None, "none", "the value '5' of type 'signedint'"),
        ("x-message-ttl", None, ("I", 5), "the value '5' of type 'signedint'", "none"),
        ("x-max-length", ("I", 5), ("S", b"a"), "'a'", "'5'"),
        ("x-dead-letter-exchange", ("S", b"a"), ("I", 5), "'5'", "'a'"),
        ("x-single-active-consumer", ("t", True), ("t", False), "'false'", "'true'"),
        ("x-single-active-consumer", ("t", True), None, "none", "the value 'true' of type 'bool'"),
        ("x-queue-mode", ("S", b"lazy"), ("S", b"default"), "'default'", "'lazy'"),
        ("x-queue-version", ("I", 1), ("I", 2), "'2'", "'1'"),
        ("x-queue-master-locator", ("S", b"min-masters"), None, "none", "the value 'min-masters' of type 'longstr'"),
        ("x-queue-type", None, ("S", b"quorum"), "the value 'quorum' of type 'longstr'", "none"),
        ("x-queue-type", ("S", b"classic"), ("S", b"quorum"), "'quorum'", "'classic'"),
        # The arguments of a second declaration are compared, not checked.
        ("x-expires", None, ("I", -5), "the value '-5' of type 'signedint'", "none"),
    ],
)
def test_a_queue_declared_again_with_another_argument_is_refused(
    house: House, name: str, first: Field | None, second: Field | None, received: str, current: str
) -> None:
    house.queue(arguments={} if first is None else {name: first})
    check_refused(
        f"PRECONDITION_FAILED - inequivalent arg '{name}' for queue 'q' in vhost '/':"
        f" received {received} but current is {current}",
        lambda: house.queue(arguments={} if second is None else {name: second}),
    )


def test_flags_are_compared_before_arguments(house: House) -> None:
    house.queue(arguments={"x-message-ttl": ("I", 5)})
    check_refused(
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is"
        " 'false'",
        lambda: house.queue(durable=True),
    )


# --- notes ----------------------------------------------------------------------------------------------


def test_what_is_accepted_without_effect_is_noted() -> None:
    assert queue_notes({}) == []
    assert queue_notes({"x-queue-type": longstr("classic"), "x-max-length": ("I", 5)}) == []
    lazy = {"x-queue-mode": longstr("lazy")}
    assert (len(queue_notes(lazy)), queue_notes(lazy, has_disk=True)) == (1, [])
    [note] = queue_notes({"x-queue-type": longstr("quorum")})
    assert note == "x-queue-type=quorum served as a classic queue"
