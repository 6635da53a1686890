"""Which function handles which method on a channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import command_invalid
from penstock.server import basic_methods, exchange_methods, mode_methods, queue_methods
from penstock.server.channel import Channel
from penstock.wire import methods

# Each handler takes its own method class; the table is the one place where that is not checked statically.
Handler = Callable[[Channel, Any], None]

HANDLERS: dict[int, Handler] = {
    **mode_methods.HANDLERS,
    **exchange_methods.HANDLERS,
    **queue_methods.HANDLERS,
    **basic_methods.HANDLERS,
}


def handle(channel: Channel, method: methods.Method) -> None:
    """Run a method; raises AmqpError for whatever is wrong with it."""
    handler = HANDLERS.get(method.INDEX)
    if handler is None:
        raise command_invalid(f"unimplemented method {method.NAME}")
    handler(channel, method)
