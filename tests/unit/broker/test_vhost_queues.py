"""Queues of a vhost: names, equivalence, exclusive owners, deletion, limits."""

from __future__ import annotations

import pytest
from vhost_house import Connection, House, Reader, check_refused

from penstock import limits
from penstock.broker.definitions.names import without_line_breaks
from penstock.broker.vhost.vhost import VHost
from penstock.errors import ChannelException
from penstock.message import Envelope, Incoming

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared"
    " on another connection or the exclusive property value does not match that of the original declaration."
)


@pytest.fixture
def house() -> House:
    return House()


# --- declaring ------------------------------------------------------------------------------------------


def test_a_queue_is_declared_as_it_was_asked_for_and_reached_by_its_name(house: House) -> None:
    queue = house.queue("q", durable=True, auto_delete=True)
    assert (queue.durable, queue.auto_delete, queue.exclusive_owner) == (True, True, None)
    assert house.vhost.queue("q", Connection()) is queue
    assert house.route("", "q") == ["q"]


def test_declaring_it_again_alike_gives_the_same_queue(house: House) -> None:
    queue = house.queue("q")
    version = house.vhost.topology_version
    assert house.queue("q") is queue
    assert house.vhost.topology_version == version


@pytest.mark.parametrize("attribute", ["durable", "auto_delete"])
def test_declaring_it_again_with_another_flag_is_refused(house: House, attribute: str) -> None:
    house.queue("q")
    check_refused(
        f"PRECONDITION_FAILED - inequivalent arg '{attribute}' for queue 'q' in vhost '/':"
        " received 'true' but current is 'false'",
        lambda: house.queue("q", **{attribute: True}),
    )


def test_an_unknown_queue_is_not_found(house: House) -> None:
    for name in ("nowhere", ""):
        check_refused(
            f"NOT_FOUND - no queue '{name}' in vhost '/'", lambda name=name: house.vhost.queue(name, Connection())
        )


def test_reserved_names_are_refused_even_for_queues_that_exist(house: House) -> None:
    check_refused(
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'", lambda: house.queue("amq.mine")
    )
    queue = house.server_named_queue()
    check_refused(
        f"ACCESS_REFUSED - queue name '{queue.name}' contains reserved prefix 'amq.*'", lambda: house.queue(queue.name)
    )
    assert house.vhost.queue(queue.name, Connection()) is queue


def test_server_named_queues_have_names_of_their_own(house: House) -> None:
    names = {house.server_named_queue().name for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("amq.gen-") and len(name) > 24 for name in names)


def test_a_quorum_queue_has_a_name_of_its_own(house: House) -> None:
    check_refused(
        "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue",
        lambda: house.server_named_queue({"x-queue-type": ("S", b"quorum")}),
    )


@pytest.mark.parametrize(("name", "declared"), [("a\nb\r\nc", "abc"), ("\n", ""), ("plain", "plain")])
def test_names_lose_their_line_breaks(name: str, declared: str) -> None:
    assert without_line_breaks(name) == declared


@pytest.mark.slow
def test_a_vhost_has_so_many_queues_and_no_more(house: House) -> None:
    for number in range(limits.QUEUES_PER_VHOST_MAX):
        house.queue(f"q{number}")
    with pytest.raises(ChannelException, match=f"has its {limits.QUEUES_PER_VHOST_MAX} queues already"):
        house.queue("one too many")
    house.queue("q0")
    house.delete_queue("q0")
    house.queue("another")
    assert len(house.vhost.queues) == limits.QUEUES_PER_VHOST_MAX


# --- exclusive ------------------------------------------------------------------------------------------


def test_an_exclusive_queue_is_locked_for_everyone_but_its_owner(house: House) -> None:
    owner, other = Connection(), Connection()
    queue = house.queue("q", owner=owner)
    assert house.vhost.queue("q", owner) is queue
    assert house.queue("q", owner=owner) is queue
    check_refused(LOCKED, lambda: house.vhost.queue("q", other))
    check_refused(LOCKED, lambda: house.queue("q", owner=other))


def test_the_exclusive_flag_must_be_the_same_for_the_owner_too(house: House) -> None:
    owner = Connection()
    house.queue("q", owner=owner)
    check_refused(LOCKED, lambda: house.queue("q"))
    house.delete_queue("q")
    house.queue("q")
    check_refused(LOCKED, lambda: house.queue("q", owner=owner))


def test_a_lock_is_named_before_other_differences(house: House) -> None:
    house.queue("q", owner=Connection())
    check_refused(LOCKED, lambda: house.queue("q", durable=True, arguments={"x-expires": ("I", 0)}))


def test_everyone_may_publish_to_an_exclusive_queue(house: House) -> None:
    house.queue("q", owner=Connection())
    assert house.route("", "q") == ["q"]


def test_exclusive_queues_go_with_their_connection_and_no_others(house: House) -> None:
    owner, other = Connection(), Connection()
    for name, whose in (("a", owner), ("b", owner), ("c", other), ("d", None)):
        house.queue(name, owner=whose)
        house.bind("amq.fanout", name)
    house.vhost.connection_closed(owner)
    assert set(house.vhost.queues) == {"c", "d"}
    assert house.route("amq.fanout") == ["c", "d"]
    house.check_registries()
    house.vhost.connection_closed(owner)
    house.vhost.connection_closed(Connection())
    assert set(house.vhost.queues) == {"c", "d"}


def test_an_exclusive_queue_that_was_deleted_and_made_anew_by_another_is_not_the_first_owners(house: House) -> None:
    first, second = Connection(), Connection()
    house.queue("q", owner=first)
    house.delete_queue("q")
    house.queue("q", owner=second)
    house.vhost.connection_closed(first)
    assert set(house.vhost.queues) == {"q"}


def test_nothing_is_remembered_of_an_owner_that_is_gone(house: House) -> None:
    owner = Connection()
    house.queue("q", owner=owner)
    house.vhost.connection_closed(owner)
    assert house.vhost._exclusive == {}


# --- deleting -------------------------------------------------------------------------------------------


def publish(house: House, count: int) -> None:
    house.vhost.queues["q"].publish(Incoming(Envelope("", "q", b"\x00\x00"), [b"x\xce"] * count), None)


def test_a_deletion_says_how_many_messages_were_ready(house: House) -> None:
    queue = house.queue("q")
    publish(house, 3)
    queue.get(False)
    assert house.delete_queue("q") == 2
    assert queue.deleted
    assert house.vhost.queues == {}


def test_if_empty_and_if_unused_protect_a_queue(house: House) -> None:
    queue = house.queue("q")
    publish(house, 1)
    queue.add_consumer(Reader(), False)
    not_empty = "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"
    check_refused(not_empty, lambda: house.delete_queue("q", if_empty=True))
    check_refused("PRECONDITION_FAILED - queue 'q' in vhost '/' in use", lambda: house.delete_queue("q", True))
    check_refused(not_empty, lambda: house.delete_queue("q", if_unused=True, if_empty=True))
    assert set(house.vhost.queues) == {"q"}
    queue.purge()
    assert house.delete_queue("q", if_empty=True) == 0


def test_an_auto_delete_queue_goes_with_its_last_consumer(house: House) -> None:
    queue = house.queue("q", auto_delete=True)
    house.bind("amq.fanout", "q")
    first, second = Reader(), Reader()
    queue.add_consumer(first, True)
    queue.add_consumer(second, True)
    queue.remove_consumer(first)
    assert set(house.vhost.queues) == {"q"}
    queue.remove_consumer(second)
    assert house.vhost.queues == {}
    assert queue.deleted
    assert house.route("amq.fanout") == []
    assert not second.cancelled
    house.check_registries()


def test_a_queue_that_is_not_auto_delete_stays_without_consumers(house: House) -> None:
    queue = house.queue("q")
    reader = Reader()
    queue.add_consumer(reader, True)
    queue.remove_consumer(reader)
    assert set(house.vhost.queues) == {"q"}


def test_a_deletion_cancels_the_consumers(house: House) -> None:
    queue = house.queue("q", auto_delete=True)
    reader = Reader()
    queue.add_consumer(reader, True)
    house.delete_queue("q")
    assert reader.cancelled
    assert house.vhost.queues == {}


def test_a_vhost_knows_what_its_messages_cost(house: House) -> None:
    house.queue("q")
    assert ram_bytes(house.vhost) == 0
    publish(house, 2)
    assert ram_bytes(house.vhost) == 2 * (1 + limits.MESSAGE_OVERHEAD_BYTES)


def ram_bytes(vhost: VHost) -> int:
    vhost.memory.look()
    return vhost.memory.total_bytes
