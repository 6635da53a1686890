"""Looking at messages without disturbing them, searching them, and pausing queues."""

from __future__ import annotations

import json

import pytest
from at_hand_house import House, Puller

from penstock.broker.operations.call_errors import BadQuery, BadRequest, NoSuchQueue
from penstock.broker.operations.messages.message_search import Query, search
from penstock.broker.operations.messages.message_view import MessageView, to_json
from penstock.broker.operations.messages.messages_at_hand import Page, pause, peek, resume
from penstock.message import Incoming, body_bytes
from penstock.queues.taking import drop_taken, take


def texts(messages: list[MessageView]) -> list[str]:
    return [message.body.decode() for message in messages]


def found(house: House, query: Query, with_unacked: bool = False) -> list[str]:
    return texts(search(house.vhost, "q", query, with_unacked=with_unacked).messages)


# --- peek -------------------------------------------------------------------------------------------------


def test_a_message_is_shown_with_all_that_belongs_to_it(house: House) -> None:
    house.declare("q")
    house.publish("hello", headers={"n": 5, "s": "x"}, content_type="text/plain", priority=3, expiration="60000")
    (message,) = peek(house.vhost, "q", body_bytes_max=4).messages
    assert message == MessageView(
        seq_id=0,
        state="ready",
        due_ms=None,
        expires_ms=house.clock.wall_ms() + 60_000,
        arrived_ms=house.clock.wall_ms(),
        redelivered=False,
        exchange="",
        routing_key="q",
        properties={
            "content_type": "text/plain",
            "delivery_mode": 2,
            "expiration": "60000",
            "priority": 3,
        },
        headers={"n": message.headers["n"], "s": ["S", "x"]},
        body_size=5,
        body=b"hell",
    )
    assert message.headers["n"][1] == 5


def test_pages_follow_each_other_to_the_end(house: House) -> None:
    house.declare("q")
    house.publish(*"abcdefg")
    seen: list[str] = []
    sizes: list[int] = []
    page = Page(next_seq_id=0)
    while page.next_seq_id is not None:
        page = peek(house.vhost, "q", page.next_seq_id, 3)
        seen += texts(page.messages)
        sizes.append(len(page.messages))
    assert "".join(seen) == "abcdefg"
    assert sizes == [3, 3, 1]


def test_a_look_disturbs_nothing(house: House) -> None:
    queue = house.declare("q")
    house.publish(*"abc")
    before = (queue.published_count, queue.delivered_count, queue.backing.depth(), queue.ready_count())
    peek(house.vhost, "q", with_unacked=True)
    search(house.vhost, "q", Query(body=b"c"))
    assert (queue.published_count, queue.delivered_count, queue.backing.depth(), queue.ready_count()) == before
    assert queue.selection is None
    run = queue.get(False)
    assert run is not None
    assert not run.redelivered
    assert house.bodies() == ["b", "c"]


def test_unacknowledged_messages_are_shown_when_they_are_asked_for(house: House) -> None:
    queue = house.declare("q")
    house.publish(*"abcd")
    taken = [house.get(), house.get(), house.get()]
    queue.requeue([taken[1]])
    assert texts(peek(house.vhost, "q").messages) == ["b", "d"]
    page = peek(house.vhost, "q", with_unacked=True)
    assert [(message.state, message.body) for message in page.messages] == [
        ("unacked", b"a"),
        ("ready", b"b"),
        ("unacked", b"c"),
        ("ready", b"d"),
    ]
    assert page.messages[1].redelivered
    assert texts(peek(house.vhost, "q", 1, 2, with_unacked=True).messages) == ["b", "c"]


def test_shelved_messages_are_ready_and_stand_at_their_positions(house: House) -> None:
    queue = house.declare("q", x_expire_anywhere=True)
    house.publish(*"abcdef")
    drop_taken(queue, take(queue, [3]))
    assert queue.selection is not None
    assert queue.selection.ready_count() == 5
    page = peek(house.vhost, "q", with_unacked=True)
    assert [(message.state, message.body) for message in page.messages] == [
        ("ready", body) for body in (b"a", b"b", b"c", b"e", b"f")
    ]
    assert house.bodies() == ["a", "b", "c", "e", "f"]


def test_messages_of_all_priorities_are_shown(house: House) -> None:
    house.declare("q", x_max_priority=5)
    house.publish("low", priority=0)
    house.publish("high", priority=5)
    house.publish("middle", priority=3)
    house.get()
    page = peek(house.vhost, "q", with_unacked=True)
    assert [(message.state, message.body) for message in page.messages] == [
        ("unacked", b"high"),
        ("ready", b"middle"),
        ("ready", b"low"),
    ]


def test_a_queue_that_is_not_there_is_named_with_one_that_is(house: House) -> None:
    house.declare("orders")
    with pytest.raises(NoSuchQueue, match="no queue 'order' in vhost '/'; did you mean 'orders'"):
        peek(house.vhost, "order")
    with pytest.raises(BadRequest, match="ask for 1 to"):
        peek(house.vhost, "orders", count=0)


def test_results_become_json(house: House) -> None:
    house.declare("q")
    house.publish("x", headers={"raw": b"\xff"})
    queue = house.vhost.queues["q"]
    run = queue.backing.browse(0, 1, 0)
    assert run is not None
    queue.publish(Incoming(run.entries[0][0], [b"\xff\xce"]), None)
    data = json.loads(json.dumps(to_json(peek(house.vhost, "q"))))
    assert [message["body"] for message in data["messages"]] == ["x", {"base64": "/w=="}]
    assert data["next_seq_id"] is None


# --- search -----------------------------------------------------------------------------------------------


def test_messages_are_found_by_header(house: House) -> None:
    house.declare("q")
    house.publish("number", headers={"n": 5})
    house.publish("text", headers={"n": "5"})
    house.publish("truth", headers={"n": True})
    house.publish("other", headers={"m": 5})
    house.publish("none")
    assert found(house, Query(header="n")) == ["number", "text", "truth"]
    assert found(house, Query(header="n", header_value=5)) == ["number"]
    assert found(house, Query(header="n", header_value="5")) == ["number", "text"]
    assert found(house, Query(header="n", header_value=True)) == ["truth"]
    assert found(house, Query(header="n", header_value="true")) == ["truth"]
    assert found(house, Query(header="n", header_value=1)) == []
    with pytest.raises(BadQuery, match="give both"):
        found(house, Query(header_value="5"))


def test_messages_are_found_by_selector(house: House) -> None:
    house.declare("q")
    house.publish("small", headers={"total": 5})
    house.publish("large", headers={"total": 500}, app_id="shop")
    assert found(house, Query(selector="total > 100")) == ["large"]
    with pytest.raises(BadQuery, match="column 9") as refused:
        found(house, Query(selector="total > > 1"))
    assert refused.value.column == 9


def test_messages_are_found_by_routing_key(house: House) -> None:
    house.declare("q")
    house.exchange("t", "topic")
    house.bind("t", "q", "#")
    for key in ("order.eu.paid", "order.us.paid", "order"):
        house.publish(key, exchange="t", key=key)
    assert found(house, Query(routing_key="order.eu.paid")) == ["order.eu.paid"]
    assert found(house, Query(routing_key="order.*.paid")) == ["order.eu.paid", "order.us.paid"]
    assert found(house, Query(routing_key="order.#")) == ["order.eu.paid", "order.us.paid", "order"]
    assert found(house, Query(routing_key="ord*")) == []
    with pytest.raises(BadQuery, match="words"):
        found(house, Query(routing_key="." * 200))


def test_messages_are_found_by_what_is_in_their_bodies(house: House) -> None:
    house.declare("q")
    house.publish("one two", "two three", "four")
    assert found(house, Query(body=b"two")) == ["one two", "two three"]
    # The octet behind a stored body is not the publisher's.
    assert found(house, Query(body=b"\xce")) == []


def test_all_conditions_must_be_true(house: House) -> None:
    house.declare("q")
    house.publish("a1", "b1", headers={"n": 1})
    house.publish("a2", headers={"n": 2})
    assert found(house, Query(header="n", header_value=1, body=b"a")) == ["a1"]
    assert found(house, Query()) == ["a1", "b1", "a2"]


def test_messages_are_found_by_age(house: House) -> None:
    house.declare("q")
    house.publish("old")
    house.pass_ms(1_000)
    house.pass_ms(9_000)
    house.publish("young")
    house.pass_ms(2_000)
    house.publish("new")
    assert found(house, Query(older_than_ms=5_000)) == ["old"]
    assert found(house, Query(younger_than_ms=5_000)) == ["young", "new"]
    assert found(house, Query(younger_than_ms=1)) == ["young", "new"]
    house.pass_ms(2_000)
    assert found(house, Query(older_than_ms=1_000, younger_than_ms=5_000)) == ["young"]
    with pytest.raises(BadQuery, match="0 or more"):
        found(house, Query(older_than_ms=-1))


def test_after_a_restart_the_timestamp_of_a_message_is_its_age(durable_house: House) -> None:
    house = durable_house
    house.declare("q")
    now_s = house.clock.wall_ms() // 1000
    house.publish("stamped", timestamp=now_s - 100)
    house.publish("unknown")
    house.restart()
    house.publish("new")
    house.pass_ms(2_000)
    assert found(house, Query(older_than_ms=50_000)) == ["stamped"]
    assert found(house, Query(younger_than_ms=50_000)) == ["new"]
    assert [message.arrived_ms for message in peek(house.vhost, "q").messages][1] is None


def test_a_search_looks_at_so_many_messages_and_goes_on(house: House) -> None:
    house.declare("q")
    house.publish(*[str(number) for number in range(25)])
    calls: list[tuple[list[str], int]] = []
    position: int | None = 0
    while position is not None:
        result = search(house.vhost, "q", Query(body=b"4"), position, looks_max=10)
        calls.append((texts(result.messages), result.looked_at))
        position = result.next_seq_id
    assert calls == [(["4"], 10), (["14"], 10), (["24"], 5)]
    result = search(house.vhost, "q", Query(body=b"1"), found_max=2)
    assert (texts(result.messages), result.next_seq_id, result.looked_at) == (["1", "10"], 11, 11)


# --- pause ------------------------------------------------------------------------------------------------


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(house: House) -> None:
    queue = house.declare("q")
    consumer = Puller()
    queue.add_consumer(consumer, True)
    assert pause(house.vhost, "q").lasts == house.has_disk
    house.publish("a")
    assert queue.pull(consumer, 10) is None
    assert queue.get(True) is None
    assert not resume(house.vhost, "q").paused
    run = queue.pull(consumer, 10)
    assert run is not None
    assert body_bytes(run.entries[0][1]) == b"a"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_durable_queue_is_still_paused_after_a_restart(durable_house: House, is_clean: bool) -> None:
    house = durable_house
    for name in ("q", "other", "resumed"):
        house.declare(name)
    pause(house.vhost, "q")
    pause(house.vhost, "resumed")
    resume(house.vhost, "resumed")
    house.publish("a")
    house.end_turn()
    if is_clean:
        house.restart()
    else:
        house.crash()
    assert {name: queue.paused for name, queue in house.vhost.queues.items()} == {
        "q": True,
        "other": False,
        "resumed": False,
    }
    assert house.bodies() == []
    resume(house.vhost, "q")
    assert house.bodies() == ["a"]
    house.restart()
    assert not house.vhost.queues["q"].paused
