"""Dead letters go back to the queues that they died in: all or chosen ones, in slices, after a dry run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from at_hand_house import House

from penstock.broker.operations.call_errors import BadRequest, NoSuchQueue
from penstock.broker.operations.messages.messages_at_hand import peek
from penstock.broker.operations.messages.redrive import Cursor, Problem, Redriven, redrive
from penstock.message import Envelope, Incoming


def die(house: House, *texts: str, queue: str = "q") -> None:
    """Messages of the queue are rejected."""
    house.publish(*texts, queue=queue, headers={"n": 1})
    source = house.vhost.queues[queue]
    for _ in texts:
        source.reject([house.get(queue)])


@pytest.fixture
def morgue(house: House) -> House:
    """A queue q whose dead go to the queue dead."""
    declare_both(house)
    return house


def declare_both(house: House) -> None:
    house.declare("dead")
    house.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")


def counts(result: Redriven) -> Redriven:
    return replace(result, cursor=Cursor(), problems=[], dry_run=False)


def test_dead_letters_go_back_as_they_were(morgue: House) -> None:
    die(morgue, "a", "b")
    result = redrive(morgue.vhost, "dead")
    assert counts(result) == Redriven(moved=2, moved_to={"q": 2})
    assert result.cursor.is_done
    assert morgue.bodies("dead") == []
    (message, _) = peek(morgue.vhost, "q").messages
    assert (message.exchange, message.routing_key) == ("", "q")
    assert sorted(message.headers) == ["n", "x-redriven-count"]
    assert morgue.bodies() == ["a", "b"]


def test_a_dry_run_says_the_same_and_changes_nothing(morgue: House) -> None:
    die(morgue, *"abc")
    morgue.publish("alive", queue="dead")
    dead = morgue.vhost.queues["dead"]
    foretold = redrive(morgue.vhost, "dead", dry_run=True)
    assert foretold.dry_run
    assert (dead.ready_count(), dead.selection) == (4, None)
    done = redrive(morgue.vhost, "dead")
    assert counts(foretold) == counts(done) == Redriven(moved=3, moved_to={"q": 3}, no_origin=1)
    assert foretold.problems == done.problems == [Problem(3, "no origin", None)]
    assert morgue.bodies("dead") == ["alive"]


def test_a_queue_that_is_full_refuses_and_the_dry_run_knows(morgue: House) -> None:
    morgue.declare("small", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    die(morgue, *"abc", queue="small")
    morgue.vhost.delete_queue(morgue.vhost.queues["small"], False, False)
    morgue.declare("small", x_max_length=2, x_overflow="reject-publish")
    foretold = redrive(morgue.vhost, "dead", dry_run=True)
    done = redrive(morgue.vhost, "dead")
    assert counts(foretold) == counts(done) == Redriven(moved=2, moved_to={"small": 2}, refused=1)
    assert done.problems == [Problem(2, "refused", "small")]
    assert morgue.bodies("dead") == ["c"]
    assert morgue.bodies("small") == ["a", "b"]


def test_what_came_from_a_queue_that_is_gone_stays(morgue: House) -> None:
    die(morgue, "a")
    morgue.vhost.delete_queue(morgue.vhost.queues["q"], False, False)
    result = redrive(morgue.vhost, "dead")
    assert counts(result) == Redriven(origin_gone=1)
    assert result.problems == [Problem(0, "origin gone", "q")]
    assert morgue.bodies("dead") == ["a"]


def test_dead_letters_are_chosen_by_reason_and_by_queue(morgue: House) -> None:
    morgue.declare("other", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", x_message_ttl=1000)
    die(morgue, "rejected in q")
    die(morgue, "rejected in other", queue="other")
    morgue.publish("expired in other", queue="other")
    morgue.pass_ms(1_000)
    result = redrive(morgue.vhost, "dead", reason="expired")
    assert counts(result) == Redriven(moved=1, moved_to={"other": 1}, passed_over=2)
    result = redrive(morgue.vhost, "dead", source_queue="other")
    assert counts(result) == Redriven(moved=1, moved_to={"other": 1}, passed_over=1)
    assert morgue.bodies("dead") == ["rejected in q"]
    assert morgue.bodies("other") == ["expired in other", "rejected in other"]


def test_chosen_messages_are_redriven_and_no_others(morgue: House) -> None:
    die(morgue, *"abcd")
    taken = morgue.get("dead")
    result = redrive(morgue.vhost, "dead", seq_ids=[taken, 2, 50])
    assert counts(result) == Redriven(moved=1, moved_to={"q": 1}, busy=1, unknown=1)
    assert morgue.bodies() == ["c"]
    morgue.vhost.queues["dead"].requeue([taken])
    assert morgue.bodies("dead") == ["a", "b", "d"]


def test_a_long_redrive_goes_on_where_it_was(morgue: House) -> None:
    die(morgue, *"abcde")
    cursor = Cursor()
    moved: list[int] = []
    while not cursor.is_done:
        result = redrive(morgue.vhost, "dead", count_max=2, cursor=cursor)
        moved.append(result.moved)
        cursor = result.cursor
    assert moved == [2, 2, 1]
    assert morgue.bodies() == ["a", "b", "c", "d", "e"]


def test_what_dies_again_meanwhile_is_left_for_another_redrive(morgue: House) -> None:
    die(morgue, *"abc")
    cursor = Cursor()
    moved = 0
    while not cursor.is_done:
        result = redrive(morgue.vhost, "dead", count_max=1, cursor=cursor)
        moved += result.moved
        cursor = result.cursor
        morgue.vhost.queues["q"].reject([morgue.get()])
    assert moved == 3
    assert morgue.bodies("dead") == ["a", "b", "c"]


def test_a_dead_letter_far_from_the_head_is_reached_in_several_calls(morgue: House) -> None:
    others = 12_000
    envelope = Envelope("", "dead", b"\x00\x00")
    morgue.vhost.queues["dead"].publish(Incoming(envelope, [b"no dead letter\xce"] * others), None)
    die(morgue, "a", "b")
    cursor = Cursor()
    done: list[Redriven] = []
    while not cursor.is_done:
        done.append(redrive(morgue.vhost, "dead", cursor=cursor))
        cursor = done[-1].cursor
        assert len(done) < 10
    assert sum(result.no_origin for result in done) == others
    assert [result.moved for result in done][-1] == 2
    assert [result.out_of_reach for result in done] == [0] * len(done)
    assert morgue.bodies() == ["a", "b"]
    assert morgue.vhost.queues["dead"].ready_count() == others


def test_a_queue_that_drops_duplicates_takes_back_what_it_has_seen(house: House) -> None:
    house.declare("dead")
    house.declare(
        "q",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="dead",
        x_message_deduplication=True,
        x_cache_size=10,
    )
    house.publish("a", headers={"x-deduplication-header": "1"})
    house.vhost.queues["q"].reject([house.get()])
    assert redrive(house.vhost, "dead").moved == 1
    assert house.bodies() == ["a"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_after_a_crash_a_redriven_message_is_at_one_place(durable_house: House, is_committed: bool) -> None:
    house = durable_house
    declare_both(house)
    die(house, "a")
    house.restart()
    assert redrive(house.vhost, "dead").moved == 1
    if is_committed:
        house.end_turn()
    house.crash()
    assert (house.bodies(), house.bodies("dead")) == ((["a"], []) if is_committed else ([], ["a"]))


def test_a_redrive_that_makes_no_sense_is_refused(morgue: House) -> None:
    with pytest.raises(NoSuchQueue, match="did you mean 'dead'"):
        redrive(morgue.vhost, "deat")
    with pytest.raises(BadRequest, match="at least one"):
        redrive(morgue.vhost, "dead", count_max=0)
    morgue.exchange("later", "x-delayed-message", x_delayed_type="direct")
    morgue.publish("a", exchange="later", key="q", headers={"x-delay": 1000})
    with pytest.raises(BadRequest, match="messages that wait"):
        redrive(morgue.vhost, "amq.held-exchange.later")
