"""What comes and goes under a new name each time leaves nothing behind, not even in a dict.

`test_what_is_gone_is_freed` counts objects. A name, a routing key or a number that stays in a container is not one of
ours; so here the containers are measured, all that the server leads to and all that modules have.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from array import array
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from pamqp import commands

from penstock.testing import Broker
from tests.interop.deadline import wait_until
from tests.server.amqp_client import Client
from tests.server.brokers import connection_count
from tests.server.conftest import StartBroker

CYCLES = 25
CONTAINERS = (dict, set, list, deque, bytearray, array)
# Nothing of the broker is behind these. The loop keeps cancelled timers, and throws them away a hundred at a time.
ENDS = (
    ModuleType,
    type,
    FunctionType,
    BuiltinFunctionType,
    FrameType,
    asyncio.AbstractEventLoop,
    str,
    bytes,
    int,
    float,
    bool,
)


def contents(server: object) -> Counter[str]:
    """How much is in the containers, by the way that leads to them."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting: deque[tuple[str, object]] = deque([("Server", server)])
    for name, module in list(sys.modules.items()):
        if name.startswith("penstock"):
            holders: list[Any] = [module, *[each for each in vars(module).values() if isinstance(each, type)]]
            for holder in holders:
                waiting.extend([(f"{holder.__name__}.{key}", value) for key, value in vars(holder).items()])
    while waiting:
        path, each = waiting.popleft()
        if id(each) in seen or isinstance(each, ENDS) or (isinstance(each, deque) and each.maxlen is not None):
            # A deque with a limit cannot grow without end.
            continue
        seen.add(id(each))
        if isinstance(each, CONTAINERS):
            found[path] += len(each)
        if isinstance(each, dict):
            waiting.extend([(f"{path}[]", inner) for pair in list(each.items()) for inner in pair])
        elif isinstance(each, (list, set, tuple, deque)):
            waiting.extend([(f"{path}[]", inner) for inner in list(each)])
        elif type(each).__module__.startswith("penstock"):
            name = type(each).__name__
            for attribute in attributes_of(each):
                waiting.append((f"{name}.{attribute}", getattr(each, attribute, None)))
        else:
            # Bound methods, partials, tasks: whatever they hold.
            waiting.extend([(f"{path}()", inner) for inner in gc.get_referents(each) if not isinstance(inner, dict)])
    return found


def attributes_of(each: object) -> list[str]:
    names = list(getattr(each, "__dict__", ()))
    for kind in type(each).__mro__:
        slots = getattr(kind, "__slots__", ())
        names.extend([slots] if isinstance(slots, str) else slots)
    return names


def connected(broker: Broker, number: int) -> Client:
    client = Client(broker.host, broker.port).handshake()
    client.open_channel(1)
    return client


def transient(broker: Broker, number: int, durable: bool = False) -> None:
    """A connection with channels, exchange, queue, binding and consumer, each with a name of its own."""
    client = connected(broker, number)
    client.open_channel(2)
    client.call(2, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    exchange, queue, key = f"x-{number}", f"q-{number}", f"key.{number}"
    kind = ("topic", "direct", "headers", "fanout")[number % 4]
    declare = commands.Exchange.Declare(0, exchange, kind, durable=durable)
    client.call(1, declare, commands.Exchange.DeclareOk)
    client.declare(1, queue, durable=durable)
    client.call(1, commands.Queue.Bind(0, queue, exchange, key), commands.Queue.BindOk)
    link = commands.Exchange.Bind(0, exchange, "amq.topic", key)
    client.call(1, link, commands.Exchange.BindOk)
    client.consume(1, queue, f"tag-{number}")
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    mode = 2 if durable else 1
    headers = {f"header-{number}": f"value-{number}"}
    client.publish(1, key, b"one", exchange="amq.topic", headers=headers, message_id=f"id-{number}", delivery_mode=mode)
    client.ack(1, client.message().method.delivery_tag)
    client.publish(1, f"no-such-key-{number}", b"unroutable", exchange=exchange)
    client.barrier(1)
    client.call(1, commands.Exchange.Delete(0, exchange), commands.Exchange.DeleteOk)
    client.call(1, commands.Queue.Delete(0, queue), commands.Queue.DeleteOk)
    client.close()


def durable(broker: Broker, number: int) -> None:
    transient(broker, number, True)


def replying(broker: Broker, number: int) -> None:
    """Requests with a reply-to of their own, and direct replies."""
    client = connected(broker, number)
    own = client.declare(1, "", exclusive=True)
    client.consume(1, own, no_ack=True)
    client.consume(1, "amq.rabbitmq.reply-to", no_ack=True)
    for reply_to in (f"reply-{number}", "amq.rabbitmq.reply-to"):
        client.publish(1, own, b"request", reply_to=reply_to, correlation_id=f"c-{number}")
        address = client.message().properties.reply_to
    client.publish(1, address, b"reply")
    assert client.message().body == b"reply"
    client.close()


def featured(broker: Broker, number: int) -> None:
    """A queue with features, named anew in all that they remember."""
    client = connected(broker, number)
    arguments: dict[str, Any] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"nowhere-{number}",
        "x-message-deduplication": True,
        "x-cache-size": 10,
        "x-hold-on-publish": True,
        "x-delivery-limit": 3,
        "x-delayed-retry-min": 60_000,
        "x-group-header": f"g-{number}",
        "x-expires": 60_000,
    }
    later = commands.Exchange.Declare(
        0, f"later-{number}", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    client.call(1, later, commands.Exchange.DeclareOk)
    client.declare(1, f"q-{number}", durable=True, arguments=arguments)
    client.call(1, commands.Queue.Bind(0, f"q-{number}", f"later-{number}", f"k-{number}"), commands.Queue.BindOk)
    headers = {f"g-{number}": f"group-{number}", "x-deduplication-header": f"d-{number}"}
    client.publish(1, f"q-{number}", b"one", headers=headers, delivery_mode=2)
    client.publish(1, f"k-{number}", b"held", exchange=f"later-{number}", headers={"x-delay": 60_000}, delivery_mode=2)
    client.consume(1, f"q-{number}", f"tag-{number}", arguments={"x-selector": f"n-{number} IS NULL"})
    client.send(1, commands.Basic.Nack(client.message().method.delivery_tag, False, True))
    client.barrier(1)
    client.call(1, commands.Queue.Delete(0, f"q-{number}"), commands.Queue.DeleteOk)
    client.call(1, commands.Exchange.Delete(0, f"later-{number}"), commands.Exchange.DeleteOk)
    client.close()


def dropped(broker: Broker, number: int) -> None:
    """A client that goes without a word, with an exclusive queue, unacknowledged messages and an open transaction."""
    client = connected(broker, number)
    client.declare(1, f"own-{number}", exclusive=True)
    client.declare(1, f"auto-{number}", auto_delete=True)
    client.consume(1, f"own-{number}", f"tag-{number}")
    client.consume(1, f"auto-{number}", f"auto-tag-{number}")
    client.publish(1, f"own-{number}", b"one", b"two")
    client.messages(2)
    client.open_channel(2)
    client.call(2, commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish(2, f"own-{number}", b"never committed")
    client.barrier(2)
    client.drop()


LIVES: dict[str, Callable[[Broker, int], None]] = {
    "transient": transient,
    "durable": durable,
    "replying": replying,
    "featured": featured,
    "dropped": dropped,
}


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("life", LIVES)
def test_what_has_a_new_name_each_time_leaves_nothing_behind(
    life: str, on_disk: bool, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(data_dir=str(tmp_path / "data") if on_disk else None)

    def live(numbers: range) -> Counter[str]:
        for number in numbers:
            LIVES[life](broker, number)
        wait_until(lambda: connection_count(broker) == 0, "the connections are gone")
        broker.call(lambda server: gc.collect())
        return Counter(broker.call(contents))

    live(range(CYCLES))
    before = live(range(CYCLES, 2 * CYCLES))
    after = live(range(2 * CYCLES, 4 * CYCLES))
    assert {path: count - before[path] for path, count in after.items() if count - before[path] >= CYCLES // 2} == {}
