"""x-selector through a real client: consumers and browsers that choose."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock.testing import Broker
from tests.interop.pika_inbox import ready_count, wait_for_ready
from tests.server.pika_clients import OpenChannel, consume, pika_channels, quiet


@pytest.fixture
def open_channel(broker: Broker) -> Iterator[OpenChannel]:
    with pika_channels(broker) as open_one:
        yield open_one


def publish(channel: BlockingChannel, *colours: str) -> None:
    """One message for each, with its number as the body."""
    for number, colour in enumerate(colours):
        channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(headers={"colour": colour}))


def test_a_consumer_gets_what_it_selects_in_order_and_the_rest_stays(open_channel: OpenChannel) -> None:
    publisher, reds = open_channel(), open_channel()
    publisher.queue_declare("q")
    publish(publisher, "red", "blue", "red", "green", "red")
    red = consume(reds, "q", x_selector="colour = 'red'")
    red.wait_for(reds, 3)
    assert red.bodies == [b"0", b"2", b"4"]
    reds.basic_ack(red.tags[-1], multiple=True)
    wait_for_ready(publisher, "q", 2)
    assert [publisher.basic_get("q", auto_ack=True)[2] for _ in range(2)] == [b"1", b"3"]


def test_consumers_with_different_selectors_share_a_queue(open_channel: OpenChannel) -> None:
    publisher, reds, others = open_channel(), open_channel(), open_channel()
    publisher.queue_declare("q")
    red = consume(reds, "q", auto_ack=True, x_selector="colour = 'red'")
    other = consume(others, "q", auto_ack=True, **{"x-filter-jms-selector": "colour <> 'red'"})
    colours = [colour for colour, _ in zip(cycle(("red", "blue", "green")), range(300), strict=False)]
    publish(publisher, *colours)
    red.wait_for(reds, 100)
    other.wait_for(others, 200)
    assert red.bodies == [b"%d" % number for number in range(0, 300, 3)]
    assert other.bodies == [b"%d" % number for number in range(300) if number % 3]
    assert ready_count(publisher, "q") == 0


def test_what_is_rejected_comes_back_to_who_selects_it(open_channel: OpenChannel) -> None:
    publisher, reds, anyone = open_channel(), open_channel(), open_channel()
    publisher.queue_declare("q")
    publish(publisher, "blue", "red")
    red = consume(reds, "q", x_selector="colour = 'red'")
    red.wait_for(reds, 1)
    reds.basic_nack(red.tags[0], requeue=True)
    red.wait_for(reds, 2)
    assert red.redelivered == [False, True]
    reds.connection.close()
    both = consume(anyone, "q", auto_ack=True)
    both.wait_for(anyone, 2)
    assert both.bodies == [b"0", b"1"]
    assert both.redelivered == [False, True]


def test_prefetch_counts_what_was_selected(open_channel: OpenChannel) -> None:
    publisher, reds = open_channel(), open_channel()
    publisher.queue_declare("q")
    publish(publisher, *("blue", "red") * 10)
    reds.basic_qos(prefetch_count=2)
    red = consume(reds, "q", x_selector="colour = 'red'")
    red.wait_for(reds, 2)
    quiet(publisher, reds)
    assert red.bodies == [b"1", b"3"]
    reds.basic_ack(red.tags[0])
    red.wait_for(reds, 3)


def test_a_rare_message_is_found_far_behind_the_head(open_channel: OpenChannel) -> None:
    publisher, reds = open_channel(), open_channel()
    publisher.queue_declare("q")
    red = consume(reds, "q", x_selector="colour = 'red'")
    publish(publisher, *("blue",) * 5_000, "red")
    red.wait_for(reds, 1)
    assert red.bodies == [b"5000"]
    wait_for_ready(publisher, "q", 5_000)


def test_a_bad_selector_closes_the_channel_and_says_where(open_channel: OpenChannel) -> None:
    channel = open_channel()
    channel.queue_declare("q")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        consume(channel, "q", x_selector="colour = 'red' OR size >")
    assert refused.value.reply_code == 406
    assert "invalid arg 'x-selector' for queue 'q' in vhost '/': column 25: " in refused.value.reply_text


def test_a_browser_shows_what_it_selects(open_channel: OpenChannel) -> None:
    publisher, browser = open_channel(), open_channel()
    publisher.queue_declare("q")
    publish(publisher, *("blue",) * 2_500, "red", "blue", "red", "red")
    seen = consume(browser, "q", auto_ack=True, x_browse=True, x_selector="colour = 'red'")
    seen.wait_for(browser, 3)
    assert seen.bodies == [b"2500", b"2502", b"2503"]
    publish(publisher, "blue", "red")
    seen.wait_for(browser, 4)
    wait_for_ready(publisher, "q", 2_506)


def test_a_browser_sees_what_a_selective_consumer_has_passed_over(open_channel: OpenChannel) -> None:
    publisher, reds, browser = open_channel(), open_channel(), open_channel()
    publisher.queue_declare("q")
    publish(publisher, "blue", "red", "green", "red", "blue")
    red = consume(reds, "q", auto_ack=True, x_selector="colour = 'red'")
    red.wait_for(reds, 2)
    seen = consume(browser, "q", auto_ack=True, x_browse=True)
    seen.wait_for(browser, 3)
    assert seen.bodies == [b"0", b"2", b"4"]


def test_a_browser_can_begin_with_what_comes_next_or_at_a_number(open_channel: OpenChannel) -> None:
    publisher, first, later, fifth = open_channel(), open_channel(), open_channel(), open_channel()
    publisher.queue_declare("q")
    publish(publisher, *("blue",) * 10)
    wait_for_ready(publisher, "q", 10)
    from_next = consume(later, "q", auto_ack=True, x_browse=True, x_browse_from="next")
    from_first = consume(first, "q", auto_ack=True, x_browse=True, x_browse_from="first")
    from_fifth = consume(fifth, "q", auto_ack=True, x_browse=True, x_browse_from=5)
    publisher.basic_publish("", "q", b"new")
    from_next.wait_for(later, 1)
    from_first.wait_for(first, 11)
    from_fifth.wait_for(fifth, 6)
    assert from_next.bodies == [b"new"]
    assert from_fifth.bodies == [b"5", b"6", b"7", b"8", b"9", b"new"]
