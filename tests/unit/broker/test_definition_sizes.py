"""Definitions are limited when they are declared, counted, and written down while they change."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from at_hand_house import House

from penstock import limits
from penstock.broker.definitions.definitions import Definitions
from penstock.broker.vhost.vhost import VHost
from penstock.errors import ChannelException
from penstock.fields import Table

LARGE: Table = {"x-anything": ("S", b"\xff" * limits.ARGUMENTS_BYTES_MAX)}
SMALL: Table = {"x-anything": ("S", b"some octets")}


def declare_queue(vhost: VHost, arguments: Table) -> None:
    vhost.declare_queue("q", True, False, None, arguments)


def declare_exchange(vhost: VHost, arguments: Table) -> None:
    vhost.declare_exchange("x", "direct", True, False, False, arguments)


def bind(vhost: VHost, arguments: Table) -> None:
    queue = vhost.declare_queue("bound", True, False, None, {})
    vhost.bind_queue("amq.headers", queue, "key", arguments)


DECLARATIONS = pytest.mark.parametrize("declare", [declare_queue, declare_exchange, bind])


def whole(house: House) -> dict[str, object]:
    definitions = Definitions()
    definitions.load(b"".join(house.broker.definitions()))
    vhost = definitions.vhosts["/"]
    return {"exchanges": vhost.exchanges, "queues": vhost.queues, "bindings": set(vhost.bindings)}


@DECLARATIONS
def test_arguments_that_are_too_large_are_refused(declare: Callable[[VHost, Table], None], house: House) -> None:
    with pytest.raises(ChannelException, match=r"arguments of .* are too large: 32\d+ bytes") as got:
        declare(house.vhost, LARGE)
    assert got.value.reply_code == 406
    declare(house.vhost, SMALL)


@DECLARATIONS
def test_a_vhost_takes_so_much_and_no_more(declare: Callable[[VHost, Table], None], house: House) -> None:
    # All but the room for the queue that is to be bound.
    house.vhost.declared_bytes += limits.DEFINITION_BYTES_PER_VHOST_MAX - 250
    with pytest.raises(ChannelException, match="the definitions of vhost '/' take") as got:
        declare(house.vhost, SMALL)
    assert got.value.reply_code == 406
    house.vhost.declared_bytes -= limits.DEFINITION_BYTES_PER_VHOST_MAX - 250


def test_what_is_counted_is_given_back(house: House) -> None:
    vhost = house.vhost
    before = house.vhost.definition_bytes()
    for _ in range(3):
        for declare in (declare_queue, declare_exchange, bind):
            declare(vhost, SMALL)
        vhost.bind_exchange("x", "amq.fanout", "key", SMALL)
        vhost.bind_exchange("amq.fanout", "x", "key", SMALL)
        assert house.vhost.definition_bytes() - before > 6 * limits.DEFINITION_OVERHEAD_BYTES
        vhost.unbind_exchange("x", "amq.fanout", "key", SMALL)
        vhost.delete_exchange("x", False)
        for name in ("q", "bound"):
            vhost.delete_queue(vhost.queues[name], False, False)
        assert house.vhost.definition_bytes() == before
        assert house.vhost.declared_bytes == 0


@DECLARATIONS
def test_a_folder_of_before_there_was_a_limit_still_starts(
    declare: Callable[[VHost, Table], None], durable_house: House
) -> None:
    durable_house.vhost.is_restoring = True
    declare(durable_house.vhost, LARGE)
    durable_house.vhost.is_restoring = False
    written = whole(durable_house)
    for start in (durable_house.restart, durable_house.crash):
        durable_house.end_turn()
        start()
        assert whole(durable_house) == written
        assert durable_house.vhost.declared_bytes > limits.ARGUMENTS_BYTES_MAX


@pytest.mark.parametrize("seed", range(8))
def test_definitions_that_change_while_they_are_written_down_come_back(seed: int, durable_house: House) -> None:
    """Whatever is declared, bound and deleted between two pieces of a checkpoint."""
    house = durable_house
    dice = random.Random(seed)
    names = [f"{number:03d}".ljust(200, "n") for number in range(150)]

    def change() -> None:
        vhost = house.vhost
        name = dice.choice(names)
        what = dice.randrange(6)
        if what == 0 and name in vhost.queues:
            vhost.delete_queue(vhost.queues[name], False, False)
        elif what == 1:
            vhost.delete_exchange(f"x{name[:20]}", False)
        elif what == 2:
            vhost.declare_exchange(f"x{name[:20]}", "topic", True, False, False, {})
        elif what == 3 and name in vhost.queues and f"x{name[:20]}" in vhost.exchanges:
            vhost.bind_queue(f"x{name[:20]}", vhost.queues[name], f"k{dice.randrange(3)}", {})
        elif what == 4 and name in vhost.queues:
            vhost.unbind_queue(f"x{name[:20]}", name, f"k{dice.randrange(3)}", {})
        else:
            vhost.declare_queue(name, True, False, None, {})

    for _ in range(2000):
        change()
    house.end_turn()
    node = house.broker.node
    assert node is not None
    node.journal.commit(urgent=True)
    node.checkpointer.begin()
    steps = 0
    while node.checkpointer.is_running:
        for _ in range(dice.randrange(40)):
            change()
        node.journal.commit(urgent=True)
        # One piece of work and no more.
        node.checkpointer.step(-1.0)
        steps += 1
    assert steps > 5
    assert not node.checkpointer.failure
    now = whole(house)
    house.crash()
    assert whole(house) == now
