"""Publishes events to `amq.rabbitmq.event` of the first vhost, as RabbitMQ's plugin of that name does.

The routing key is the event's name, the properties are headers, the body is empty. While nothing is bound to the
exchange an event costs nothing here. No event tells of such a message, so they do not beget each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.broker.vhost.vhost import EVENT_EXCHANGE, VHost
from penstock.message import Envelope, Incoming
from penstock.wire import frames
from penstock.wire.properties import Properties, encode_properties
from penstock.wire.tables import table_from_python

EMPTY_BODY: Final = bytes((frames.END,))
# basic.properties: the message is persistent.
PERSISTENT: Final = 2


class EventExchange:
    def __init__(self, vhost: VHost) -> None:
        self._vhost = vhost

    def publish(self, name: str, record: Mapping[str, Any], now_ms: int) -> None:
        """Publish an event to the queues that are bound for it."""
        exchange = self._vhost.exchanges.get(EVENT_EXCHANGE)
        if exchange is None or not exchange.has_bindings:
            return
        headers = table_from_python({"timestamp_in_ms": now_ms, **record})
        queues = self._vhost.route_now(EVENT_EXCHANGE, [name], headers)
        if not queues:
            return
        properties = Properties(headers=headers, delivery_mode=PERSISTENT, timestamp=now_ms // 1000)
        envelope = Envelope(EVENT_EXCHANGE, name, encode_properties(properties), persistent=True)
        incoming = Incoming(envelope, [EMPTY_BODY])
        for queue in queues:
            queue.publish(incoming, None)
