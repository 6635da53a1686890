"""pika connections to a broker of a test, and what their consumers got."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from penstock.testing import Broker
from tests.interop.pika_inbox import Inbox

OpenChannel = Callable[[], BlockingChannel]


@contextmanager
def pika_channels(broker: Broker) -> Iterator[OpenChannel]:
    """A factory of channels, each on a connection of its own; all are closed at the end."""
    opened: list[pika.BlockingConnection] = []

    def open_one() -> BlockingChannel:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        opened.append(connection)
        return connection.channel()

    try:
        yield open_one
    finally:
        for connection in opened:
            with suppress(pika.exceptions.AMQPError):
                connection.close()


def consume(channel: BlockingChannel, queue: str, auto_ack: bool = False, **arguments: object) -> Inbox:
    """Arguments with underscores for dashes: x_selector is x-selector."""
    inbox = Inbox()
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    channel.basic_consume(queue, inbox, auto_ack=auto_ack, arguments=named)
    return inbox


def quiet(*channels: BlockingChannel) -> None:
    """Return when each channel has got what the broker had for it: the answer comes behind the deliveries.

    Twice, because a consumer that is notified by one connection's method gets its messages in the turn after that.
    """
    for _ in range(2):
        for channel in channels:
            channel.exchange_declare("amq.direct", passive=True)
            channel.connection.process_data_events(time_limit=0)
