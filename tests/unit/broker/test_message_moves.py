"""Chosen messages, deleted, moved, copied, edited or purged: at the source, at the target, and after a crash."""

from __future__ import annotations

import pytest
from at_hand_house import House

from penstock.broker.operations.call_errors import BadRequest, NoSuchExchange, NoSuchQueue
from penstock.broker.operations.messages.message_edits import Changes, edit
from penstock.broker.operations.messages.message_moves import Outcome, Purged, Target, copy, delete, move, purge_some
from penstock.broker.operations.messages.message_search import Query, search
from penstock.broker.operations.messages.messages_at_hand import peek
from penstock.broker.operations.messages.redrive import redrive
from penstock.message import Envelope, Incoming
from penstock.queues.taking import drop_taken, take


def numbers(house: House, queue: str = "q") -> list[int]:
    return [message.seq_id for message in peek(house.vhost, queue).messages]


# --- delete -----------------------------------------------------------------------------------------------


def test_chosen_messages_are_deleted_and_the_others_stay_in_order(house: House) -> None:
    house.declare("q")
    house.publish(*"abcdef")
    assert delete(house.vhost, "q", [4, 1]) == Outcome(done=[1, 4])
    assert house.bodies() == ["a", "c", "d", "f"]


def test_what_is_with_a_consumer_is_busy_and_what_is_gone_is_unknown(house: House) -> None:
    queue = house.declare("q")
    house.publish(*"abc")
    first = house.get()
    assert delete(house.vhost, "q", [first, 2, 99]) == Outcome(done=[2], busy=[first], unknown=[99])
    queue.requeue([first])
    assert house.bodies() == ["a", "b"]


def test_a_deleted_message_is_no_dead_letter(house: House) -> None:
    house.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    house.declare("dead")
    house.publish("a")
    delete(house.vhost, "q", [0])
    assert house.bodies("dead") == []
    assert house.bodies() == []


def test_counters_of_deliveries_and_acks_do_not_change(house: House) -> None:
    queue = house.declare("q")
    house.publish(*"abc")
    delete(house.vhost, "q", [1])
    assert queue.delivered_count == 0
    run = queue.get(False)
    assert run is not None
    assert not run.redelivered


def test_a_deleted_message_stays_deleted_and_the_others_come_back(durable_house: House) -> None:
    house = durable_house
    house.declare("q")
    house.publish(*"abcd")
    house.end_turn()
    delete(house.vhost, "q", [2])
    house.end_turn()
    house.crash()
    assert house.bodies() == ["a", "b", "d"]


def test_a_message_far_from_the_head_is_taken_past_all_others(house: House) -> None:
    queue = house.declare("q")
    house.publish(*["x"] * 2_500)
    house.publish("far")
    assert take(queue, [2_500]) == [2_500]
    assert queue.selection is None
    assert queue.ready_count() == 2_500
    queue.leaving.give_back([2_500])
    assert house.bodies()[-1] == "far"


def test_shelved_and_other_messages_are_taken_in_the_order_given(house: House) -> None:
    queue = house.declare("q", x_expire_anywhere=True)
    house.publish(*"abc")
    assert take(queue, [2, 7, 0, 2]) == [2, 0]
    queue.leaving.give_back([0])
    assert house.bodies() == ["a", "b"]


def test_too_many_or_impossible_numbers_are_refused(house: House) -> None:
    house.declare("q")
    with pytest.raises(BadRequest, match="up to 5000 at a time"):
        delete(house.vhost, "q", range(5_001))
    with pytest.raises(BadRequest, match="no number of a message"):
        delete(house.vhost, "q", [-1])
    with pytest.raises(NoSuchQueue):
        delete(house.vhost, "none", [1])


# --- move and copy ----------------------------------------------------------------------------------------


def test_messages_are_moved_into_a_queue_as_they_are(house: House) -> None:
    house.declare("q")
    house.declare("other")
    house.publish(*"abc", headers={"n": 1})
    assert move(house.vhost, "q", [0, 2], Target(queue="other")) == Outcome(done=[0, 2])
    (first, _) = peek(house.vhost, "other").messages
    assert (first.exchange, first.routing_key, first.headers["n"][1]) == ("", "q", 1)
    assert house.bodies("other") == ["a", "c"]
    assert house.bodies() == ["b"]


def test_messages_are_moved_to_an_exchange_by_a_key_or_by_their_own(house: House) -> None:
    house.declare("q")
    house.declare("by key")
    house.declare("by own")
    house.exchange("d", "direct")
    house.bind("d", "by key", "k")
    house.bind("d", "by own", "q")
    house.publish(*"abc")
    assert move(house.vhost, "q", [0], Target(exchange="d", routing_key="k")).done == [0]
    assert move(house.vhost, "q", [1], Target(exchange="d")).done == [1]
    assert move(house.vhost, "q", [2], Target(exchange="d", routing_key="nobody")).unrouted == [2]
    (message,) = peek(house.vhost, "by key").messages
    assert (message.exchange, message.routing_key) == ("d", "k")
    assert house.bodies("by own") == ["b"]
    assert house.bodies() == ["c"]


def test_what_the_target_refuses_stays_where_it_is(house: House) -> None:
    house.declare("q")
    house.declare("small", x_max_length=1, x_overflow="reject-publish")
    house.publish(*"abc")
    assert move(house.vhost, "q", [0, 1, 2], Target(queue="small")) == Outcome(done=[0], refused=[1, 2])
    assert house.bodies("small") == ["a"]
    run = house.vhost.queues["q"].get(False)
    assert run is not None
    assert (run.first_seq_id, run.redelivered) == (1, False)
    assert house.bodies() == ["c"]


def test_if_one_of_several_queues_has_no_room_none_gets_the_message(house: House) -> None:
    house.declare("q")
    house.declare("large")
    house.declare("small", x_max_length=1, x_overflow="reject-publish")
    house.bind("amq.fanout", "large", "")
    house.bind("amq.fanout", "small", "")
    house.publish(*"ab")
    for call in (copy, move):
        assert call(house.vhost, "q", [0, 1], Target(exchange="amq.fanout")) == Outcome(done=[0], refused=[1])
        assert (house.bodies("large"), house.bodies("small")) == (["a"], ["a"])
    assert house.bodies() == ["b"]


def test_a_copy_leaves_the_messages_untouched(house: House) -> None:
    queue = house.declare("q")
    house.declare("other")
    house.publish(*"abc")
    drop_taken(queue, take(queue, [1]))
    taken = house.get()
    assert copy(house.vhost, "q", [taken, 1, 2], Target(queue="other")) == Outcome(done=[2], busy=[taken], unknown=[1])
    assert house.bodies("other") == ["c"]
    queue.requeue([taken])
    assert house.bodies() == ["a", "c"]


def test_a_message_that_is_moved_within_its_queue_goes_to_the_tail(house: House) -> None:
    house.declare("q")
    house.publish(*"abc")
    assert move(house.vhost, "q", [0], Target(queue="q")).done == [0]
    assert house.bodies() == ["b", "c", "a"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_after_a_crash_a_moved_message_is_at_one_place(durable_house: House, is_committed: bool) -> None:
    house = durable_house
    house.declare("q")
    house.declare("other")
    house.publish(*"abc")
    house.end_turn()
    move(house.vhost, "q", [1], Target(queue="other"))
    if is_committed:
        house.end_turn()
    house.crash()
    assert (house.bodies(), house.bodies("other")) == ((["a", "c"], ["b"]) if is_committed else (["a", "b", "c"], []))


def test_a_target_must_be_there(house: House) -> None:
    house.declare("q")
    house.publish("a")
    with pytest.raises(NoSuchQueue):
        move(house.vhost, "q", [0], Target(queue="none"))
    with pytest.raises(NoSuchExchange, match=r"did you mean 'amq\.topic'"):
        move(house.vhost, "q", [0], Target(exchange="amq.topik"))
    for target in (Target(), Target(queue="q", exchange="amq.topic"), Target(queue="q", routing_key="k")):
        with pytest.raises(BadRequest):
            copy(house.vhost, "q", [0], target)
    assert house.bodies() == ["a"]


def test_a_message_whose_properties_cannot_be_read_is_shown_found_and_moved(house: House) -> None:
    queue = house.declare("q")
    house.declare("other")
    house.bind("amq.direct", "other", "k")
    queue.publish(Incoming(Envelope("", "q", b"\x20\x00\xff\xff\xff\xff"), [b"a\xce"]), None)
    assert peek(house.vhost, "q").messages[0].headers == {}
    assert search(house.vhost, "q", Query(header="n")).messages == []
    assert len(search(house.vhost, "q", Query(selector="n IS NULL")).messages) == 1
    with pytest.raises(BadRequest, match="cannot be changed"):
        edit(house.vhost, "q", 0, Changes(headers={"n": 1}))
    assert redrive(house.vhost, "q").no_origin == 1
    assert move(house.vhost, "q", [0], Target(exchange="amq.direct", routing_key="k")).done == [0]
    assert house.bodies("other") == ["a"]


# --- edit -------------------------------------------------------------------------------------------------


def test_an_edited_message_is_at_the_tail_with_a_new_number(house: House) -> None:
    house.declare("q")
    house.publish("a", headers={"keep": 1, "change": 2, "drop": 3}, app_id="x", content_type="t")
    house.publish("b")
    result = edit(
        house.vhost,
        "q",
        0,
        Changes(
            body=b"new",
            properties={"app_id": "y", "content_type": None, "priority": 4},
            headers={"change": "text", "drop": None, "more": ["F", {"in": ["t", True]}]},
        ),
    )
    assert (result.outcome, result.new_seq_id) == ("edited", 2)
    assert "tail" in result.explanation
    messages = peek(house.vhost, "q").messages
    assert [message.seq_id for message in messages] == [1, 2]
    edited = messages[1]
    assert edited.body == b"new"
    assert edited.properties == {"app_id": "y", "delivery_mode": 2, "priority": 4}
    assert {name: value for name, (_, value) in edited.headers.items()} == {
        "keep": 1,
        "change": "text",
        "more": {"in": ["t", True]},
    }


def test_an_edit_asks_no_gate_again(house: House) -> None:
    house.declare("q", x_message_deduplication=True, x_cache_size=10)
    house.publish("a", headers={"x-deduplication-header": "1"})
    assert edit(house.vhost, "q", 0, Changes(body=b"b")).outcome == "edited"
    assert house.bodies() == ["b"]


@pytest.mark.parametrize(
    "changes",
    [
        Changes(properties={"colour": "red"}),
        Changes(properties={"app_id": 5}),
        Changes(properties={"app_id": "x" * 256}),
        Changes(properties={"priority": 256}),
        Changes(properties={"expiration": "soon"}),
        Changes(headers={"n": 1 << 63}),
        Changes(headers={"n": object()}),
        Changes(headers={"x" * 256: 1}),
        Changes(headers={"CC": "no list"}),
        Changes(due_ms=5),
    ],
)
def test_changes_that_cannot_be_made_leave_the_message_alone(house: House, changes: Changes) -> None:
    queue = house.declare("q")
    house.publish(*"ab")
    with pytest.raises(BadRequest):
        edit(house.vhost, "q", 0, changes)
    run = queue.get(False)
    assert run is not None
    assert (run.first_seq_id, run.redelivered) == (0, False)


def test_an_edit_says_why_it_was_not_made(house: House) -> None:
    house.declare("q")
    house.publish("a")
    taken = house.get()
    assert edit(house.vhost, "q", taken, Changes(body=b"x")).outcome == "busy"
    assert edit(house.vhost, "q", 77, Changes(body=b"x")).outcome == "unknown"


def test_an_edit_is_there_after_a_crash(durable_house: House) -> None:
    house = durable_house
    house.declare("q")
    house.publish("a")
    house.end_turn()
    edit(house.vhost, "q", 0, Changes(body=b"b"))
    house.end_turn()
    house.crash()
    assert house.bodies() == ["b"]


# --- purge ------------------------------------------------------------------------------------------------


def test_the_first_messages_are_purged(house: House) -> None:
    queue = house.declare("q")
    house.publish(*"abcdefg")
    drop_taken(queue, take(queue, [2]))
    taken = house.get()
    assert purge_some(house.vhost, "q", 3) == Purged(3, 2)
    assert numbers(house) == [5, 6]
    queue.requeue([taken])
    assert purge_some(house.vhost, "q", 10) == Purged(3, 0)
    assert house.bodies() == []
    with pytest.raises(BadRequest, match="purge 1 to"):
        purge_some(house.vhost, "q", 0)
