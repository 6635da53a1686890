"""x-delivery-count and x-delivery-limit over a clean stop and over a crash: they go on where they were."""

from __future__ import annotations

from typing import Any

import pytest
from at_hand_house import House

from penstock.wire.property_edits import header_of

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "priorities": {"x_max_priority": 3},
    "groups": {"x_group_header": "g"},
    "sorted": {"x_sort_header": "s"},
    "expiring anywhere": {"x_expire_anywhere": True, "x_message_ttl": 3_600_000},
}


def deliver_and_return(house: House, no_ack: bool = False) -> int | None:
    """Get the message and give it back; the count that it came with, -1 for none; None when the queue is empty."""
    run = house.vhost.queues["q"].get(no_ack)
    if run is None:
        return None
    field = header_of(run.entries[0][0], "x-delivery-count")
    if not no_ack:
        house.vhost.queues["q"].requeue([run.first_seq_id])
    return -1 if field is None else int(str(field[1]))


@pytest.mark.parametrize("arguments", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "crash"])
def test_a_message_is_delivered_as_often_as_its_limit_says_whatever_happens_meanwhile(
    arguments: dict[str, Any], is_clean: bool
) -> None:
    house = House(True)
    house.declare("dead")
    house.declare("q", x_delivery_limit=5, x_dead_letter_exchange="", x_dead_letter_routing_key="dead", **arguments)
    house.publish("a", headers={"g": "g", "s": 1}, priority=1)
    assert [deliver_and_return(house) for _ in range(3)] == [-1, 1, 2]
    house.end_turn()
    if is_clean:
        house.restart()
    else:
        house.crash()
    house.pass_ms(1)
    assert [deliver_and_return(house) for _ in range(4)] == [3, 4, 5, None]
    assert house.bodies("dead") == ["a"]


def test_who_does_not_acknowledge_is_told_the_count_too() -> None:
    house = House(True)
    house.declare("q", x_delivery_limit=5)
    house.publish("a")
    deliver_and_return(house)
    house.restart()
    assert deliver_and_return(house, no_ack=True) == 1
    assert house.vhost.queues["q"].backing.depth() == 0


def test_a_message_that_waited_for_its_retry_goes_on_counting_after_a_stop() -> None:
    house = House(True)
    house.declare("q", x_delivery_limit=5, x_delayed_retry_min=10, x_delayed_retry_type="failed")
    house.publish("a")
    deliver_and_return(house)
    house.pass_ms(20)
    run = house.vhost.queues["q"].get(False)
    assert run is not None
    # Its consumer is lost: it comes back at once, and not over the companion.
    house.vhost.queues["q"].requeue([run.first_seq_id], lost=True)
    house.restart()
    assert deliver_and_return(house) == 2


@pytest.mark.parametrize("arguments", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "crash"])
def test_a_message_over_its_limit_that_found_no_place_is_not_delivered_again_after_a_restart(
    arguments: dict[str, Any], is_clean: bool
) -> None:
    house = House(True)
    at_least_once = {"x_dead_letter_exchange": "later", "x_dead_letter_strategy": "at-least-once"}
    house.declare("q", x_delivery_limit=1, **at_least_once, **arguments)
    house.publish("a", headers={"g": "g", "s": 1}, priority=1)
    assert [deliver_and_return(house) for _ in range(3)] == [-1, 1, None]
    for _ in range(2):
        house.end_turn()
        if is_clean:
            house.restart()
        else:
            house.crash()
        assert deliver_and_return(house) is None
        assert house.vhost.queues["q"].backing.depth() == 1
    house.declare("dead")
    house.exchange("later", "fanout")
    house.bind("later", "dead", "")
    house.pass_ms(2000)
    assert house.bodies("dead") == ["a"]
    assert house.vhost.queues["q"].backing.depth() == 0
