"""A client that does not read: what waits for it is bounded, its consumers are not interested, others go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands, frame

from penstock import limits
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client, publish_frames
from tests.server.brokers import connection_count, consumer_states, output_bytes
from tests.server.conftest import Connect, StartBroker

# A window this small fills at once.
SMALL_WINDOW = 4_096
# The high-water mark, what is gathered within a turn, one pull, and some frames.
DELIVERY_BYTES_BOUND = limits.WRITE_BUFFER_BYTES_HIGH + 2 * 256 * 1024 + limits.PULL_BYTES_MAX
# Answers: the mark at which requests are not read any more, and what was gathered when it was passed.
ANSWER_BYTES_BOUND = limits.OUTPUT_BYTES_MAX + limits.WRITE_BUFFER_BYTES_HIGH + 2 * 256 * 1024


def wait_until_stuck(broker: Broker, queue: str, count: int = 1) -> None:
    wait_until(lambda: consumer_states(broker, queue)["not_interested"] == count, "the consumer is not interested")


def numbered(count: int, size: int) -> list[bytes]:
    return [b"%06d" % number + b"." * (size - 6) for number in range(count)]


def test_a_consumer_that_does_not_read_is_not_interested_until_it_does(either_broker: Broker, connect: Connect) -> None:
    broker = either_broker
    publisher = connect(broker)
    publisher.declare(1, "q")
    stuck = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    stuck.consume(1, "q", no_ack=True)
    bodies = numbered(2_000, 5_000)
    publisher.publish(1, "q", *bodies)
    publisher.barrier(1)
    wait_until_stuck(broker, "q")
    assert output_bytes(broker) < DELIVERY_BYTES_BOUND
    assert broker.queue_depth("q") > 1_000
    assert stuck.bodies(2_000) == bodies
    assert broker.queue_depth("q") == 0
    assert consumer_states(broker, "q")["not_interested"] == 0
    publisher.publish(1, "q", b"later")
    assert stuck.message().body == b"later"


def test_others_get_the_messages_that_a_stuck_consumer_leaves(either_broker: Broker, connect: Connect) -> None:
    broker = either_broker
    publisher = connect(broker)
    publisher.declare(1, "q")
    stuck = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    stuck.consume(1, "q", no_ack=True)
    publisher.publish(1, "q", *numbered(2_000, 5_000))
    publisher.barrier(1)
    wait_until_stuck(broker, "q")
    left = broker.queue_depth("q")
    other = connect(broker)
    other.consume(1, "q", no_ack=True)
    others = other.bodies(left)
    assert broker.queue_depth("q") == 0
    publisher.publish(1, "q", b"new")
    assert other.message().body == b"new"
    # Each message went to exactly one of the two, and to each in order.
    stucks = stuck.bodies(2_000 - left)
    assert stucks + others == numbered(2_000, 5_000)


def test_the_output_is_bounded_with_many_consumers_on_the_connection(either_broker: Broker, connect: Connect) -> None:
    broker = either_broker
    publisher = connect(broker)
    stuck = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    names = [f"q{number}" for number in range(20)]
    for number, name in enumerate(names, 2):
        publisher.declare(1, name)
        publisher.publish(1, name, *numbered(40, 10_000))
        stuck.open_channel(number)
    publisher.barrier(1)
    for number, name in enumerate(names, 2):
        stuck.send(number, commands.Basic.Consume(0, name, no_ack=True))
    for name in names:
        wait_until_stuck(broker, name)
    assert output_bytes(broker) < DELIVERY_BYTES_BOUND
    assert len(stuck.messages(20 * 40)) == 800


def test_large_messages_wait_in_the_queue_not_in_the_output(broker: Broker, connect: Connect) -> None:
    size = 4 * 1024 * 1024
    publisher = connect(broker)
    publisher.declare(1, "q")
    stuck = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    stuck.consume(1, "q", no_ack=True)
    publisher.publish(1, "q", *[bytes([number]) * size for number in range(6)])
    publisher.barrier(1)
    wait_until_stuck(broker, "q")
    assert output_bytes(broker) < 2 * size
    assert broker.queue_depth("q") >= 4
    assert [message.body[:1] for message in stuck.messages(6)] == [bytes([number]) for number in range(6)]


def test_a_stuck_consumer_does_not_slow_its_neighbours(broker: Broker, connect: Connect) -> None:
    publisher = connect(broker)
    for name in ("stuck", "live"):
        publisher.declare(1, name)
        publisher.call(1, commands.Queue.Bind(0, name, "amq.fanout"), commands.Queue.BindOk)
    stuck = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    stuck.consume(1, "stuck", no_ack=True)
    live = connect(broker)
    live.consume(1, "live", no_ack=True)
    bodies = numbered(1_000, 5_000)
    publisher.publish(1, "", *bodies, exchange="amq.fanout")
    assert live.bodies(1_000) == bodies
    wait_until_stuck(broker, "stuck")
    # One at a time, each seen by the neighbour before the next: nothing waits for the stuck one.
    for number in range(50):
        publisher.publish(1, "", b"%d" % number, exchange="amq.fanout")
        assert live.message().body == b"%d" % number


def send_unread_gets(client: Client) -> None:
    client.declare(1, "g", exclusive=True)
    client.publish(1, "g", b"x" * 100_000)
    steps = []
    for tag in range(1, 301):
        steps += [commands.Basic.Get(0, "g"), commands.Basic.Reject(tag, True)]
    client.send(1, *steps)


def send_unread_returns(client: Client) -> None:
    publish = publish_frames(1, "nowhere", b"x" * 100_000, mandatory=True)
    client.socket.sendall(publish * 300)


def send_unread_declares(client: Client) -> None:
    declare = frame.marshal(commands.Queue.Declare(0, "q" * 200, exclusive=True), 1)
    client.socket.sendall(declare * 100_000)


@pytest.mark.parametrize("flood", [send_unread_gets, send_unread_returns, send_unread_declares])
def test_answers_that_are_not_read_do_not_pile_up(
    flood: Callable[[Client], None], either_broker: Broker, connect: Connect
) -> None:
    broker = either_broker
    greedy = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    # It must get stuck in sending, as the broker stops reading it, or be through with it.
    greedy.socket.settimeout(0.5)
    try:
        flood(greedy)
    except TimeoutError:
        # What the kernel holds of it is still to be read and answered.
        wait_until(lambda: output_bytes(broker) > 0, "the answers back up")
    other = connect(broker)
    other.barrier(1)
    assert output_bytes(broker) < ANSWER_BYTES_BOUND


def test_direct_replies_that_are_not_read_do_not_pile_up(broker: Broker, connect: Connect) -> None:
    requester = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    requester.consume(1, "amq.rabbitmq.reply-to", no_ack=True)
    requester.declare(1, "requests")
    requester.publish(1, "requests", b"?", reply_to="amq.rabbitmq.reply-to")
    responder = connect(broker)
    responder.consume(1, "requests", no_ack=True)
    address = responder.message().properties.reply_to
    responder.socket.settimeout(0.5)
    try:
        for _ in range(100):
            responder.publish(1, address, b"x" * 100_000)
    except TimeoutError:
        assert output_bytes(broker) > 0
    connect(broker).barrier(1)
    assert output_bytes(broker) < ANSWER_BYTES_BOUND


def test_a_client_that_reads_again_gets_all_its_answers(broker: Broker, connect: Connect) -> None:
    client = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    client.declare(1, "g", exclusive=True)
    client.publish(1, "g", b"x" * 100_000)
    steps = []
    for tag in range(1, 101):
        steps += [commands.Basic.Get(0, "g"), commands.Basic.Reject(tag, True)]
    client.send(1, *steps)
    assert [message.method.delivery_tag for message in client.messages(100)] == list(range(1, 101))
    client.barrier(1)


def test_a_stuck_client_that_breaks_the_protocol_is_gone_in_the_end(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(loop="uvloop")
    stuck = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    stuck.declare(1, "q")
    stuck.consume(1, "q", no_ack=True)
    other = connect(broker)
    other.publish(1, "q", *numbered(500, 10_000))
    wait_until_stuck(broker, "q")
    stuck.socket.sendall(b"\x09\x00\x00\x00\x00\x00\x00\xce")
    wait_until(lambda: connection_count(broker) == 1, "the stuck client is dropped", timeout_s=60.0)


def test_a_stuck_client_that_says_goodbye_is_gone_in_the_end(broker: Broker, connect: Connect) -> None:
    stuck = connect(broker, receive_buffer_bytes=SMALL_WINDOW)
    stuck.declare(1, "q")
    stuck.consume(1, "q", no_ack=True)
    other = connect(broker)
    other.publish(1, "q", *numbered(500, 10_000))
    wait_until_stuck(broker, "q")
    stuck.send(0, commands.Connection.Close(200, "done", 0, 0))
    wait_until(lambda: connection_count(broker) == 1, "the stuck client is dropped", timeout_s=60.0)


@pytest.mark.parametrize("by_get", [False, True])
def test_a_large_output_is_written_in_slices_and_in_order(
    by_get: bool, either_broker: Broker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITE_BYTES_PER_TURN", 10_000)
    publisher, reader = connect(either_broker), connect(either_broker)
    publisher.declare(1, "q")
    bodies = [bytes([number]) * size for number, size in enumerate((300_000, 5, 900_000, 0, 140_000, 1))]
    for each in bodies:
        publisher.publish(1, "q", each)
    publisher.barrier(1)
    if by_get:
        reader.send(1, *[commands.Basic.Get(0, "q") for _ in bodies])
    else:
        reader.consume(1, "q")
    assert reader.bodies(len(bodies)) == bodies
    reader.barrier(1)
    publisher.publish(1, "q", b"afterwards")
    if by_get:
        reader.send(1, commands.Basic.Get(0, "q"))
    assert reader.bodies(1) == [b"afterwards"]


def test_a_large_output_that_is_not_read_does_not_stop_the_end(
    either_broker: Broker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITE_BYTES_PER_TURN", 10_000)
    publisher, reader = connect(either_broker), connect(either_broker, receive_buffer_bytes=SMALL_WINDOW)
    publisher.declare(1, "q")
    reader.consume(1, "q")
    publisher.publish(1, "q", b"x" * 8_000_000)
    wait_until(lambda: output_bytes(either_broker) > 0, "some of it waits for the client")
    reader.drop()
    wait_until(lambda: broker_depth(either_broker) == 1, "the message is back")


def broker_depth(broker: Broker) -> int:
    return broker.queue_depth("q")
