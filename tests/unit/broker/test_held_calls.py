"""Held messages: listed by due time, cancelled, put off, edited and released now, also after a restart."""

from __future__ import annotations

import pytest
from at_hand_house import House

from penstock.broker.operations.call_errors import BadRequest, NoSuchQueue
from penstock.broker.operations.messages.held_calls import (
    HeldPage,
    HeldQueue,
    cancel,
    held,
    list_held,
    release_now,
    reschedule,
)
from penstock.broker.operations.messages.message_edits import Changes, edit
from penstock.broker.operations.messages.message_moves import Outcome, Target, move
from penstock.broker.operations.messages.message_search import Query, search
from penstock.broker.operations.messages.messages_at_hand import pause, peek

NAME = "amq.held-exchange.later"


@pytest.fixture
def delayed(house: House) -> House:
    """Three messages are held by an exchange: a for 30 s, b for 10 s, c for 20 s."""
    hold_three(house)
    return house


def hold_three(house: House) -> None:
    house.exchange("later", "x-delayed-message", x_delayed_type="direct")
    house.declare("q")
    house.bind("later", "q", "k")
    for text, delay_ms in (("a", 30_000), ("b", 10_000), ("c", 20_000)):
        house.publish(text, exchange="later", key="k", headers={"x-delay": delay_ms, "text": text})


def listed(house: House) -> list[str]:
    return [message.body.decode() for message in list_held(house.vhost, "later").messages]


def test_where_messages_are_held_is_listed(delayed: House) -> None:
    (found,) = held(delayed.vhost)
    assert found == HeldQueue(NAME, "exchange", "later", 3, 3, delayed.clock.wall_ms() + 10_000)


def test_held_messages_are_listed_by_due_time_in_pages(delayed: House) -> None:
    now_ms = delayed.clock.wall_ms()
    seen: list[tuple[str, int | None, str]] = []
    page = HeldPage(next_due_ms=0, next_seq_id=0)
    while page.next_due_ms is not None and page.next_seq_id is not None:
        page = list_held(delayed.vhost, "later", page.next_due_ms, page.next_seq_id, 2)
        seen += [(message.state, message.due_ms, message.body.decode()) for message in page.messages]
    assert seen == [
        ("held", now_ms + 10_000, "b"),
        ("held", now_ms + 20_000, "c"),
        ("held", now_ms + 30_000, "a"),
    ]
    (found,) = list_held(delayed.vhost, NAME, query=Query(header="text", header_value="c")).messages
    assert found.body == b"c"


def test_held_messages_can_be_looked_at_and_searched_by_number(delayed: House) -> None:
    page = peek(delayed.vhost, NAME, with_unacked=True)
    assert [(message.state, message.body) for message in page.messages] == [
        ("held", b"a"),
        ("held", b"b"),
        ("held", b"c"),
    ]
    assert [message.seq_id for message in search(delayed.vhost, NAME, Query(body=b"c")).messages] == [2]


def test_a_cancelled_message_is_never_delivered(delayed: House) -> None:
    assert cancel(delayed.vhost, "later", [1, 99]) == Outcome(done=[1], unknown=[99])
    delayed.pass_ms(40_000)
    assert delayed.bodies() == ["c", "a"]


def test_a_message_is_put_off_and_brought_forward(delayed: House) -> None:
    now_ms = delayed.clock.wall_ms()
    later = reschedule(delayed.vhost, "later", 1, now_ms + 60_000)
    sooner = reschedule(delayed.vhost, "later", 0, now_ms + 5_000)
    assert (later.new_seq_id, sooner.new_seq_id) == (3, 4)
    assert listed(delayed) == ["a", "c", "b"]
    delayed.pass_ms(6_000)
    assert delayed.bodies() == ["a"]
    delayed.pass_ms(60_000)
    assert delayed.bodies() == ["c", "b"]
    with pytest.raises(BadRequest, match="milliseconds since 1970"):
        reschedule(delayed.vhost, "later", 1, -1)


def test_a_held_message_is_edited_and_stays_held(delayed: House) -> None:
    result = edit(delayed.vhost, NAME, 1, Changes(body=b"B", headers={"text": "B"}))
    assert "still held" in result.explanation
    assert listed(delayed) == ["B", "c", "a"]
    delayed.pass_ms(10_000)
    assert delayed.bodies() == ["B"]


def test_messages_are_released_before_they_are_due(delayed: House) -> None:
    assert release_now(delayed.vhost, "later", [0, 2, 7]) == Outcome(done=[0, 2], unknown=[7])
    assert delayed.bodies() == ["a", "c"]
    delayed.pass_ms(40_000)
    assert delayed.bodies() == ["b"]


def test_a_held_message_is_moved_elsewhere(delayed: House) -> None:
    delayed.declare("elsewhere")
    assert move(delayed.vhost, NAME, [0], Target(queue="elsewhere")).done == [0]
    assert delayed.bodies("elsewhere") == ["a"]
    assert listed(delayed) == ["b", "c"]
    with pytest.raises(BadRequest, match="companion"):
        move(delayed.vhost, "q", [0], Target(queue=NAME))
    with pytest.raises(BadRequest, match="companion"):
        pause(delayed.vhost, NAME)


def test_what_a_queue_holds_is_found_by_its_name(house: House) -> None:
    house.declare("q", x_hold_on_publish=True)
    due_ms = house.clock.wall_ms() + 5_000
    house.publish("a", headers={"x-not-valid-before": due_ms})
    (found,) = held(house.vhost)
    assert (found.held_for, found.owner, found.next_due_ms) == ("queue", "q", due_ms)
    assert release_now(house.vhost, "q", [0]).done == [0]
    assert house.bodies() == ["a"]
    with pytest.raises(NoSuchQueue, match="`held` lists"):
        list_held(house.vhost, "nothing")


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_was_changed_is_so_after_a_restart(durable_house: House, is_clean: bool) -> None:
    house = durable_house
    hold_three(house)
    house.end_turn()
    now_ms = house.clock.wall_ms()
    cancel(house.vhost, "later", [1])
    reschedule(house.vhost, "later", 2, now_ms + 60_000)
    house.end_turn()
    if is_clean:
        house.restart()
    else:
        house.crash()
    house.pass_ms(1)
    assert listed(house) == ["a", "c"]
    house.pass_ms(30_000)
    assert house.bodies() == ["a"]
    house.pass_ms(30_000)
    assert house.bodies() == ["c"]
