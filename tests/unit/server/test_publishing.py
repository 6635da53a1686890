"""Publishing: what is remembered of a route must never outlive what it was made from."""

from __future__ import annotations

import pytest
from pamqp import commands
from wire_bench import Bench, Client

from penstock.broker.access.password import configured_password
from penstock.broker.access.permission import Permission
from penstock.wire import frames

Basic = commands.Basic
REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def ready(bench: Bench, *names: str) -> list[int]:
    return [len(bench.vhost.queues[name]) for name in names]


def test_a_route_follows_every_change_of_the_topology(bench: Bench) -> None:
    client = bench.client()
    first, second = bench.queue("q1"), bench.queue("q2")
    vhost = bench.vhost
    vhost.bind_queue("amq.direct", first, "k", {})
    client.publish("amq.direct", "k", b"a", b"b", b"c")
    vhost.bind_queue("amq.direct", second, "k", {})
    client.publish("amq.direct", "k", b"a", b"b", b"c")
    vhost.unbind_queue("amq.direct", "q1", "k", {})
    client.publish("amq.direct", "k", b"a", b"b", b"c")
    assert ready(bench, "q1", "q2") == [6, 6]
    vhost.delete_queue(second, False, False)
    client.publish("amq.direct", "k", b"a", b"b", b"c")
    bench.queue("q2")
    client.publish("", "q2", b"d")
    assert ready(bench, "q1", "q2") == [6, 1]


def test_a_route_through_a_headers_exchange_is_that_of_each_message(bench: Bench) -> None:
    client = bench.client()
    for number in (1, 2):
        bench.vhost.bind_queue("amq.headers", bench.queue(f"q{number}"), "", {"n": ("I", number)})
    for number in (1, 2, 1, 3, 2, 2):
        client.publish("amq.headers", "", b"x", b"y", headers={"n": number})
    assert ready(bench, "q1", "q2") == [4, 6]


def test_carbon_copies_do_not_stick_to_their_route(bench: Bench) -> None:
    client = bench.client()
    bench.queue("q1")
    bench.queue("q2")
    client.publish("", "q1", b"a")
    client.publish("", "q1", b"b", headers={"CC": ["q2"]})
    client.publish("", "q1", b"c")
    client.publish("", "q1", b"d", headers={"BCC": ["q2"]})
    assert ready(bench, "q1", "q2") == [4, 2]


def test_a_publish_to_an_exchange_that_was_deleted_is_refused(bench: Bench) -> None:
    client = bench.client()
    bench.vhost.declare_exchange("x", "fanout", False, False, False, {})
    client.publish("x", "", b"a", b"b", b"c")
    bench.vhost.delete_exchange("x", False)
    client.publish("x", "", b"d")
    [close] = client.read()
    assert close.reply_text == "NOT_FOUND - no exchange 'x' in vhost '/'"


def test_rights_are_looked_at_before_the_exchange_is(bench: Bench) -> None:
    users = bench.server.broker.users
    users.add("ann", configured_password(b"ann"))
    users.set_permission("ann", "/", Permission(write="^allowed$"))
    for exchange in ("nowhere", "amq.direct"):
        client = bench.client("ann")
        client.publish(exchange, "k", b"a")
        [close] = client.read()
        assert close.reply_text == (
            f"ACCESS_REFUSED - access to exchange '{exchange}' in vhost '/' refused for user 'ann'"
        )


@pytest.mark.parametrize("properties", [b"\x01\x00\x02\xff5", b"\x00\x10\x01\xff"], ids=["expiration", "user-id"])
def test_a_property_that_is_not_utf_8_is_quoted_in_a_refusal_and_breaks_nothing(
    bench: Bench, properties: bytes
) -> None:
    client = bench.client()
    client.send(Basic.Publish(0, "", "q"))
    client.transport_data(frames.content_frames(1, properties, b"x\xce", 4096))
    [close] = client.read()
    assert isinstance(close, commands.Channel.Close)
    assert close.reply_code == 406
    assert bench.server.internal_errors == 0


# --- direct replies -------------------------------------------------------------------------------------


def reply_to_of(client: Client) -> str:
    """The reply-to of the next message in q."""
    answer = client.call(Basic.Get(0, "q", True))
    return str(answer[1].properties.reply_to)


def test_a_request_leaves_with_the_address_of_the_consumer_that_waits_now(bench: Bench) -> None:
    bench.queue("q")
    client, other = bench.client(), bench.client()
    addresses = []
    for _ in range(2):
        client.call(Basic.Consume(0, REPLY_TO, "replies", no_ack=True))
        client.publish("", "q", b"request", reply_to=REPLY_TO)
        addresses.append(reply_to_of(other))
        other.publish("", addresses[-1], b"answer")
        deliver, _, text = client.read()
        assert (deliver.consumer_tag, text.value) == ("replies", b"answer")
        client.call(Basic.Cancel("replies"))
    assert addresses[0] != addresses[1]


def test_a_request_without_a_consumer_for_the_reply_is_refused_also_when_there_was_one(bench: Bench) -> None:
    bench.queue("q")
    client = bench.client()
    client.call(Basic.Consume(0, REPLY_TO, "replies", no_ack=True))
    client.publish("", "q", b"request", reply_to=REPLY_TO)
    client.call(Basic.Cancel("replies"))
    client.publish("", "q", b"request", reply_to=REPLY_TO)
    [close] = client.read()
    assert close.reply_text == "PRECONDITION_FAILED - fast reply consumer does not exist"
    assert ready(bench, "q") == [1]


def test_a_route_of_requests_follows_the_topology_too(bench: Bench) -> None:
    client = bench.client()
    client.call(Basic.Consume(0, REPLY_TO, "replies", no_ack=True))
    first = bench.queue("q")
    client.publish("", "q", b"request", reply_to=REPLY_TO)
    bench.vhost.delete_queue(first, False, False)
    bench.queue("q")
    client.publish("", "q", b"request", reply_to=REPLY_TO)
    assert client.read() == []
    assert ready(bench, "q") == [1]
    bench.vhost.bind_queue("amq.fanout", bench.queue("q1"), "", {})
    client.publish("amq.fanout", "", b"request", reply_to=REPLY_TO)
    bench.vhost.bind_queue("amq.fanout", bench.queue("q2"), "", {})
    client.publish("amq.fanout", "", b"request", reply_to=REPLY_TO)
    assert ready(bench, "q1", "q2") == [2, 1]
