"""Messages with an expiration leave by themselves, from the head of the queue."""

from __future__ import annotations

from pamqp import commands

from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.brokers import backing_depth, queue_of
from tests.server.conftest import Connect


def test_the_head_is_dropped_without_consumers_and_without_anybody_looking(
    either_broker: Broker, connect: Connect
) -> None:
    broker = either_broker
    client = connect(broker)
    client.declare(1, "q")
    client.publish(1, "q", *[b"x"] * 10, expiration="50")
    wait_until(lambda: backing_depth(broker, "q") == 0, "they have expired")


def test_only_the_head_is_dropped(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.publish(1, "q", b"gone", expiration="100")
    client.publish(1, "q", b"stays")
    client.publish(1, "q", b"behind", expiration="20")
    client.publish(1, "q", b"later", expiration="60000")
    wait_until(lambda: backing_depth(broker, "q") == 3, "the head has expired")
    client.consume(1, "q", no_ack=True)
    assert client.bodies(2) == [b"stays", b"later"]


def test_a_sooner_expiry_comes_first_whichever_queue_was_first(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    for name, expiration in (("slow", "60000"), ("quick", "30"), ("middle", "300")):
        client.declare(1, name)
        client.publish(1, name, b"x", expiration=expiration)
    wait_until(lambda: backing_depth(broker, "quick") == 0, "the quick one has expired")
    assert backing_depth(broker, "slow") == 1
    wait_until(lambda: backing_depth(broker, "middle") == 0, "the one in the middle has expired")
    assert backing_depth(broker, "slow") == 1


def test_an_unacknowledged_message_expires_when_it_comes_back(broker: Broker, connect: Connect) -> None:
    client, holder = connect(broker), connect(broker)
    client.declare(1, "q")
    client.publish(1, "q", b"x", expiration="30")
    client.publish(1, "q", b"clock", expiration="100")
    holder.qos(1, 1)
    holder.consume(1, "q")
    assert holder.message().body == b"x"
    wait_until(lambda: backing_depth(broker, "q") == 0, "the one behind it has expired")
    holder.drop()
    wait_until(
        lambda: broker.call(lambda server: queue_of(server, "q").expiry.expired_count) == 2,
        "both have expired in the end",
    )
    assert broker.call(lambda server: queue_of(server, "q").backing.depth()) == 0


def test_a_message_that_comes_back_after_a_purge_still_expires(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.declare(1, "clock")
    client.publish(1, "q", b"x", expiration="100")
    client.publish(1, "q", b"y", expiration="400")
    tags = []
    for _ in range(2):
        client.send(1, commands.Basic.Get(0, "q"))
        tags.append(client.message().method.delivery_tag)
    client.call(1, commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk)
    # Past the time of the first, whose wake-up is used up then.
    client.publish(1, "clock", b"x", expiration="200")
    wait_until(lambda: backing_depth(broker, "clock") == 0, "time has passed")
    client.send(1, commands.Basic.Reject(tags[1], True))
    client.barrier(1)
    assert backing_depth(broker, "q") == 1
    wait_until(lambda: backing_depth(broker, "q") == 0, "the message has expired")


def test_zero_reaches_a_waiting_consumer_or_nobody(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    client.publish(1, "q", b"nobody", expiration="0")
    client.barrier(1)
    assert backing_depth(broker, "q") == 0
    client.consume(1, "q", no_ack=True)
    client.publish(1, "q", b"at once", expiration="0")
    assert client.message().body == b"at once"


def test_the_longest_expiration_does_no_harm(either_broker: Broker, connect: Connect) -> None:
    broker = either_broker
    client = connect(broker)
    client.declare(1, "q")
    client.publish(1, "q", b"x", expiration=str(10 * 365 * 24 * 3600 * 1000))
    client.declare(1, "r")
    client.publish(1, "r", b"x", expiration="20")
    wait_until(lambda: backing_depth(broker, "r") == 0, "the timer still works")
    assert backing_depth(broker, "q") == 1


def test_a_queue_that_is_deleted_takes_its_timer_along(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    for _ in range(100):
        client.declare(1, "q")
        client.publish(1, "q", b"x", expiration="60000")
        client.call(1, commands.Queue.Delete(0, "q"), commands.Queue.DeleteOk)
    client.barrier(1)
    assert broker.call(lambda server: server.broker.expiries.next_due_ms()) == -1
