"""x-overflow = producer-flow-control: a publisher that meets a full queue stands still until there is room."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pytest

from tests.features.stage import Stage, declare, drain, drain_until, numbered, publish, ready, take
from tests.interop.deadline import wait_until
from tests.interop.pika_inbox import Inbox
from tests.server.brokers import unread_connection_count


class Flood(threading.Thread):
    """Publishes one after the other, from a connection of its own; without confirms as fast as it can."""

    def __init__(self, url: str, queue: str, count: int, heartbeat: int | None, confirms: bool) -> None:
        super().__init__(daemon=True)
        self._parameters = pika.URLParameters(url)
        if heartbeat is not None:
            self._parameters.heartbeat = heartbeat
        self._queue = queue
        self._count = count
        self._confirms = confirms
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with pika.BlockingConnection(self._parameters) as connection:
                channel = connection.channel()
                if self._confirms:
                    channel.confirm_delivery()
                for body in numbered(0, self._count):
                    channel.basic_publish("", self._queue, body)
        except BaseException as error:  # shown by the test
            self.error = error


@contextmanager
def flood(stage: Stage, queue: str, count: int, heartbeat: int | None = None, confirms: bool = True) -> Iterator[Flood]:
    thread = Flood(stage.broker.url, queue, count, heartbeat, confirms)
    thread.start()
    yield thread
    thread.join(60)
    assert thread.error is None, thread.error
    assert not thread.is_alive(), "it still stands"


def wait_still(stage: Stage, count: int = 1) -> None:
    wait_until(lambda: unread_connection_count(stage.broker) == count, f"{count} publishers stand still")


def test_a_publisher_stands_still_above_the_limit_and_goes_on_at_four_fifths(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=10, x_overflow="producer-flow-control")
    with flood(either, "q", 20):
        wait_still(either)
        assert ready(channel, "q") == 11
        for expected in (b"0", b"1"):
            assert take(channel, "q")[2] == expected
        # Nine: not yet four fifths.
        assert (ready(channel, "q"), unread_connection_count(either.broker)) == (9, 1)
        assert take(channel, "q")[2] == b"2"
        wait_until(lambda: ready(channel, "q") == 11, "it goes on until the queue is full again")
        wait_still(either)
        assert drain_until(channel, "q", 17) == numbered(3, 20)


def test_a_publisher_at_full_speed_stands_still_and_all_that_was_on_its_way_arrives(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=10, x_overflow="producer-flow-control")
    with flood(either, "q", 20_000, confirms=False):
        wait_still(either)
        assert 10 < ready(channel, "q") < 20_000
        inbox = Inbox()
        channel.basic_consume("q", inbox, auto_ack=True)
        inbox.wait_for(channel, 20_000)
    assert inbox.bodies == numbered(0, 20_000)


@pytest.mark.parametrize("limit", [0, 1])
def test_the_tiniest_limits_let_one_more_in(either: Stage, limit: int) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=limit, x_overflow="producer-flow-control")
    with flood(either, "q", 5):
        wait_still(either)
        assert ready(channel, "q") == limit + 1
        assert drain_until(channel, "q", 5) == numbered(0, 5)


def test_bytes_make_it_stand_still_too(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length_bytes=5, x_overflow="producer-flow-control")
    with flood(either, "q", 9):
        wait_still(either)
        assert ready(channel, "q") == 6
        assert drain_until(channel, "q", 9) == numbered(0, 9)


def test_publishers_of_other_queues_and_consumers_go_on(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=1, x_overflow="producer-flow-control")
    declare(channel, "other")
    with flood(either, "q", 4):
        wait_still(either)
        publish(channel, "other", b"passes")
        assert drain(channel, "other") == [b"passes"]
        assert drain_until(channel, "q", 4) == numbered(0, 4)


def test_every_publisher_waits_and_every_one_goes_on(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=2, x_overflow="producer-flow-control")
    with flood(either, "q", 6), flood(either, "q", 6), flood(either, "q", 6):
        wait_still(either, 3)
        assert sorted(drain_until(channel, "q", 18)) == sorted(numbered(0, 6) * 3)


def test_a_purge_a_deletion_and_an_expiry_let_publishers_go_on(either: Stage) -> None:
    channel = either.channel()
    for queue in ("purged", "deleted"):
        declare(channel, queue, x_max_length=1, x_overflow="producer-flow-control")
    declare(channel, "expires", x_max_length=1, x_overflow="producer-flow-control", x_message_ttl=100)
    with flood(either, "purged", 3):
        wait_still(either)
        channel.queue_purge("purged")
    assert drain(channel, "purged") == [b"2"]
    with flood(either, "deleted", 3):
        wait_still(either)
        channel.queue_delete("deleted")
    with flood(either, "expires", 3):
        pass


def test_a_consumer_that_takes_without_acknowledging_makes_room(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=2, x_overflow="producer-flow-control")
    inbox = Inbox()
    with flood(either, "q", 9):
        wait_still(either)
        channel.basic_consume("q", inbox)
        inbox.wait_for(channel, 9)
    assert inbox.bodies == numbered(0, 9)


def test_a_publisher_that_stands_still_is_not_taken_for_dead(either: Stage) -> None:
    """Its heartbeats are in its socket, unread. Ours go on; the connection is there when there is room."""
    channel = either.channel()
    declare(channel, "q", x_max_length=1, x_overflow="producer-flow-control")
    # Heartbeats every second, and a third connection whose death by heartbeat shows that the time for it has come.
    with flood(either, "q", 4, heartbeat=1):
        wait_still(either)
        silent = either.channel(heartbeat=1)
        silent_connections = either.look(lambda server: len(server.connections))
        wait_until(
            lambda: either.look(lambda server: len(server.connections)) < silent_connections,
            "the broker has closed the connection that sends no heartbeats",
        )
        assert unread_connection_count(either.broker) == 1
        assert drain_until(channel, "q", 4) == numbered(0, 4)
    assert silent is not None


def test_a_message_that_comes_back_does_not_lock_anybody_out(either: Stage) -> None:
    channel = either.channel()
    declare(channel, "q", x_max_length=1, x_overflow="producer-flow-control")
    publish(channel, "q", b"0")
    tag = take(channel, "q", ack=False)[0].delivery_tag
    publish(channel, "q", b"1")
    channel.basic_nack(tag, requeue=True)
    assert drain_until(channel, "q", 2) == numbered(0, 2)
    publish(channel, "q", b"2")
    publish(either.channel(), "q", b"3")
    reader = either.channel()
    assert drain_until(reader, "q", 2) == [b"2", b"3"]


def test_a_dead_letter_does_not_wait_for_room(either: Stage) -> None:
    """It is the broker that publishes: nobody can be made to wait."""
    channel = either.channel()
    declare(channel, "full", x_max_length=1, x_overflow="producer-flow-control")
    declare(channel, "q", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key="full")
    publish(channel, "q", *numbered(0, 4))
    assert drain_until(either.channel(), "full", 4) == numbered(0, 4)
