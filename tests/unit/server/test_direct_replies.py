"""Requests by direct reply-to that repeat themselves: what is remembered of them holds for one reply address."""

from __future__ import annotations

from pamqp import commands, header
from wire_bench import Bench, Client

PSEUDO = "amq.rabbitmq.reply-to"


def consume(client: Client) -> None:
    client.call(commands.Basic.Consume(0, PSEUDO, "replies", False, True))


def ask(client: Client, server: Client, count: int = 1) -> list[str]:
    """Return the addresses that the server finds in requests that are equal."""
    client.publish("", "q", *[b"question"] * count, reply_to=PSEUDO)
    found = []
    for _ in range(count):
        content = server.call(commands.Basic.Get(0, "q", True))[1]
        assert isinstance(content, header.ContentHeader)
        found.append(str(content.properties.reply_to))
    return found


def test_equal_requests_have_one_address_until_their_channel_consumes_replies_anew() -> None:
    bench = Bench()
    bench.queue("q")
    client, server = bench.client(), bench.client()
    consume(client)
    first = {*ask(client, server), *ask(client, server, 3), *ask(client, server)}
    client.call(commands.Basic.Cancel("replies"))
    consume(client)
    second = {*ask(client, server), *ask(client, server, 3)}
    assert len(first) == len(second) == 1
    assert not first & second
    server.publish("", first.pop(), b"too late")
    assert client.read() == []
    server.publish("", address := second.pop(), b"answer")
    server.publish("", address, b"answer", b"answer")
    assert sum(isinstance(part, commands.Basic.Deliver) for part in client.read()) == 3


def test_a_request_that_was_sent_before_is_refused_when_nobody_waits_for_replies() -> None:
    bench = Bench()
    bench.queue("q")
    client, server = bench.client(), bench.client()
    consume(client)
    ask(client, server, 2)
    client.call(commands.Basic.Cancel("replies"))
    client.publish("", "q", b"question", reply_to=PSEUDO)
    (refused,) = client.read()
    assert isinstance(refused, commands.Channel.Close)
    assert refused.reply_code == 406
    assert server.get() is None
