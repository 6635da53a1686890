"""x-consumer-timeout through a real client and with the real clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest

from penstock.testing import Broker
from tests.interop.pika_inbox import publish_all, wait_for_ready
from tests.server.conftest import StartBroker
from tests.server.pika_clients import OpenChannel, consume, pika_channels, quiet


@pytest.fixture
def open_channel(either_broker: Broker) -> Iterator[OpenChannel]:
    with pika_channels(either_broker) as open_one:
        yield open_one


def test_a_stuck_consumer_loses_its_message_to_another_and_keeps_its_channel(open_channel: OpenChannel) -> None:
    publisher, stuck, other = open_channel(), open_channel(), open_channel()
    publisher.queue_declare("q", arguments={"x-consumer-timeout": 100})
    stuck.basic_qos(prefetch_count=1)
    held = consume(stuck, "q")
    publish_all(publisher, "q", b"1")
    held.wait_for(stuck, 1)
    # So that it is not given the same message once more.
    stuck.basic_cancel(stuck.consumer_tags[0])
    taken = consume(other, "q")
    taken.wait_for(other, 1)
    assert taken.redelivered == [True]
    stuck.basic_ack(held.tags[0])
    quiet(stuck)
    other.basic_nack(taken.tags[-1], requeue=True)
    taken.wait_for(other, 2)
    assert stuck.is_open


def test_a_consumer_may_ask_for_a_timeout_of_its_own(open_channel: OpenChannel) -> None:
    publisher, stuck = open_channel(), open_channel()
    publisher.queue_declare("q")
    publish_all(publisher, "q", b"1", b"2")
    stuck.basic_qos(prefetch_count=2)
    held = consume(stuck, "q", x_consumer_timeout=100)
    held.wait_for(stuck, 4)
    assert held.bodies[:4] == [b"1", b"2", b"1", b"2"]
    assert held.redelivered[:4] == [False, False, True, True]


def test_a_message_that_was_got_goes_back_too(open_channel: OpenChannel) -> None:
    channel = open_channel()
    channel.queue_declare("q", arguments={"x-consumer-timeout": 50})
    publish_all(channel, "q", b"1")
    wait_for_ready(channel, "q", 1)
    method, _, _ = channel.basic_get("q")
    wait_for_ready(channel, "q", 1)
    channel.basic_ack(method.delivery_tag)
    wait_for_ready(channel, "q", 1)
    assert channel.basic_get("q")[0].redelivered


def test_a_message_that_went_back_is_there_after_a_crash(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(data_dir=str(tmp_path))
    with pika_channels(broker) as open_one:
        channel = open_one()
        channel.queue_declare("q", durable=True, arguments={"x-consumer-timeout": 50})
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"1", pika.BasicProperties(delivery_mode=2))
        method, _, _ = channel.basic_get("q")
        wait_for_ready(channel, "q", 1)
        # Too late to count.
        channel.basic_ack(method.delivery_tag)
        quiet(channel)
        broker.kill()
    broker.start()
    with pika_channels(broker) as open_one:
        channel = open_one()
        # The argument is still there: it may be declared again as it was, and not otherwise.
        channel.queue_declare("q", durable=True, arguments={"x-consumer-timeout": 50})
        method, _, body = channel.basic_get("q")
        assert (body, method.redelivered) == (b"1", True)
        wait_for_ready(channel, "q", 1)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare("q", durable=True, arguments={"x-consumer-timeout": 51})
