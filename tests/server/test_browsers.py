"""Browsers: consumers with x-browse=true read messages and take none."""

from __future__ import annotations

import pytest
from pamqp import commands, frame

from penstock.testing import Broker
from tests.server.amqp_client import publish_frames
from tests.server.brokers import consumer_states
from tests.server.conftest import Connect

BROWSE = {"x-browse": True}


def bodies_of(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@pytest.mark.parametrize("count", [1, 10, 3_000])
def test_a_browser_reads_everything_in_order_and_takes_nothing(count: int, broker: Broker, connect: Connect) -> None:
    publisher, browser = connect(broker), connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *bodies_of(count))
    publisher.barrier(1)
    browser.consume(1, "q", arguments=BROWSE)
    assert browser.bodies(count) == bodies_of(count)
    assert broker.queue_depth("q") == count
    browser.barrier(1)
    assert not browser.waiting_messages()


def test_a_browser_sees_what_comes_later(broker: Broker, connect: Connect) -> None:
    publisher, browser = connect(broker), connect(broker)
    publisher.declare(1, "q")
    browser.consume(1, "q", arguments=BROWSE)
    for body in bodies_of(20):
        publisher.publish(1, "q", body)
        assert browser.message().body == body
    assert broker.queue_depth("q") == 20
    assert consumer_states(broker, "q")["non_acquiring"] == 1


def test_several_browsers_each_read_everything(broker: Broker, connect: Connect) -> None:
    publisher = connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *bodies_of(100))
    browsers = [connect(broker) for _ in range(3)]
    for browser in browsers:
        browser.consume(1, "q", arguments=BROWSE)
    publisher.publish(1, "q", *bodies_of(100, 100))
    for browser in browsers:
        assert browser.bodies(200) == bodies_of(200)
    assert broker.queue_depth("q") == 200


def test_a_browser_beside_a_consumer_takes_no_turn(broker: Broker, connect: Connect) -> None:
    publisher, browser, consumer = connect(broker), connect(broker), connect(broker)
    publisher.declare(1, "q")
    browser.consume(1, "q", arguments=BROWSE)
    publisher.publish(1, "q", *bodies_of(10))
    assert browser.bodies(10) == bodies_of(10)
    consumer.consume(1, "q", no_ack=True)
    assert consumer.bodies(10) == bodies_of(10)
    assert broker.queue_depth("q") == 0


def test_a_browser_sees_what_a_purge_behind_the_publish_takes_away(broker: Broker, connect: Connect) -> None:
    publisher, browser, consumer = connect(broker), connect(broker), connect(broker)
    publisher.declare(1, "q")
    browser.consume(1, "q", arguments=BROWSE)
    consumer.qos(1, 1)
    consumer.consume(1, "q")
    publishes = b"".join([publish_frames(1, "q", body) for body in bodies_of(3)])
    publisher.socket.sendall(publishes + frame.marshal(commands.Queue.Purge(0, "q"), 1))
    assert publisher.expect(commands.Queue.PurgeOk).message_count == 2
    assert browser.bodies(3) == bodies_of(3)
    assert consumer.bodies(1) == bodies_of(1)


def test_prefetch_and_acks_do_not_concern_a_browser(broker: Broker, connect: Connect) -> None:
    publisher, browser = connect(broker), connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *bodies_of(50))
    browser.qos(1, 3)
    browser.consume(1, "q", arguments=BROWSE)
    tags = [message.method.delivery_tag for message in browser.messages(50)]
    browser.ack(1, tags[0])
    assert browser.expect(commands.Channel.Close).reply_text == "PRECONDITION_FAILED - unknown delivery tag 1"
    assert broker.queue_depth("q") == 50


def test_a_browser_survives_a_purge(broker: Broker, connect: Connect) -> None:
    publisher, browser = connect(broker), connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *bodies_of(10))
    browser.consume(1, "q", arguments=BROWSE)
    browser.messages(10)
    publisher.call(1, commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk)
    publisher.publish(1, "q", b"new")
    assert browser.message().body == b"new"


def test_a_browser_whose_queue_is_deleted_is_told(broker: Broker, connect: Connect) -> None:
    publisher, browser = connect(broker), connect(broker)
    publisher.declare(1, "q")
    tag = browser.consume(1, "q", arguments=BROWSE)
    publisher.call(1, commands.Queue.Delete(0, "q"), commands.Queue.DeleteOk)
    assert browser.expect(commands.Basic.Cancel).consumer_tag == tag


def test_a_message_that_comes_back_ahead_of_a_new_browser_is_seen_by_it(broker: Broker, connect: Connect) -> None:
    publisher, holder, browser = connect(broker), connect(broker), connect(broker)
    publisher.declare(1, "q")
    publisher.publish(1, "q", *bodies_of(5))
    holder.qos(1, 2)
    holder.consume(1, "q")
    held = holder.messages(2)
    assert [message.body for message in held] == bodies_of(2)
    for message in held:
        holder.send(1, commands.Basic.Nack(message.method.delivery_tag, False, True))
    holder.drop()
    publisher.barrier(1)
    browser.consume(1, "q", arguments=BROWSE)
    assert browser.bodies(5) == bodies_of(5)


@pytest.mark.parametrize("value", [False, 1, "true"])
def test_only_true_makes_a_browser(value: object, broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.publish(1, "q", b"x")
    client.consume(1, "q", no_ack=True, arguments={"x-browse": value})
    client.message()
    assert broker.queue_depth("q") == 0
