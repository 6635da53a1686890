"""no-local of basic.consume, with py-amqp, which can ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import amqp
import pytest

from penstock.testing import Broker
from tests.interop.deadline import wait_until

Open = Callable[[], amqp.Connection]


@pytest.fixture
def opened(broker: Broker) -> Iterator[Open]:
    connections: list[amqp.Connection] = []

    def open_one() -> amqp.Connection:
        connection = amqp.Connection(host=f"{broker.host}:{broker.port}", connect_timeout=60, read_timeout=60)
        connections.append(connection)
        connection.connect()
        return connection

    yield open_one
    for connection in connections:
        with suppress(OSError, amqp.AMQPError):
            connection.close()


def consume(connection: amqp.Connection, **options: object) -> list[str]:
    """The bodies that come in."""
    bodies: list[str] = []
    connection.channel().basic_consume(
        "q", no_ack=True, callback=lambda message: bodies.append(message.body), **options
    )
    return bodies


def publish(connection: amqp.Connection, *bodies: str, **properties: object) -> None:
    channel = connection.channel()
    for body in bodies:
        channel.basic_publish_confirm(amqp.Message(body, **properties), routing_key="q")


def wait_for_bodies(connection: amqp.Connection, bodies: list[str], wanted: list[str]) -> None:
    def serve() -> None:
        with suppress(TimeoutError):
            connection.drain_events(timeout=0.05)

    wait_until(lambda: len(bodies) >= len(wanted), f"{wanted}", serve)
    assert bodies == wanted


def declare(connection: amqp.Connection) -> int:
    """Returns how many messages are ready."""
    return int(connection.channel().queue_declare("q", auto_delete=False).message_count)


def test_a_consumer_does_not_get_what_its_own_connection_publishes(opened: Open) -> None:
    own, other = opened(), opened()
    declare(own)
    bodies = consume(own, no_local=True)
    publish(own, "own 1", "own 2")
    publish(other, "other 1")
    publish(own, "own 3")
    publish(other, "other 2", "other 3")
    wait_for_bodies(own, bodies, ["other 1", "other 2", "other 3"])
    assert declare(own) == 3
    everything = consume(other)
    wait_for_bodies(other, everything, ["own 1", "own 2", "own 3"])


def test_each_gets_what_the_other_one_publishes(opened: Open) -> None:
    anna, bert = opened(), opened()
    declare(anna)
    for_anna, for_bert = consume(anna, no_local=True), consume(bert, no_local=True)
    for number in range(20):
        publish(anna, f"anna {number}")
        publish(bert, f"bert {number}")
    wait_for_bodies(anna, for_anna, [f"bert {number}" for number in range(20)])
    wait_for_bodies(bert, for_bert, [f"anna {number}" for number in range(20)])
    assert declare(anna) == 0


def test_what_was_there_before_goes_to_everyone(opened: Open) -> None:
    own = opened()
    declare(own)
    publish(own, "before")
    bodies = consume(own, no_local=True)
    publish(own, "after")
    wait_for_bodies(own, bodies, ["before"])
    assert declare(own) == 1


def test_when_the_consumer_is_gone_the_own_messages_are_there_for_the_next(opened: Open) -> None:
    own = opened()
    declare(own)
    channel = own.channel()
    tag = channel.basic_consume("q", no_local=True, no_ack=True)
    publish(own, "kept")
    channel.basic_cancel(tag)
    bodies = consume(own)
    wait_for_bodies(own, bodies, ["kept"])


def test_a_selector_chooses_among_what_others_publish(opened: Open) -> None:
    own, other = opened(), opened()
    declare(own)
    bodies = consume(own, no_local=True, arguments={"x-selector": "amqp.type = 'wanted'"})
    publish(own, "own", type="wanted")
    publish(other, "unwanted", type="other")
    publish(other, "wanted", type="wanted")
    wait_for_bodies(own, bodies, ["wanted"])
    assert declare(own) == 2


def test_a_browser_with_no_local_is_not_shown_its_own(opened: Open) -> None:
    own, other = opened(), opened()
    declare(own)
    bodies = consume(own, no_local=True, arguments={"x-browse": True})
    publish(own, "own")
    publish(other, "other")
    wait_for_bodies(own, bodies, ["other"])
    assert declare(own) == 2
