"""x-delayed-message exchanges: messages that wait before they are routed."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.features.conftest import Restart
from tests.features.stage import (
    FAR_MS,
    Stage,
    declare,
    drain,
    drain_until,
    headed,
    is_returned,
    is_taken,
    numbered,
    persistent,
    publish,
    ready,
    take,
    wait_for_ready,
)
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client, publish_frames

HELD = "held-exchange"


def declare_delayed(channel: BlockingChannel, name: str = "later", kind: str = "fanout", **options: Any) -> None:
    channel.exchange_declare(
        name, "x-delayed-message", **{"durable": True, **options}, arguments={"x-delayed-type": kind}
    )


def bound(channel: BlockingChannel, *queues: str, exchange: str = "later", key: str = "") -> None:
    for queue in queues:
        declare(channel, queue)
        channel.queue_bind(queue, exchange, key)


def send(channel: BlockingChannel, body: bytes, delay: Any, key: str = "", persist: bool = True) -> None:
    channel.basic_publish("later", key, body, headed(persist, x_delay=delay))


def test_messages_come_in_the_order_in_which_they_are_due(either: Stage) -> None:
    channel = either.channel()
    declare_delayed(channel)
    bound(channel, "q")
    for body, delay in ((b"third", 700), (b"first", 500), (b"fourth", 701), (b"second", 600), (b"fifth", 701)):
        send(channel, body, delay)
    assert drain_until(channel, "q", 5) == [b"first", b"second", b"third", b"fourth", b"fifth"]


@pytest.mark.parametrize("kind", ["direct", "topic", "headers", "fanout"])
def test_what_is_due_is_routed_as_the_inner_type_does_it(either: Stage, kind: str) -> None:
    channel = either.channel()
    declare_delayed(channel, kind=kind)
    declare(channel, "yes")
    declare(channel, "no")
    if kind == "headers":
        channel.queue_bind("yes", "later", arguments={"x-match": "all", "colour": "red"})
        channel.queue_bind("no", "later", arguments={"x-match": "all", "colour": "blue"})
    else:
        channel.queue_bind("yes", "later", "a.*" if kind == "topic" else "a.b")
        if kind != "fanout":
            channel.queue_bind("no", "later", "c.*" if kind == "topic" else "c.d")
    for delay in ({}, {"x-delay": 20}):
        channel.basic_publish("later", "a.b", b"x", persistent(headers={"colour": "red", **delay}))
    assert drain_until(channel, "yes", 2) == [b"x", b"x"]
    assert drain(channel, "no") == []


# pika writes an int as the smallest of its wire types that holds it.
@pytest.mark.parametrize("delay", [1, 127, 128, 255, 256, "10"])
def test_delays_of_all_types_come_due(stage: Stage, delay: Any) -> None:
    channel = stage.channel()
    declare_delayed(channel)
    bound(channel, "q")
    send(channel, b"x", delay)
    assert take(channel, "q")[2] == b"x"


@pytest.mark.parametrize("delay", [FAR_MS, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 53, (1 << 63) - 1, str((1 << 63) - 1)])
def test_long_delays_are_held_over_a_crash_and_not_cut(durable: Stage, delay: Any) -> None:
    channel = durable.channel()
    declare_delayed(channel)
    bound(channel, "q")
    send(channel, b"far", delay)
    send(channel, b"near", 1)
    assert drain_until(channel, "q", 1) == [b"near"]
    durable.kill_and_start()
    channel = durable.channel()
    send(channel, b"behind it", 1)
    wait_until(lambda: durable.held_count(HELD, "later") == 1, "all but one are released")
    # What was given out without an acknowledgement may come once more after a crash.
    assert set(drain(channel, "q")) - {b"near"} == {b"behind it"}


@pytest.mark.parametrize("delay", [0, -1, -(1 << 63), "soon", "", "-5", None, True, {}, []])
def test_what_is_no_delay_does_not_wait_whatever_its_expiration(stage: Stage, delay: Any) -> None:
    channel = stage.channel()
    declare_delayed(channel)
    bound(channel, "q")
    channel.basic_publish("later", "", b"x", persistent(headers={"x-delay": delay}, expiration=str(FAR_MS)))
    assert take(channel, "q")[2] == b"x"
    channel.basic_publish("later", "", b"y", persistent(headers={"other": 1}))
    assert drain(channel, "q") == [b"y"]


def test_a_message_that_has_waited_says_so_with_a_negative_delay_and_does_not_wait_again(either: Stage) -> None:
    channel = either.channel()
    declare_delayed(channel)
    bound(channel, "q")
    send(channel, b"x", 30)
    _, properties, _ = take(channel, "q")
    assert properties.headers == {"x-delay": -30}
    channel.basic_publish("later", "", b"again", properties)
    assert take(channel, "q")[2] == b"again"


def test_the_time_to_live_begins_when_the_message_is_due(either: Stage) -> None:
    channel = either.channel()
    declare_delayed(channel)
    declare(channel, "dead")
    declare(channel, "q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    channel.queue_bind("q", "later")
    channel.basic_publish("later", "", b"x", persistent(headers={"x-delay": 200}, expiration="50"))
    _, properties, body = take(channel, "dead")
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"x", "expired")


def test_held_messages_come_through_a_restart_and_a_crash(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    declare_delayed(channel)
    bound(channel, "q")
    for number in range(5):
        send(channel, b"%d" % number, 800 + 100 * (4 - number))
    send(channel, b"far", FAR_MS)
    send(channel, b"transient", 800, persist=False)
    restart(durable)
    channel = durable.channel()
    assert drain_until(channel, "q", 5) == [b"4", b"3", b"2", b"1", b"0"]
    assert durable.held_count(HELD, "later") == 1


def test_what_came_due_while_the_broker_was_down_comes_first(durable: Stage) -> None:
    channel = durable.channel()
    declare_delayed(channel)
    bound(channel, "q")
    send(channel, b"second", 400)
    send(channel, b"first", 50)
    durable.broker.kill()
    durable.broker.start()
    assert drain_until(durable.channel(), "q", 2) == [b"first", b"second"]


def test_a_transient_exchange_holds_while_it_lives(durable: Stage) -> None:
    channel = durable.channel()
    declare_delayed(channel, durable=False)
    bound(channel, "q")
    send(channel, b"near", 30)
    send(channel, b"far", FAR_MS)
    assert drain_until(channel, "q", 1) == [b"near"]
    durable.kill_and_start()
    assert durable.companion_names() == []


def test_what_an_exchange_holds_goes_with_it(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    declare_delayed(channel)
    bound(channel, "q")
    send(channel, b"lost with it", 300)
    assert durable.held_count(HELD, "later") == 1
    channel.exchange_delete("later")
    assert durable.companion_names() == []
    declare_delayed(channel)
    bound(channel, "q")
    restart(durable)
    channel = durable.channel()
    send(channel, b"of the new one", 400)
    assert drain_until(channel, "q", 1) == [b"of the new one"]
    assert durable.held_count(HELD, "later") == 0


def test_an_auto_delete_exchange_takes_what_it_holds_along(either: Stage) -> None:
    channel = either.channel()
    declare_delayed(channel, auto_delete=True)
    bound(channel, "q")
    send(channel, b"x", FAR_MS)
    channel.queue_delete("q")
    assert either.companion_names() == []


def test_what_is_unroutable_when_it_is_due_is_dropped(either: Stage) -> None:
    channel = either.channel()
    declare_delayed(channel, kind="direct")
    send(channel, b"nobody", 10, key="none")
    assert either.companion_names() == ["amq.held-exchange.later"]
    wait_until(lambda: either.held_count(HELD, "later") == 0, "it is gone")


def test_what_is_unroutable_when_it_is_due_goes_to_the_alternate_exchange(either: Stage) -> None:
    channel = either.channel()
    channel.exchange_declare(
        "later",
        "x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "direct", "alternate-exchange": "amq.fanout"},
    )
    declare(channel, "lost")
    channel.queue_bind("lost", "amq.fanout")
    send(channel, b"x", 10, key="none")
    assert take(channel, "lost")[2] == b"x"


def test_a_binding_that_is_made_while_the_message_waits_counts(either: Stage) -> None:
    channel = either.channel()
    declare_delayed(channel, kind="direct")
    send(channel, b"x", 400, key="k")
    bound(channel, "q", key="k")
    assert take(channel, "q")[2] == b"x"


def test_a_held_message_is_never_returned_and_one_that_does_not_wait_is(stage: Stage) -> None:
    channel = stage.channel()
    declare_delayed(channel, kind="direct")
    assert not is_returned(channel, "later", "none", headed(x_delay=FAR_MS))
    assert is_returned(channel, "later", "none")
    assert is_returned(channel, "later", "none", headed(x_delay=0))


def test_a_queue_without_room_gets_it_when_it_has_and_no_other_gets_it_twice(either: Stage) -> None:
    channel = either.channel()
    declare_delayed(channel)
    declare(channel, "full", x_max_length=1, x_overflow="reject-publish")
    channel.queue_bind("full", "later")
    bound(channel, "roomy")
    publish(channel, "full", b"in the way")
    declare(channel, "clock", x_expires=2500)
    send(channel, b"x", 10)
    wait_until(lambda: "clock" not in either.look(lambda server: server.broker.vhosts["/"].queues), "time has passed")
    assert take(channel, "full")[2] == b"in the way"
    assert take(channel, "full")[2] == b"x"
    assert drain(channel, "roomy") == [b"x"]


def test_confirms_come_when_the_message_is_held(durable: Stage) -> None:
    channel = durable.channel()
    declare_delayed(channel)
    bound(channel, "q")
    for body in numbered(0, 50):
        assert is_taken(channel, "later", "", body, headed(x_delay=1500))
    durable.kill_and_start()
    assert drain_until(durable.channel(), "q", 50) == numbered(0, 50)


def sent_together(exchange: str, messages: list[tuple[bytes, dict[str, Any] | None]]) -> bytes:
    """Publishes of one routing key that arrive with one read, each with its own headers."""
    return b"".join(
        [publish_frames(1, "k", body, exchange, delivery_mode=2, headers=headers) for body, headers in messages]
    )


def test_messages_of_one_read_wait_each_for_its_own_time_and_others_do_not_wait(either: Stage) -> None:
    channel = either.channel()
    declare_delayed(channel, kind="direct")
    bound(channel, "q", key="k")
    frames = sent_together(
        "later",
        [
            (b"last", {"x-delay": 900, "a": "text"}),
            (b"now", None),
            (b"first", {"x-delay": 300, "x-delivery-count": 7}),
            (b"now too", {"x-delay": 0}),
            (b"second", {"n": 1, "x-delay": "600"}),
            (b"third", {"x-delay": 700}),
        ],
    )
    with Client(either.broker.host, either.broker.port).handshake() as client:
        client.open_channel()
        client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        client.consume(1, "q", no_ack=True)
        client.socket.sendall(frames)
        messages = client.messages(6)
        wait_until(lambda: sum_confirmed(client) == 6, "all are confirmed")
    assert [message.body for message in messages] == [b"now", b"now too", b"first", b"second", b"third", b"last"]
    headers = [message.properties.headers for message in messages]
    assert headers == [
        None,
        {"x-delay": 0},
        {"x-delay": -300},
        {"n": 1, "x-delay": -600},
        {"x-delay": -700},
        {"x-delay": -900, "a": "text"},
    ]


def sum_confirmed(client: Client) -> int:
    """Confirms that have come: of one message each, or of all up to it."""
    client.barrier(1)
    highest = 0
    singles = 0
    for ack in client.seen(commands.Basic.Ack):
        highest = max(highest, ack.delivery_tag)
        singles += 0 if ack.multiple else 1
    return max(highest if any(ack.multiple for ack in client.seen(commands.Basic.Ack)) else 0, singles)


def test_messages_of_one_read_come_through_a_crash_each_with_its_own_time(durable: Stage) -> None:
    channel = durable.channel()
    declare_delayed(channel, kind="direct")
    bound(channel, "q", key="k")
    bodies = numbered(0, 40)
    delays = [1500 + 10 * ((7 * number) % 40) for number in range(40)]
    frames = sent_together("later", [(body, {"x-delay": delay}) for body, delay in zip(bodies, delays, strict=True)])
    with Client(durable.broker.host, durable.broker.port).handshake() as client:
        client.open_channel()
        client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
        client.socket.sendall(frames)
        wait_until(lambda: sum_confirmed(client) == 40, "all are confirmed")
    durable.kill_and_start()
    expected = [body for _, body in sorted(zip(delays, bodies, strict=True))]
    assert drain_until(durable.channel(), "q", 40) == expected


def test_a_transaction_holds_at_its_commit(either: Stage) -> None:
    channel = either.channel(confirms=False)
    declare_delayed(channel)
    bound(channel, "q")
    channel.tx_select()
    send(channel, b"rolled back", 1)
    channel.tx_rollback()
    send(channel, b"committed", 1)
    channel.tx_commit()
    assert drain_until(channel, "q", 1) == [b"committed"]


def test_dead_letters_may_wait_too(either: Stage) -> None:
    channel = either.channel()
    declare_delayed(channel)
    bound(channel, "again")
    declare(channel, "q", x_dead_letter_exchange="later")
    channel.basic_publish("", "q", b"x", headed(x_delay=50))
    channel.basic_reject(take(channel, "q", ack=False)[0].delivery_tag, requeue=False)
    assert take(channel, "again")[2] == b"x"


def test_clients_do_not_get_at_what_is_held(stage: Stage) -> None:
    channel = stage.channel()
    declare_delayed(channel)
    send(channel, b"x", FAR_MS)
    name = "amq.held-exchange.later"
    assert is_returned(channel, "", name)
    for work, code in (
        (lambda each: each.queue_declare(name), 403),
        (lambda each: each.queue_declare(name, passive=True), 404),
        (lambda each: each.basic_get(name), 404),
        (lambda each: each.basic_consume(name, print), 404),
        (lambda each: each.queue_purge(name), 404),
        (lambda each: each.queue_bind(name, "amq.fanout"), 404),
    ):
        with pytest.raises(ChannelClosedByBroker) as refused:
            work(stage.channel())
        assert refused.value.reply_code == code
    # Deleting what is not there is fine, and deletes nothing.
    stage.channel().queue_delete(name)
    assert stage.held_count(HELD, "later") == 1


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "x-delayed-message"}, {"x-delayed-type": 1}])
def test_the_inner_type_must_be_one_that_routes(stage: Stage, arguments: dict[str, Any]) -> None:
    channel = stage.channel()
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.exchange_declare("later", "x-delayed-message", arguments=arguments)
    assert refused.value.reply_code == 406
    assert "it must be one of direct, fanout, headers, topic" in refused.value.reply_text


def test_declared_again_the_inner_type_must_be_the_same(stage: Stage) -> None:
    channel = stage.channel()
    declare_delayed(channel, kind="direct")
    declare_delayed(channel, kind="direct")
    with pytest.raises(ChannelClosedByBroker) as refused:
        declare_delayed(channel, kind="topic")
    assert "inequivalent arg 'x-delayed-type' for exchange 'later' in vhost '/'" in refused.value.reply_text


def test_an_exchange_with_the_longest_name_can_hold(durable: Stage) -> None:
    name = "n" * 255
    channel = durable.channel()
    declare_delayed(channel, name)
    bound(channel, "q", exchange=name)
    channel.basic_publish(name, "", b"x", headed(x_delay=400))
    durable.kill_and_start()
    assert take(durable.channel(), "q")[2] == b"x"


def test_three_thousand_held_messages_are_released_while_others_are_served(either: Stage) -> None:
    channel = either.channel(confirms=False)
    declare_delayed(channel)
    bound(channel, "q")
    bodies = [b"%04d" % number for number in range(3000)]
    properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 1000})
    for body in bodies:
        channel.basic_publish("later", "", body, properties)
    asker = either.channel()
    wait_for_ready(asker, "q", 3000)
    assert drain(channel, "q") == bodies
    assert ready(asker, "q") == 0
