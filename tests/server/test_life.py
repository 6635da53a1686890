"""Connections and channels in numbers, and what they leave behind: nothing."""

from __future__ import annotations

import threading

import pytest
from pamqp import commands, frame

from penstock.server.server import Server
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client, ConnectionEnded, publish_frames
from tests.server.brokers import connection_count, has_queue, queue_of
from tests.server.conftest import Connect, StartBroker


def test_a_thousand_connections_that_are_dropped_at_once_leave_nothing(either_broker: Broker, connect: Connect) -> None:
    broker = either_broker
    watcher = connect(broker)
    watcher.declare(1, "shared")
    clients = []
    for _ in range(1_000):
        client = connect(broker)
        name = client.declare(1, exclusive=True)
        client.consume(1, name)
        client.consume(1, "shared")
        clients.append(client)
    watcher.publish(1, "shared", *[b"x"] * 1_000)
    wait_until(lambda: broker.queue_depth("shared") == 0, "all are delivered")
    for number, client in enumerate(clients):
        if number % 2:
            client.reset()
        else:
            client.drop()
    wait_until(lambda: connection_count(broker) == 1, "all are gone")
    # The last ones had many of them, and those go back in slices.
    wait_until(lambda: broker.queue_depth("shared") == 1_000, "all are back")

    def leftovers(server: Server) -> tuple[int, int, int]:
        vhost = server.broker.vhosts["/"]
        return len(vhost.queues), len(queue_of(server, "shared").consumers), len(vhost._exclusive)

    assert broker.call(leftovers) == (1, 0, 0)
    watcher.barrier(1)


def test_a_connection_that_opens_and_closes_channels_for_long_grows_by_nothing(
    broker: Broker, connect: Connect
) -> None:
    client = connect(broker)
    client.declare(1, "q")
    script = b"".join(
        [
            frame.marshal(commands.Channel.Open(), 2),
            publish_frames(2, "q", b"x"),
            frame.marshal(commands.Basic.Get(0, "q"), 2),
            frame.marshal(commands.Channel.Close(200, "done", 0, 0), 2),
        ]
    )
    for _ in range(500):
        client.socket.sendall(script)
        client.expect(commands.Channel.CloseOk, 2)
    client.barrier(1)

    def remembered(server: Server) -> tuple[int, int]:
        (connection,) = server.connections
        return len(connection.channels), len(connection._reader._routes)

    assert broker.call(remembered) == (1, 0)
    assert broker.queue_depth("q") == 500


def test_all_channels_of_a_connection_can_be_used_at_once(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    for number in range(2, 2_048):
        client.send(number, commands.Channel.Open())
    for number in range(2, 2_048):
        client.expect(commands.Channel.OpenOk, number)
    client.socket.sendall(b"".join([publish_frames(number, "q", b"%d" % number) for number in range(1, 2_048)]))
    client.consume(1, "q", no_ack=True)
    assert client.bodies(2_047) == [b"%d" % number for number in range(1, 2_048)]
    client.close()
    wait_until(lambda: connection_count(broker) == 0, "the connection is gone")


def test_a_message_goes_to_fifty_queues(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    for number in range(50):
        client.declare(1, f"q{number}")
        client.call(1, commands.Queue.Bind(0, f"q{number}", "amq.fanout"), commands.Queue.BindOk)
    client.publish(1, "", *[b"%d" % number for number in range(200)], exchange="amq.fanout")
    client.barrier(1)
    assert [broker.queue_depth(f"q{number}") for number in range(50)] == [200] * 50
    reader = connect(broker)
    for number in range(50):
        reader.consume(1, f"q{number}", f"{number}", no_ack=True)
    by_queue: dict[str, list[bytes]] = {}
    for message in reader.messages(50 * 200):
        by_queue.setdefault(message.method.consumer_tag, []).append(message.body)
    assert all(bodies == [b"%d" % number for number in range(200)] for bodies in by_queue.values())
    assert len(by_queue) == 50


@pytest.mark.parametrize("farewell", ["close", "drop", "reset"])
def test_an_exclusive_queue_goes_with_its_connection(farewell: str, broker: Broker, connect: Connect) -> None:
    owner, other = connect(broker), connect(broker)
    owner.declare(1, "mine", exclusive=True)
    owner.publish(1, "mine", b"x")
    other.send(1, commands.Queue.Declare(0, "mine", passive=True))
    assert other.expect(commands.Channel.Close).reply_code == 405
    other.send(1, commands.Channel.CloseOk())
    other.open_channel(1)
    getattr(owner, farewell)()
    if farewell == "close":
        # Whoever has seen close-ok may count on it.
        assert other.declare(1, "mine") == "mine"
        assert broker.queue_depth("mine") == 0
    wait_until(lambda: has_queue(broker, "mine") == (farewell == "close"), "the queue is gone")


def test_what_follows_a_client_s_close_is_read_and_thrown_away(either_broker: Broker, connect: Connect) -> None:
    """A reset in the middle of that keeps a client from ever seeing its close-ok."""
    broker = either_broker
    client, other = connect(broker), connect(broker)
    client.declare(1, "mine", exclusive=True)
    client.declare(1, "q")
    client.send(0, commands.Connection.Close(200, "done", 0, 0))
    client.expect(commands.Connection.CloseOk)
    assert client.receive_bytes() == b""
    for _ in range(3):
        client.publish(1, "q", *[b"too late"] * 1_000)
    assert client.socket.recv(1) == b""
    # Although it has not hung up, everything of it is gone.
    assert other.declare(1, "mine") == "mine"
    assert broker.queue_depth("q") == 0
    client.drop()
    wait_until(lambda: connection_count(broker) == 1, "it is gone")


def test_a_client_that_closes_and_hangs_up_at_once_is_gone(either_broker: Broker, connect: Connect) -> None:
    broker = either_broker
    client = connect(broker)

    def close_and_hang_up(server: Server) -> None:
        # The server's loop stands still: it reads the close when the client is gone.
        client.send(0, commands.Connection.Close(200, "done", 0, 0))
        client.drop()

    broker.call(close_and_hang_up)
    wait_until(lambda: connection_count(broker) == 0, "it is gone")


def test_what_is_no_amqp_gets_our_header_however_much_of_it_comes(either_broker: Broker, dial: Connect) -> None:
    client = dial(either_broker)
    client.socket.sendall(b"GET / HTTP/1.1\r\n")
    assert client.receive_bytes() == b"AMQP\x00\x00\x09\x01"
    assert client.receive_bytes() == b""
    for _ in range(3):
        client.socket.sendall(b"x" * 10_000)
    assert client.socket.recv(1) == b""


def test_an_auto_delete_queue_goes_with_its_last_consumer(broker: Broker, connect: Connect) -> None:
    first, second = connect(broker), connect(broker)
    first.declare(1, "q", auto_delete=True)
    first.consume(1, "q")
    second.consume(1, "q")
    first.drop()
    second.barrier(1)
    assert has_queue(broker, "q")
    second.reset()
    wait_until(lambda: not has_queue(broker, "q"), "the queue is gone")


def test_an_error_on_one_channel_leaves_the_others_alone(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.open_channel(2)
    client.declare(1, "q")
    client.consume(1, "q", "one", no_ack=True)
    client.send(2, commands.Queue.Declare(0, "nowhere", passive=True))
    assert client.expect(commands.Channel.Close, 2).reply_code == 404
    client.publish(1, "q", b"x")
    assert client.message().body == b"x"
    client.send(2, commands.Channel.CloseOk())
    client.open_channel(2)
    client.barrier(2)


def test_many_clients_that_come_and_go_under_load_cost_others_nothing(broker: Broker, connect: Connect) -> None:
    publisher, consumer = connect(broker), connect(broker)
    publisher.declare(1, "q")
    consumer.consume(1, "q", no_ack=True)
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            with Client(broker.host, broker.port) as guest:
                guest.handshake()
                guest.open_channel(1)
                guest.declare(1, exclusive=True)
                guest.qos(1, 3)
                guest.consume(1, "q")
                guest.reset()

    threads = [threading.Thread(target=come_and_go) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen = set()
    for start in range(0, 3_000, 100):
        publisher.publish(1, "q", *[b"%d" % number for number in range(start, start + 100)])
        while len(seen) < start + 50:
            seen.add(consumer.message().body)
    stop.set()
    for thread in threads:
        thread.join()
    while len(seen) < 3_000:
        seen.add(consumer.message().body)
    wait_until(lambda: connection_count(broker) == 2, "the guests are gone")
    assert broker.queue_depth("q") == 0


def test_clients_are_told_when_the_broker_stops(start_broker: StartBroker, connect: Connect, dial: Connect) -> None:
    broker = start_broker()
    client, half_way = connect(broker), dial(broker)
    stopping = threading.Thread(target=broker.stop)
    stopping.start()
    close = client.expect(commands.Connection.Close)
    assert close.reply_code == 320
    assert close.reply_text == "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    client.send(0, commands.Connection.CloseOk())
    client.expect_end()
    half_way.expect_end()
    with pytest.raises(ConnectionEnded):
        half_way.expect(commands.Connection.Start)
    stopping.join()
    broker.start()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_stopping_does_not_wait_for_clients_that_do_not_read(
    loop: str, start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(loop=loop, memory_bytes_max=1_000_000)
    stuck = connect(broker, receive_buffer_bytes=4_096)
    stuck.declare(1, "q")
    stuck.consume(1, "q", no_ack=True)
    blocked = connect(broker)
    blocked.publish(1, "q", *[b"x" * 100_000] * 60)
    blocked.expect(commands.Connection.Blocked)
    broker.stop()
    assert blocked.expect(commands.Connection.Close).reply_code == 320
    stuck.expect_end()
    broker.start()
