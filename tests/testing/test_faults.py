"""Faults on demand: lost connections, refused and late confirms."""

from __future__ import annotations

import time

import pika
import pika.exceptions
import pytest
from pamqp import commands

from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client
from tests.server.brokers import queue_of


def confirming(broker: Broker) -> Client:
    client = Client(broker.host, broker.port).handshake()
    client.open_channel(1)
    client.declare(1, "q")
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    return client


def test_cut_connections_are_lost_without_a_word() -> None:
    with Broker() as broker:
        connections = [pika.BlockingConnection(pika.URLParameters(broker.url)) for _ in range(3)]
        assert broker.faults.cut_connections() == 3
        for connection in connections:
            with pytest.raises((pika.exceptions.StreamLostError, pika.exceptions.ConnectionClosedByBroker)) as lost:
                connection.process_data_events(time_limit=10)
            assert not isinstance(lost.value, pika.exceptions.ConnectionClosedByBroker)
        wait_until(lambda: broker.faults.cut_connections() == 0, "nobody is left")
        # It only happened once: who comes back is served.
        pika.BlockingConnection(pika.URLParameters(broker.url)).close()


def test_what_a_cut_client_had_not_acknowledged_comes_back() -> None:
    with Broker() as broker:
        client = confirming(broker)
        client.publish(1, "q", b"x")
        client.expect(commands.Basic.Ack)
        client.consume(1, "q")
        assert client.message().body == b"x"
        assert broker.queue_depth("q") == 0
        broker.faults.cut_connections()
        client.expect_end()
        client.drop()
        wait_until(lambda: broker.queue_depth("q") == 1, "the message is back")


def test_refused_confirms_are_nacks_and_the_messages_are_not_queued() -> None:
    with Broker() as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"before")
        with broker.faults.refused_confirms():
            with pytest.raises(pika.exceptions.NackError):
                channel.basic_publish("", "q", b"refused")
            with pytest.raises(pika.exceptions.NackError):
                channel.basic_publish("", "nowhere", b"refused", mandatory=False)
        channel.basic_publish("", "q", b"after")
        assert broker.queue_depth("q") == 2
        connection.close()


def test_a_run_of_refused_publishes_gets_a_nack_for_each() -> None:
    with Broker() as broker, confirming(broker) as client:
        client.publish(1, "q", *[b"a"] * 5)
        while client.expect(commands.Basic.Ack).delivery_tag < 5:
            pass
        with broker.faults.refused_confirms():
            client.publish(1, "q", *[b"b"] * 5)
            assert [client.expect(commands.Basic.Nack).delivery_tag for _ in range(5)] == [6, 7, 8, 9, 10]
        client.publish(1, "q", b"c")
        assert client.expect(commands.Basic.Ack).delivery_tag == 11
        assert broker.queue_depth("q") == 6


def test_channels_without_confirms_are_not_refused_anything() -> None:
    with Broker() as broker, Client(broker.host, broker.port) as client:
        client.handshake()
        client.open_channel(1)
        client.declare(1, "q")
        with broker.faults.refused_confirms():
            client.publish(1, "q", b"x")
            client.barrier(1)
        assert broker.queue_depth("q") == 1


def test_confirms_are_late_by_the_time_that_was_asked_for() -> None:
    with Broker() as broker, confirming(broker) as client:
        with broker.faults.delayed_confirms(2.0):
            began = time.monotonic()
            client.publish(1, "q", b"x")
            client.barrier(1)
            # Everything else is as quick as ever, and the message is there.
            assert broker.queue_depth("q") == 1
            assert not client.seen(commands.Basic.Ack)
            assert client.expect(commands.Basic.Ack).delivery_tag == 1
            assert time.monotonic() - began >= 1.99
        assert broker.call(lambda server: server.faults.confirm_delay_s) == 0.0
        client.publish(1, "q", b"x")
        assert client.expect(commands.Basic.Ack).delivery_tag == 2


def test_each_of_two_publishes_is_late_by_the_whole_time() -> None:
    with Broker() as broker, confirming(broker) as client, broker.faults.delayed_confirms(2.0):
        # A message that expires is the clock: the second publish comes while the confirm of the first is on its way.
        client.publish(1, "q", b"clock", expiration="200")
        wait_until(
            lambda: broker.call(lambda server: queue_of(server, "q").expiry.expired_count) == 1, "time has passed"
        )
        client.barrier(1)
        assert not client.seen(commands.Basic.Ack)
        began = time.monotonic()
        client.publish(1, "q", b"x")
        while client.expect(commands.Basic.Ack).delivery_tag < 2:
            pass
        assert time.monotonic() - began >= 1.99


def test_a_connection_that_is_lost_before_its_late_confirms_does_no_harm() -> None:
    with Broker() as broker:
        with broker.faults.delayed_confirms(0.1):
            client = confirming(broker)
            client.publish(1, "q", b"x")
            client.barrier(1)
            client.reset()
            with confirming(broker) as clock:
                clock.publish(1, "q", b"x")
                assert clock.expect(commands.Basic.Ack).delivery_tag == 1
        assert broker.call(lambda server: server.internal_errors) == 0


def test_faults_can_be_nested_and_end_with_their_blocks() -> None:
    with Broker() as broker, confirming(broker) as client:
        with broker.faults.refused_confirms():
            with broker.faults.refused_confirms(), broker.faults.delayed_confirms(0.01):
                client.publish(1, "q", b"x")
                assert client.expect(commands.Basic.Nack).delivery_tag == 1
            client.publish(1, "q", b"x")
            assert client.expect(commands.Basic.Nack).delivery_tag == 2
        client.publish(1, "q", b"x")
        assert client.expect(commands.Basic.Ack).delivery_tag == 3


def test_a_broker_that_stops_within_the_block_has_no_faults_when_it_starts_again() -> None:
    broker = Broker().start()
    with broker.faults.refused_confirms(), broker.faults.delayed_confirms(60.0):
        broker.stop()
    with broker, confirming(broker) as client:
        client.publish(1, "q", b"x")
        assert client.expect(commands.Basic.Ack).delivery_tag == 1


def test_faults_end_with_a_block_that_fails() -> None:
    with Broker() as broker:
        with pytest.raises(ZeroDivisionError), broker.faults.refused_confirms():
            raise ZeroDivisionError
        assert not broker.call(lambda server: server.faults.refuse_confirms)
