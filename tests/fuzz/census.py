"""What a server holds: counts by name, and the weight of everything that can be reached from it.

The weight does not know the broker's registries, so it also finds growth in one that nobody thought of.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.broker.access.rights import Rights
from penstock.broker.audit.audit_log import AuditLog
from penstock.broker.deprecated_features import DeprecatedFeatures
from penstock.queues.arrivals import Arrivals
from penstock.routing.bindings import EXCHANGE
from penstock.server.server import Server
from penstock.wire import methods
from penstock.wire.property_shapes import PropertyShapes

from .client_frames import Frame, encode_all, method
from .socketless import SocketlessServer

# What leads out of the broker, or is not its state.
NOT_FOLLOWED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    # Made by a timer, when a queue is a second old; it is bounded.
    Arrivals,
    # Remembers what publishers have sent, and is bounded (tests/unit/wire/test_mixed_run.py).
    PropertyShapes,
    # Its last events are kept for who asks, and are bounded.
    AuditLog,
    # Has the first users of each deprecated feature, for the list of them.
    DeprecatedFeatures,
    # Remembers what was allowed, and is bounded (tests/unit/access/test_rights.py).
    Rights,
    # Checks passwords; what waits for it is bounded as connections before their login are.
    ThreadPoolExecutor,
    asyncio.AbstractEventLoop,
    asyncio.AbstractServer,
    asyncio.BaseTransport,
    asyncio.Handle,
    asyncio.Future,
    logging.Logger,
)
ATOMS = (int, float, complex, bool, type(None))


@dataclass
class Census:
    """What is there at one moment. Compared with what was there before."""

    connections: int
    channels: int
    unacked: int
    consumers: int
    queues: int
    exchanges: int
    ready_messages: int
    ram_bytes: int
    held_publishers: int
    internal_errors: int

    @classmethod
    def of(cls, server: Server) -> Census:
        channels = [channel for connection in server.connections for channel in connection.channels.values()]
        queues = [queue for vhost in server.broker.vhosts.values() for queue in vhost.queues.values()]
        return cls(
            connections=len(server.connections),
            channels=len(channels),
            unacked=sum(len(channel.unacked) for channel in channels),
            consumers=sum(queue.consumer_count() for queue in queues),
            queues=len(queues),
            exchanges=sum(len(vhost.exchanges) for vhost in server.broker.vhosts.values()),
            ready_messages=sum(len(queue) for queue in queues),
            ram_bytes=server.broker.ram_bytes(),
            held_publishers=len(server.flow.throttled),
            internal_errors=server.internal_errors,
        )


@dataclass
class Weight:
    """Objects that can be reached from a server, and the bytes and characters in them."""

    objects: int
    text_bytes: int


def weigh(server: Server) -> Weight:
    gc.collect()
    seen: set[int] = {id(server)}
    pending: list[object] = [server]
    weight = Weight(0, 0)
    while pending:
        found = pending.pop()
        weight.objects += 1
        if isinstance(found, bytes | bytearray | str):
            weight.text_bytes += len(found)
            continue
        for inner in gc.get_referents(found):
            if id(inner) not in seen and not isinstance(inner, ATOMS) and not isinstance(inner, NOT_FOLLOWED):
                seen.add(id(inner))
                pending.append(inner)
    return weight


def living(*kinds: str) -> dict[str, int]:
    """How many objects of these classes of the broker exist anywhere, reachable or not."""
    gc.collect()
    counts = dict.fromkeys(kinds, 0)
    for found in gc.get_objects():
        kind = type(found)
        if kind.__name__ in counts and kind.__module__.startswith("penstock."):
            counts[kind.__name__] += 1
    return counts


def removals(server: Server, channel: int) -> list[Frame]:
    """Methods that delete what a client may leave behind by right: shared queues, exchanges, their bindings."""
    sent: list[methods.Method] = []
    for vhost in server.broker.vhosts.values():
        for queue in vhost.queues.values():
            if queue.exclusive_owner is None:
                sent.append(methods.QueueDelete(queue.name))
        for name, exchange in vhost.exchanges.items():
            if name and not name.startswith("amq."):
                sent.append(methods.ExchangeDelete(name))
            for binding in exchange.bindings():
                kind, destination = binding.destination
                if kind == EXCHANGE:
                    sent.append(
                        methods.ExchangeUnbind(destination, name, binding.routing_key, False, binding.arguments)
                    )
    return [method(channel, each) for each in sent]


def clean_up(bench: SocketlessServer) -> None:
    """As a client, remove what other clients have left behind."""
    left = removals(bench.server, 1)
    if left:
        client = bench.login()
        client.send(encode_all([method(1, methods.ChannelOpen()), *left]))
        bench.settle()
        assert client.said().closes() == []
        client.hang_up()
