"""x-single-active-consumer through a real client: one is served, the next one takes over."""

from __future__ import annotations

from collections.abc import Iterator

import pika.exceptions
import pytest

from penstock.testing import Broker
from tests.interop.pika_inbox import publish_all, wait_for_ready
from tests.server.pika_clients import OpenChannel, consume, pika_channels, quiet

SINGLE = {"x-single-active-consumer": True}


@pytest.fixture
def open_channel(broker: Broker) -> Iterator[OpenChannel]:
    with pika_channels(broker) as open_one:
        yield open_one


def test_one_consumer_is_served_and_its_successor_goes_on_with_what_it_left(open_channel: OpenChannel) -> None:
    publisher, first, second = open_channel(), open_channel(), open_channel()
    publisher.queue_declare("q", arguments=SINGLE)
    served, waiting = consume(first, "q"), consume(second, "q")
    publish_all(publisher, "q", b"1", b"2", b"3")
    served.wait_for(first, 3)
    quiet(second)
    assert waiting.bodies == []
    first.basic_ack(served.tags[0])
    first.connection.close()
    waiting.wait_for(second, 2)
    assert waiting.bodies == [b"2", b"3"]
    assert waiting.redelivered == [True, True]
    publish_all(publisher, "q", b"4")
    waiting.wait_for(second, 3)


def test_the_successor_has_the_highest_priority(open_channel: OpenChannel) -> None:
    publisher, consumers = open_channel(), [open_channel() for _ in range(4)]
    publisher.queue_declare("q", arguments=SINGLE)
    inboxes = [
        consume(channel, "q", auto_ack=True, x_priority=priority)
        for channel, priority in zip(consumers, (0, 1, 5, 5), strict=True)
    ]
    for index in (0, 2, 3, 1):
        publish_all(publisher, "q", b"%d" % index)
        inboxes[index].wait_for(consumers[index], 1)
        consumers[index].connection.close()
    assert [inbox.bodies for inbox in inboxes] == [[b"0"], [b"1"], [b"2"], [b"3"]]


def test_an_active_consumer_that_is_out_of_credit_blocks_the_queue(open_channel: OpenChannel) -> None:
    publisher, first, second = open_channel(), open_channel(), open_channel()
    publisher.queue_declare("q", arguments=SINGLE)
    first.basic_qos(prefetch_count=1)
    served, waiting = consume(first, "q"), consume(second, "q", x_priority=10)
    publish_all(publisher, "q", b"1", b"2")
    served.wait_for(first, 1)
    quiet(publisher, second)
    assert waiting.bodies == []
    wait_for_ready(publisher, "q", 1)
    first.basic_ack(1)
    served.wait_for(first, 2)


def test_an_exclusive_consumer_is_refused_also_as_the_first(open_channel: OpenChannel) -> None:
    channel = open_channel()
    channel.queue_declare("q", arguments=SINGLE)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.basic_consume("q", lambda *_: None, exclusive=True)
    assert (refused.value.reply_code, refused.value.reply_text) == (
        403,
        "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use",
    )


def test_browsers_look_on(open_channel: OpenChannel) -> None:
    publisher, browser, consumer = open_channel(), open_channel(), open_channel()
    publisher.queue_declare("q", arguments=SINGLE)
    seen = consume(browser, "q", auto_ack=True, x_browse=True)
    publish_all(publisher, "q", b"1")
    seen.wait_for(browser, 1)
    taken = consume(consumer, "q")
    taken.wait_for(consumer, 1)
    publish_all(publisher, "q", b"2")
    taken.wait_for(consumer, 2)
    assert seen.bodies[0] == b"1"
