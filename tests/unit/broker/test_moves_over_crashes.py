"""What a move that a crash has undone leaves behind: the message comes again, and says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from at_hand_house import House

from penstock.broker.operations.messages.message_edits import Changes, edit
from penstock.broker.operations.messages.message_moves import Target, move
from penstock.broker.operations.messages.redrive import redrive

TO_OUT = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "out"}
# Makes the queues and publishes one message, which is durable then.
Arrange = Callable[[House], None]
# Has it moved to the queue "out".
Act = Callable[[House], None]


def delayed(house: House) -> None:
    house.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    house.bind("later", "out", "")
    house.publish("a", exchange="later", key="", headers={"x-delay": 10})


def held(house: House) -> None:
    house.vhost.delete_queue(house.vhost.queues["out"], False, False)
    house.declare("out", x_hold_on_publish=True)
    house.publish("a", queue="out", headers={"x-not-valid-before": house.clock.wall_ms() + 10})


def with_ttl(house: House) -> None:
    house.declare("q", x_message_ttl=10, **TO_OUT)
    house.publish("a")


def without_ttl(house: House) -> None:
    house.declare("q", **TO_OUT)
    house.publish("a")


def with_limit(house: House) -> None:
    house.declare("q", x_delivery_limit=0, **TO_OUT)
    house.publish("a")


def chained(house: House) -> None:
    """Through a queue that is always full, which passes it on."""
    house.declare("full", x_max_length=0, x_overflow="reject-publish-dlx", **TO_OUT)
    house.declare("ring", x_max_length=0, x_dead_letter_exchange="", x_dead_letter_routing_key="full")
    house.declare("q", x_message_ttl=10, x_dead_letter_exchange="", x_dead_letter_routing_key="ring")
    house.publish("a")


def delayed_dead(house: House) -> None:
    """The dead-letter exchange holds it back once more."""
    house.exchange("later", "x-delayed-message", x_delayed_type="fanout")
    house.bind("later", "out", "")
    house.declare("q", x_message_ttl=10, x_dead_letter_exchange="later")
    house.publish("a", headers={"x-delay": 5})


def dead_already(house: House) -> None:
    house.declare("dead")
    house.vhost.delete_queue(house.vhost.queues["out"], False, False)
    out = house.declare("out", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    house.publish("a", queue="out")
    out.reject([house.get("out")])


def wait(house: House) -> None:
    house.pass_ms(20)
    house.pass_ms(20)


def reject(house: House) -> None:
    house.vhost.queues["q"].reject([house.get("q")])


def requeue(house: House) -> None:
    house.vhost.queues["q"].requeue([house.get("q")])


def overflow(house: House) -> None:
    house.vhost.queues["q"].leaving.drop_head(1, "maxlen")


def move_by_hand(house: House) -> None:
    ready = house.vhost.queues["q"].backing.browse(0, 1, 0)
    assert ready is not None
    assert move(house.vhost, "q", [ready.first_seq_id], Target(queue="out")).done == [ready.first_seq_id]


def redrive_all(house: House) -> None:
    assert redrive(house.vhost, "dead").moved == 1


def first_from_out(house: House) -> bool:
    run = house.vhost.queues["out"].get(False)
    assert run is not None, "it did not arrive"
    return run.redelivered


CASES: list[tuple[Arrange, Act]] = [
    (delayed, wait),
    (held, wait),
    (with_ttl, wait),
    (chained, wait),
    (delayed_dead, wait),
    (without_ttl, reject),
    (without_ttl, overflow),
    (without_ttl, move_by_hand),
    (with_limit, requeue),
    (dead_already, redrive_all),
]


@pytest.mark.parametrize(("arrange", "act"), CASES, ids=lambda each: each.__name__)
def test_a_move_that_was_delivered_and_then_undone_is_marked_when_it_is_done_again(arrange: Arrange, act: Act) -> None:
    house = House(True)
    house.declare("out")
    arrange(house)
    house.end_turn()
    act(house)
    assert first_from_out(house) is False
    house.crash()
    act(house)
    assert first_from_out(house) is True
    house.check()


@pytest.mark.parametrize(("arrange", "act"), CASES, ids=lambda each: each.__name__)
def test_the_mark_outlives_a_clean_stop_after_the_crash(arrange: Arrange, act: Act) -> None:
    house = House(True)
    house.declare("out")
    arrange(house)
    house.end_turn()
    act(house)
    assert first_from_out(house) is False
    house.crash()
    house.restart()
    act(house)
    assert first_from_out(house) is True


@pytest.mark.parametrize(("arrange", "act"), CASES, ids=lambda each: each.__name__)
def test_without_a_crash_nothing_is_marked(arrange: Arrange, act: Act) -> None:
    house = House(True)
    house.declare("out")
    arrange(house)
    house.restart()
    act(house)
    assert first_from_out(house) is False


def test_a_message_that_was_edited_keeps_its_doubt() -> None:
    house = House(True)
    house.declare("out")
    without_ttl(house)
    house.end_turn()
    reject(house)
    assert first_from_out(house) is False
    house.crash()
    ready = house.vhost.queues["q"].backing.browse(0, 1, 0)
    assert ready is not None
    assert edit(house.vhost, "q", ready.first_seq_id, Changes(body=b"b")).outcome == "edited"
    reject(house)
    assert first_from_out(house) is True
