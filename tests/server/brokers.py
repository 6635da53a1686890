"""Brokers for tests of the server, and what the tests look at inside them."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from penstock.queues.queue import Queue
from penstock.server.connection.connection import Connection
from penstock.server.server import Server
from penstock.testing import Broker
from tests.interop.deadline import wait_until


class UvloopBroker(Broker):
    """The embedded broker on the event loop that `penstock serve` prefers."""

    def _run_loop(self, started: Future[int]) -> None:
        uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed (pip install penstock[uvloop])")
        uvloop.run(self._serve(started))


LOOPS = {"asyncio": Broker, "uvloop": UvloopBroker}


def queue_of(server: Server, name: str, vhost: str = "/") -> Queue:
    return server.broker.vhosts[vhost].queues[name]


def has_queue(broker: Broker, name: str) -> bool:
    return broker.call(lambda server: name in server.broker.vhosts["/"].queues)


def backing_depth(broker: Broker, name: str) -> int:
    """Messages that the queue holds in memory; unlike `queue_depth`, looking does not make any expire."""
    return broker.call(lambda server: len(queue_of(server, name).backing))


def consumer_states(broker: Broker, name: str) -> dict[str, int]:
    """How many consumers of the queue are in which state."""
    return broker.call(lambda server: queue_of(server, name).consumers.counts())


def connection_count(broker: Broker) -> int:
    return broker.call(lambda server: len(server.connections))


def output_bytes(broker: Broker) -> int:
    """The most that waits to be written to any one client."""

    def waiting(connection: Connection) -> int:
        transport = connection._transport
        return (transport.get_write_buffer_size() if transport else 0) + sum(map(len, connection.out))

    return broker.call(lambda server: max(map(waiting, server.connections), default=0))


def unread_connection_count(broker: Broker) -> int:
    """Connections that the broker does not read at present."""
    return broker.call(lambda server: sum(bool(connection._read_stops) for connection in server.connections))


def check_health(broker: Broker) -> None:
    """What must be true of a broker at any time that the test can see it."""

    def look(server: Server) -> None:
        assert server.internal_errors == 0, "the broker had an internal error; see the captured log"
        for vhost in server.broker.vhosts.values():
            for queue in vhost.queues.values():
                queue.consumers.check_invariants()
                queue.backing.check_invariants()

    broker.call(look)


def check_left_alone(broker: Broker) -> None:
    """What must be true besides when its clients are gone or quiet."""
    check_health(broker)
    # asyncio has a task for each connection that is being accepted.
    wait_until(
        lambda: broker.call(lambda server: len(asyncio.all_tasks(server.loop))) == 1, "only the broker's own task runs"
    )
