"""The twelve steps from a message's arrival to the wire, one by one on a running server.

The steps are those of Qpid's article on consumers and queues. There a target has consumers, a session has targets, a
connection has sessions; here a subscription has queue consumers, a channel has subscriptions, a connection has
channels.
"""

from __future__ import annotations

from penstock.queues.consumers.node_list import INTERESTED, NOT_INTERESTED, NOTIFIED
from penstock.server.connection.connection import Connection
from penstock.server.server import Server
from penstock.testing import Broker
from tests.server.amqp_client import publish_frames
from tests.server.brokers import queue_of
from tests.server.conftest import Connect


def connection_of(server: Server, tag: str) -> Connection:
    """The connection whose channel 1 has a consumer of this tag."""
    return next(each for each in server.connections if tag in each.channels[1].subscriptions)


def walk(server: Server) -> None:
    """On the loop's own thread: nothing else happens meanwhile."""
    queue = queue_of(server, "q")
    scheduler = server.scheduler
    connection, waiting = connection_of(server, "first"), connection_of(server, "second")
    channel = connection.channels[1]
    subscription = channel.subscriptions["first"]
    elsewhere, consumer = subscription.consumers
    state_of = queue.consumers.state_of
    stopped_channel = connection_of(server, "stopped").channels[1]
    stopped_channel.flow_stopped = True
    stopped_channel.update_interest()
    suspended = stopped_channel.subscriptions["stopped"].consumers[0]
    assert (state_of(consumer), state_of(suspended)) == (INTERESTED, NOT_INTERESTED)
    assert not scheduler._working

    # 1. A message arrives on the queue.
    connection_of(server, "publisher").data_received(publish_frames(1, "q", b"m"))
    assert len(queue) == 1
    # 2. The queue notifies some of the interested consumers: one for one message, none that flow suspends.
    assert state_of(consumer) == NOTIFIED
    assert state_of(waiting.channels[1].subscriptions["second"].consumers[0]) == INTERESTED
    assert state_of(suspended) == NOT_INTERESTED
    # 3. The consumer has told its target.
    assert consumer.listed
    assert list(subscription._working) == [consumer]
    assert not elsewhere.listed
    # 4. The target has told its session, a channel here.
    assert list(channel._working) == [subscription]
    # 5. The session has told its connection.
    assert list(connection._working) == [channel]
    assert not waiting._working
    # 6. The connection has scheduled itself. Nothing is delivered yet: the publishing side ends here.
    assert list(scheduler._working) == [connection]
    assert not connection.out
    # 7. The scheduler lets the connection work ...
    scheduled = scheduler._working.popleft()
    assert scheduled is connection
    # 8. ... which goes over its channels that want to ...
    assert connection._working.popleft() is channel
    channel.listed = False
    connection._scheduled = bool(connection._working)
    # 9. ... the channel over its subscriptions ...
    assert channel._working.popleft() is subscription
    subscription.listed = False
    # 10. ... and the subscription over its consumers.
    assert subscription._working.popleft() is consumer
    consumer.listed = False
    # 11. The consumer pulls, and gets the message. It has emptied the queue and waits as before.
    assert subscription.pull_from(consumer) == 1
    assert len(queue) == 0
    assert state_of(consumer) == INTERESTED
    # 12. The message is on the buffer that is sent down the wire.
    assert b"".join(connection.out).endswith(b"m\xce")


def test_the_twelve_steps(broker: Broker, connect: Connect) -> None:
    publisher, first, second, stopped = (connect(broker) for _ in range(4))
    for name in ("q", "other"):
        publisher.declare(1, name)
    first.consume(1, "", "first", arguments={"x-multiqueue": ["other", "q"]})
    second.consume(1, "q", "second")
    stopped.consume(1, "q", "stopped", arguments={"x-priority": 9})
    publisher.consume(1, "other", "publisher", arguments={"x-priority": -1})

    broker.call(walk)
    assert first.message().body == b"m"
    # And all at once, as it always happens.
    publisher.publish(1, "q", b"n")
    assert second.message().body == b"n"
