"""Messages and queues that end by time: x-message-ttl, expiration, x-expires, x-expire-anywhere."""

from __future__ import annotations

import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.features.conftest import Restart
from tests.features.stage import (
    FAR_MS,
    Stage,
    declare,
    drain,
    drain_until,
    publish,
    ready,
    take,
    wait_for_ready,
)
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import Inbox
from tests.server.brokers import has_queue


def test_a_message_outlives_neither_the_time_of_its_queue_nor_its_own(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_message_ttl=30)
    publish(channel, "q", b"queue's time")
    wait_for_ready(channel, "q", 0)
    publish(channel, "q", b"own time is longer", expiration=str(FAR_MS))
    wait_for_ready(channel, "q", 0)
    declare(channel, "far", x_message_ttl=FAR_MS)
    publish(channel, "far", b"own time is shorter", expiration="30")
    wait_for_ready(channel, "far", 0)


def test_nothing_that_is_published_with_a_time_of_zero_stays(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "by-queue", x_message_ttl=0)
    declare(channel, "plain")
    publish(channel, "by-queue", b"1", b"2")
    publish(channel, "plain", b"1", expiration="0")
    assert (drain(channel, "by-queue"), drain(channel, "plain")) == ([], [])


def test_a_message_with_a_time_of_zero_reaches_a_consumer_that_waits(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_message_ttl=0)
    inbox = Inbox()
    channel.basic_consume("q", inbox, auto_ack=True)
    publish(channel, "q", b"now")
    inbox.wait_for(channel, 1)
    assert inbox.bodies == [b"now"]


def test_an_expired_message_behind_one_that_lasts_stays_until_it_is_at_the_head(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q")
    declare(channel, "clock")
    publish(channel, "q", b"lasts")
    publish(channel, "q", b"expires", expiration="1")
    publish(channel, "clock", b"later", expiration="20")
    wait_for_ready(channel, "clock", 0)
    assert ready(channel, "q") == 2
    assert take(channel, "q")[2] == b"lasts"
    assert drain(channel, "q") == []


def test_a_queue_that_expires_anywhere_drops_from_the_middle_and_from_the_end(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_expire_anywhere=True)
    for body, expiration in ((b"a", None), (b"x", "20"), (b"b", str(FAR_MS)), (b"y", "10"), (b"c", None), (b"z", "1")):
        publish(channel, "q", body, expiration=expiration)
    wait_for_ready(channel, "q", 3)
    assert drain(channel, "q") == [b"a", b"b", b"c"]


def test_a_message_that_expires_anywhere_becomes_a_dead_letter(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "dead")
    declare(channel, "q", x_expire_anywhere=True, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    publish(channel, "q", b"lasts")
    publish(channel, "q", b"middle", expiration="10")
    publish(channel, "q", b"lasts too")
    assert take(channel, "dead")[2] == b"middle"
    assert drain(channel, "q") == [b"lasts", b"lasts too"]


def test_a_message_that_came_back_expires_in_the_middle_too(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_expire_anywhere=True)
    publish(channel, "q", b"lasts")
    publish(channel, "q", b"comes back", expiration="300")
    publish(channel, "q", b"lasts too")
    tags = [take(channel, "q", ack=False)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(tags[-1], multiple=True, requeue=True)
    wait_for_ready(channel, "q", 2)
    assert drain(channel, "q") == [b"lasts", b"lasts too"]


def test_an_unacknowledged_message_does_not_expire_and_does_when_it_comes_back(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_message_ttl=50)
    declare(channel, "clock", x_message_ttl=60)
    publish(channel, "q", b"held by a consumer")
    method, _, _ = take(channel, "q", ack=False)
    publish(channel, "clock", b"later")
    wait_for_ready(channel, "clock", 0)
    channel.basic_nack(method.delivery_tag, requeue=True)
    wait_for_ready(channel, "q", 0)


def test_time_goes_on_while_the_broker_is_down(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    declare(channel, "q")
    declare(channel, "anywhere", x_expire_anywhere=True)
    for queue in ("q", "anywhere"):
        publish(channel, queue, b"first", expiration="400")
        publish(channel, queue, b"far", expiration=str(FAR_MS))
        publish(channel, queue, b"behind", expiration="400")
        publish(channel, queue, b"lasts")
    restart(durable)
    channel = durable.channel()
    wait_for_ready(channel, "anywhere", 2)
    wait_for_ready(channel, "q", 3)
    assert drain(channel, "anywhere") == [b"far", b"lasts"]
    assert drain(channel, "q") == [b"far", b"lasts"]


def test_an_unused_queue_goes_after_its_time(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_expires=30)
    publish(channel, "q", b"goes with it")
    wait_until(lambda: not has_queue(either.broker, "q"), "the queue is gone")
    declare(channel, "q")
    assert drain(channel, "q") == []


def test_a_queue_in_use_outlives_its_time_and_goes_after_its_last_consumer(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_expires=60)
    declare(channel, "clock", x_expires=200)
    inbox = Inbox()
    tags = [channel.basic_consume("q", inbox, auto_ack=True) for _ in range(2)]
    wait_until(lambda: not has_queue(either.broker, "clock"), "a queue with a longer time is gone")
    channel.basic_cancel(tags[0])
    publish(channel, "q", b"still here")
    inbox.wait_for(channel, 1)
    channel.basic_cancel(tags[1])
    wait_until(lambda: not has_queue(either.broker, "q"), "the queue is gone")


def test_the_time_of_an_unused_queue_begins_anew_at_a_start(durable: Stage, restart: Restart) -> None:
    channel = durable.channel()
    declare(channel, "q", x_expires=300)
    declare(channel, "far", x_expires=FAR_MS)
    publish(channel, "q", b"stays for now")
    restart(durable)
    assert has_queue(durable.broker, "q")
    wait_until(lambda: not has_queue(durable.broker, "q"), "the queue is gone")
    assert has_queue(durable.broker, "far")
    restart(durable)
    assert not has_queue(durable.broker, "q")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", "10", '"expected integer, got longstr"'),
        ("x-message-ttl", 10 * 365 * 24 * 3600 * 1000 + 1, "{value_too_large,315360000001}"),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", 10 * 365 * 24 * 3600 * 1000 + 1, "{value_too_large,315360000001}"),
        ("x-expire-anywhere", 1, "expected true or false, got"),
    ],
)
def test_a_time_that_cannot_be_is_refused(stage: Stage, name: str, value: object, text: str) -> None:
    channel = stage.channel()
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.queue_declare("q", arguments={name: value})
    assert refused.value.reply_code == 406
    assert f"invalid arg '{name}' for queue 'q' in vhost '/': {text}" in refused.value.reply_text


@pytest.mark.parametrize("expiration", ["-1", "x", "1.5", "315360000001"])
def test_an_expiration_that_cannot_be_is_refused(stage: Stage, expiration: str) -> None:
    channel = stage.channel()
    declare(channel, "q")
    with pytest.raises(ChannelClosedByBroker) as refused:
        publish(channel, "q", b"x", expiration=expiration)
    assert (refused.value.reply_code, "invalid expiration" in refused.value.reply_text) == (406, True)


def test_the_longest_times_are_kept(durable: Stage) -> None:
    channel = durable.channel()
    longest = 10 * 365 * 24 * 3600 * 1000
    declare(channel, "q", x_message_ttl=longest, x_expires=longest)
    publish(channel, "q", b"a", expiration=str(longest))
    durable.kill_and_start()
    assert drain_until(durable.channel(), "q", 1) == [b"a"]
