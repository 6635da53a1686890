"""Queues with awkward names, used over AMQP on two brokers, through sessions, and with SQL, all at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from tests.interop.deadline import wait_until
from tests.server.pika_clients import consume
from tests.server.postgres_nodes import POSTGRES, Nodes, nodes_on

# PostgreSQL cuts names of channels and applications at 63 bytes, here in the middle of a character.
STEM = "x" + "ü" * 40
AWKWARD = [
    "it's",
    'say "q"',
    "$$; DROP TABLE penstock.messages; --",
    "100 %s {0} %(a)s",
    "back\\slash\\",
    "a\tb c",
    "'",
]


@pytest.fixture
def nodes(penstock_url: str) -> Iterator[Nodes]:
    with nodes_on(penstock_url) as opened:
        yield opened


def put_everywhere(nodes: Nodes, names: list[str]) -> dict[str, list[bytes]]:
    """Into each queue over AMQP on two brokers, through a session, and with SQL; what was put."""
    put: dict[str, list[bytes]] = {}
    publishers = [nodes.publisher(nodes.start()) for _ in range(2)]
    with penstock.Session(nodes.url) as session:
        for number, name in enumerate(names):
            put[name] = [b"%d %s" % (number, way) for way in (b"one", b"two", b"session", b"sql", b"transaction")]
            for publisher, payload in zip(publishers, put[name], strict=False):
                publisher.queue_declare(name, durable=True, arguments=POSTGRES)
                publisher.basic_publish("", name, payload)
            session.producer_for(name).put(put[name][2])
            nodes.sql.execute("SELECT penstock.put(%s, %s::bytea)", (name, put[name][3]))
    with nodes.sql.transaction():
        for name in names:
            nodes.sql.execute("SELECT penstock.put(%s, %s::bytea)", (name, put[name][4]))
    return put


@pytest.mark.parametrize("names", [[f"{STEM}.one", f"{STEM}.two", STEM], AWKWARD], ids=["twins", "quotes"])
@pytest.mark.parametrize("way", ["amqp", "session", "sql"])
def test_each_queue_has_what_was_put_into_it_and_nothing_else(nodes: Nodes, names: list[str], way: str) -> None:
    put = put_everywhere(nodes, names)
    got: dict[str, list[bytes]] = {}
    channel = nodes.channel(nodes.start())
    for name in names:
        if way == "amqp":
            channel.queue_declare(name, durable=True, arguments=POSTGRES)
            inbox = consume(channel, name, auto_ack=True)
            inbox.wait_for(channel, len(put[name]))
            got[name] = list(inbox.bodies)
        elif way == "session":
            with penstock.Session(nodes.url) as session, session.consumer_for(name) as consumer:
                got[name] = [message.payload for message in consumer.reserve_many(100)]
        else:
            found = nodes.sql.execute("SELECT payload FROM penstock.reserve(%s, 100)", (name,)).fetchall()
            got[name] = [payload for (payload,) in found]
    assert got == put


def test_a_put_wakes_who_waits_for_that_queue_and_not_its_twin(nodes: Nodes) -> None:
    one, two = f"{STEM}.one", f"{STEM}.two"
    channel = nodes.channel(nodes.start())
    for name in (one, two):
        channel.queue_declare(name, durable=True, arguments=POSTGRES)
    inboxes = {name: consume(channel, name, auto_ack=True) for name in (one, two)}
    wait_until(lambda: nodes.value("SELECT count(*) FROM penstock.participants WHERE waiting") == 2, "both wait")
    heard = [nodes.value("SELECT penstock.channel_of(%s)", name) for name in (one, two)]
    assert len(set(heard)) == 2
    nodes.sql.execute("SELECT penstock.put(%s, 'for one')", (one,))
    inboxes[one].wait_for(channel, 1)
    nodes.sql.execute("SELECT penstock.put(%s, 'for two')", (two,))
    inboxes[two].wait_for(channel, 1)
    assert (inboxes[one].bodies, inboxes[two].bodies) == ([b"for one"], [b"for two"])


def test_a_dropped_queue_takes_nothing_of_its_twin_with_it(nodes: Nodes) -> None:
    one, two = f"{STEM}.one", f"{STEM}.two"
    put = put_everywhere(nodes, [one, two])
    channel = nodes.channel(nodes.start())
    channel.queue_declare(one, durable=True, arguments=POSTGRES)
    channel.queue_delete(one)
    assert nodes.payloads(two) == put[two]
    assert nodes.value("SELECT count(*) FROM penstock.queues WHERE name = %s", one) == 0
