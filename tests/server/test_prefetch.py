"""Prefetch: whom a basic.qos concerns."""

from __future__ import annotations

import pytest

from penstock.testing import Broker
from tests.server.conftest import Connect


@pytest.mark.parametrize(
    ("product", "delivered"),
    [
        # kombu and Celery change the prefetch of running consumers like this (docs/decisions/0016).
        ("py-amqp", 3),
        # RabbitMQ's meaning: for consumers to come.
        ("pika", 1),
        ("", 1),
    ],
)
def test_a_qos_for_each_consumer_reaches_running_ones_of_clients_that_count_on_it(
    product: str, delivered: int, broker: Broker, connect: Connect
) -> None:
    client = connect(broker, product=product)
    client.declare(1, "q")
    client.qos(1, 1)
    client.consume(1, "q")
    client.publish(1, "q", b"0", b"1", b"2", b"3")
    assert client.bodies(1) == [b"0"]
    client.qos(1, 3)
    client.barrier(1)
    assert 1 + len(client.waiting_messages()) == delivered


def test_a_lower_qos_of_py_amqp_holds_its_running_consumers_back(broker: Broker, connect: Connect) -> None:
    client = connect(broker, product="py-amqp")
    client.declare(1, "q")
    client.qos(1, 2)
    client.consume(1, "q")
    client.publish(1, "q", b"0", b"1", b"2")
    assert client.bodies(2) == [b"0", b"1"]
    client.qos(1, 1)
    client.ack(1, 1)
    client.barrier(1)
    assert not client.waiting_messages()
    client.ack(1, 2)
    assert client.bodies(1) == [b"2"]


def test_a_qos_of_py_amqp_sets_no_limit_where_nothing_is_acknowledged(broker: Broker, connect: Connect) -> None:
    client = connect(broker, product="py-amqp")
    client.declare(1, "q")
    client.consume(1, "q", no_ack=True)
    client.qos(1, 1)
    client.publish(1, "q", b"0", b"1", b"2")
    assert client.bodies(3) == [b"0", b"1", b"2"]
