"""What a client may not do: be slow to log in, come in thousands, send too much at once."""

from __future__ import annotations

import contextlib
import re
import select
import time
from itertools import product

import pytest
from pamqp import body, commands, frame, header

from penstock import limits
from penstock.server.connection.admission import address_key
from penstock.server.descriptors import DescriptorBudget
from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import DEADLINE_S, Client, ConnectionEnded
from tests.server.brokers import LOOPS, connection_count
from tests.server.conftest import Connect, StartBroker

HEADER = b"AMQP\x00\x00\x09\x01"
# A process that may open few files: room for some dozen connections.
DESCRIPTORS = 200


def start_ok() -> bytes:
    return frame.marshal(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)


SAID = {
    "nothing": b"",
    "half a header": HEADER[:5],
    "a header": HEADER,
    "half a start-ok": HEADER + start_ok()[:-1],
    "a start-ok": HEADER + start_ok(),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID.keys())
def test_a_handshake_that_stops_is_cut_off(said: bytes, start_broker: StartBroker, dial: Connect) -> None:
    broker = start_broker(handshake_s=0.3)
    client = dial(broker)
    client.socket.sendall(said)
    client.expect_end()
    wait_until(lambda: connection_count(broker) == 0, "the connection is gone")


def test_a_handshake_that_drips_is_cut_off(start_broker: StartBroker, dial: Connect) -> None:
    broker = start_broker(handshake_s=0.3)
    client = dial(broker)
    client.socket.sendall(HEADER)
    client.expect(commands.Connection.Start)
    began = time.monotonic()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for number in range(10_000):
            client.socket.sendall(start_ok()[number : number + 1] if number < 50 else b"")
            readable, _, _ = select.select([client.socket], [], [], 0.01)
            if readable and not client.receive_bytes():
                break
    assert time.monotonic() - began < DEADLINE_S
    wait_until(lambda: connection_count(broker) == 0, "the connection is gone")


def test_a_handshake_in_time_is_not_cut_off_later(start_broker: StartBroker, connect: Connect, dial: Connect) -> None:
    broker = start_broker(handshake_s=0.3)
    quick = connect(broker)
    # A second client's cut is the sign that the time is over.
    dial(broker).expect_end()
    quick.barrier(1)
    assert connection_count(broker) == 1


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_too_many_clients_in_their_handshake_are_refused_and_others_are_served(
    loop: str, start_broker: StartBroker, connect: Connect, dial: Connect
) -> None:
    broker = start_broker(loop, descriptors_max=DESCRIPTORS)
    most = DescriptorBudget(DESCRIPTORS).handshakes_per_address
    old = connect(broker)
    waiting = [dial(broker) for _ in range(most)]
    wait_until(lambda: connection_count(broker) == most + 1, "all of them wait")
    refused = dial(broker)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        refused.socket.sendall(HEADER)
    refused.expect_end()
    assert not refused.seen(commands.Connection.Start)
    old.barrier(1)
    for client in waiting:
        client.drop()
    wait_until(lambda: connection_count(broker) == 1, "they are gone")
    connect(broker).barrier(1)
    assert connection_count(broker) == 2


def test_clients_that_never_log_in_make_room_for_one_that_does(
    start_broker: StartBroker, connect: Connect, dial: Connect
) -> None:
    broker = start_broker(descriptors_max=DESCRIPTORS)
    most = DescriptorBudget(DESCRIPTORS).handshakes_per_address
    idle = [dial(broker) for _ in range(most)]
    wait_until(lambda: connection_count(broker) == most, "all of them wait")
    wait_until(lambda: is_let_in(broker, connect), "the oldest has had its time")
    idle[0].expect_end()
    idle[-1].socket.sendall(HEADER)
    idle[-1].expect(commands.Connection.Start)


def is_let_in(broker: Broker, connect: Connect) -> bool:
    try:
        connect(broker).barrier(1)
    except (OSError, ConnectionEnded):
        return False
    return True


def test_logins_beyond_the_limit_are_refused_with_a_reason(
    start_broker: StartBroker, connect: Connect, dial: Connect
) -> None:
    broker = start_broker(descriptors_max=DESCRIPTORS)
    most = DescriptorBudget(DESCRIPTORS).connections
    clients = [connect(broker) for _ in range(most)]
    refused = dial(broker)
    text = re.escape(f"NOT_ALLOWED - connection refused: node connection limit ({most}) is reached")
    with pytest.raises(ConnectionEnded, match=text):
        refused.handshake()
    clients[0].drop()
    wait_until(lambda: is_let_in(broker, connect), "there is room again")


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_an_address_is_what_one_customer_has(host: str, key: str) -> None:
    assert address_key(host) == key


@pytest.mark.parametrize("total", [32, 64, 256, 1024, 4096, 20_000, 32_768])
def test_connections_leave_descriptors_to_files(total: int) -> None:
    budget = DescriptorBudget(total)
    assert 0 < budget.handshakes_per_address <= budget.handshakes
    assert budget.connections <= limits.CONNECTIONS_MAX
    if total >= 256:
        taken = budget.connections + budget.handshakes + budget.http_connections + budget.open_files
        assert taken + limits.DESCRIPTORS_SPARE + limits.DESCRIPTORS_OTHERS <= total


def test_a_refused_login_gets_403_and_the_connection_ends(broker: Broker, dial: Connect) -> None:
    client = dial(broker)
    client.socket.sendall(HEADER)
    client.expect(commands.Connection.Start)
    properties = {"capabilities": {"authentication_failure_close": True}}
    client.send(0, commands.Connection.StartOk(properties, "PLAIN", "\0guest\0wrong", "en_US"))
    close = client.expect(commands.Connection.Close)
    assert (close.reply_code, close.reply_text[:14]) == (403, "ACCESS_REFUSED")
    client.send(0, commands.Connection.CloseOk())
    client.expect_end()
    wait_until(lambda: connection_count(broker) == 0, "the connection is gone")


def log_in(client: Client, user: str, password: str) -> None:
    client.socket.sendall(HEADER)
    client.expect(commands.Connection.Start)
    properties = {"capabilities": {"authentication_failure_close": True}}
    client.send(0, commands.Connection.StartOk(properties, "PLAIN", f"\0{user}\0{password}", "en_US"))


def test_a_refused_login_is_answered_at_once_and_the_connection_ends_later(
    start_broker: StartBroker, connect: Connect, dial: Connect
) -> None:
    broker = start_broker(login_refused_delay_s=2.0)
    began = time.monotonic()
    client = dial(broker)
    log_in(client, "somebody", "wrong")
    assert client.expect(commands.Connection.Close).reply_code == 403
    client.send(0, commands.Connection.CloseOk())
    # Another user logs in and is served while the refused client is still connected.
    connect(broker).barrier(1)
    client.expect_end()
    assert time.monotonic() - began >= 2.0


def test_a_client_that_cannot_be_told_of_its_refusal_is_cut_later(start_broker: StartBroker, dial: Connect) -> None:
    broker = start_broker(login_refused_delay_s=1.0)
    began = time.monotonic()
    client = dial(broker)
    client.socket.sendall(HEADER)
    client.expect(commands.Connection.Start)
    client.send(0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0wrong", "en_US"))
    client.expect_end()
    assert time.monotonic() - began >= 1.0
    assert not client.seen(commands.Connection.Close)


def test_guesses_on_connections_of_their_own_are_slow_and_a_right_password_is_let_in(
    start_broker: StartBroker, dial: Connect
) -> None:
    broker = start_broker(login_refused_delay_s=0.5)
    began = time.monotonic()
    guessing = [dial(broker) for _ in range(4)]
    for client in guessing:
        log_in(client, "guest", "wrong")
    right = dial(broker)
    log_in(right, "guest", "guest")
    for client in guessing:
        assert client.expect(commands.Connection.Close).reply_code == 403
    # The second one waits for one delay, the third for two.
    assert time.monotonic() - began >= 1.5
    right.expect(commands.Connection.Tune)


def header_frame(size: int, channel: int) -> bytes:
    return frame.marshal(header.ContentHeader(0, size, commands.Basic.Properties()), channel)


def test_a_message_that_is_too_large_is_refused_at_its_header(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(message_bytes_max=1_000)
    client = connect(broker)
    client.open_channel(2)
    client.declare(1, "q")
    publish = frame.marshal(commands.Basic.Publish(0, "", "q"), 1)
    client.socket.sendall(publish + header_frame(1_001, 1))
    close = client.expect(commands.Channel.Close, 1)
    assert close.reply_code == 406
    assert close.reply_text == "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000"
    # Its body is on the way already; the other channel does not notice.
    client.socket.sendall(frame.marshal(body.ContentBody(b"x" * 1_001), 1))
    client.publish(2, "q", b"y" * 1_000)
    client.barrier(2)
    assert broker.queue_depth("q") == 1
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    client.barrier(1)


def test_a_message_that_is_too_large_is_refused_when_it_comes_whole(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(message_bytes_max=1_000)
    client = connect(broker)
    client.open_channel(2)
    client.declare(1, "q")
    client.publish(1, "q", b"a" * 1_000, b"x" * 1_001, b"after the close")
    assert client.expect(commands.Channel.Close, 1).reply_code == 406
    client.barrier(2)
    assert broker.queue_depth("q") == 1


def test_a_size_that_no_message_has_is_refused(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.socket.sendall(frame.marshal(commands.Basic.Publish(0, "", "q"), 1) + header_frame(2**64 - 1, 1))
    assert client.expect(commands.Channel.Close, 1).reply_code == 406


def send_unfinished(client: Client, channel: int, size: int) -> None:
    """A publish of which the last byte is missing."""
    piece = frame.marshal(body.ContentBody(b"x" * 131_064), channel)
    whole, rest = divmod(size - 1, 131_064)
    client.socket.sendall(frame.marshal(commands.Basic.Publish(0, "", "q"), channel) + header_frame(size, channel))
    for _ in range(whole):
        client.socket.sendall(piece)
    client.socket.sendall(frame.marshal(body.ContentBody(b"x" * rest), channel))


def test_unfinished_content_is_limited_over_all_channels_of_a_connection(
    broker: Broker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    other = connect(broker)
    greedy = connect(broker)
    for channel in (2, 3):
        greedy.open_channel(channel)
    for channel in (1, 2):
        send_unfinished(greedy, channel, limits.MESSAGE_BYTES_MAX)
    greedy.open_channel(4)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, ConnectionEnded):
        send_unfinished(greedy, 3, limits.MESSAGE_BYTES_MAX)
        # The close itself may be lost with what the broker did not read any more.
        assert greedy.expect(commands.Connection.Close).reply_code == 506
    greedy.drop()
    wait_until(lambda: connection_count(broker) == 1, "the greedy client is gone")
    assert "RESOURCE_ERROR - too much unfinished content on this connection" in caplog.text
    other.barrier(1)


def test_content_that_was_finished_does_not_count(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    # More in all than the limit, but never at once.
    for _ in range(3):
        send_unfinished(client, 1, 100 * 1024 * 1024)
        client.socket.sendall(frame.marshal(body.ContentBody(b"x"), 1))
        client.barrier(1)
        client.call(1, commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk)
    assert broker.call(lambda server: [connection._partial_bytes for connection in server.connections]) == [0]


def test_small_limits_of_a_configuration_are_kept(start_broker: StartBroker, dial: Connect) -> None:
    broker = start_broker(channels_max=2, frame_bytes_max=4_096, message_bytes_max=10_000)
    client = dial(broker)
    client.socket.sendall(HEADER)
    client.expect(commands.Connection.Start)
    client.send(0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
    tune = client.expect(commands.Connection.Tune)
    assert (tune.channel_max, tune.frame_max) == (2, 4_096)
    client.send(0, commands.Connection.TuneOk(2, 4_096, 0))
    client.call(0, commands.Connection.Open("/"), commands.Connection.OpenOk)
    client.open_channel(1)
    client.declare(1, "q")
    client.socket.sendall(frame.marshal(commands.Basic.Publish(0, "", "q"), 1) + header_frame(9_000, 1))
    for size in (4_088, 4_088, 824):
        client.socket.sendall(frame.marshal(body.ContentBody(b"x" * size), 1))
    client.consume(1, "q", no_ack=True)
    assert client.message().body == b"x" * 9_000
    client.open_channel(2)
    client.send(3, commands.Channel.Open())
    assert client.expect(commands.Connection.Close).reply_code == 530


def test_routing_keys_in_headers_are_as_short_as_others(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    for name in ("CC", "BCC"):
        client.publish(1, "q", b"x", exchange="amq.topic", headers={name: ["k" * 255]})
        client.barrier(1)
        client.publish(1, "q", b"x", exchange="amq.topic", headers={name: ["k" * 256]})
        closed = client.expect(commands.Channel.Close)
        assert (closed.reply_code, closed.reply_text) == (
            406,
            f'PRECONDITION_FAILED - invalid message: a routing key of 256 octets in header "{name}"; at most 255 are'
            " allowed",
        )
        client.send(1, commands.Channel.CloseOk())
        client.open_channel(1)


def test_a_message_that_takes_too_long_to_route_is_refused(broker: Broker, connect: Connect) -> None:
    client = connect(broker)
    client.declare(1, "q")
    for beginning in product("a*", repeat=9):
        pattern = f"{'.'.join(beginning)}.#.a.#.a"
        client.send(1, commands.Queue.Bind(0, "q", "amq.topic", pattern, nowait=True))
    client.barrier(1)
    key = ".".join(["a"] * 20)
    client.publish(1, key, b"fine", exchange="amq.topic")
    client.publish(1, key, b"too much", exchange="amq.topic", headers={"CC": [key] * 100})
    closed = client.expect(commands.Channel.Close)
    assert closed.reply_code == 406
    assert "takes too long" in closed.reply_text
    client.send(1, commands.Channel.CloseOk())
    client.open_channel(1)
    assert client.call(1, commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk).message_count == 1
