"""Hands one frame at a time to its handler: connection methods, channel methods, content. Frames that come in thousands
are taken by `reader` before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    AmqpError,
    ChannelException,
    channel_error,
    command_invalid,
    frame_error,
    not_allowed,
    unexpected_frame,
)
from penstock.fields import term_text
from penstock.server.channel.channel import Channel
from penstock.server.channel.publishing import PublishRoute
from penstock.server.methods import basic_methods, exchange_methods, mode_methods, queue_methods
from penstock.wire import frames, methods

if TYPE_CHECKING:
    from penstock.server.connection.connection import Connection

# Each handler takes its own method class; the table is the one place where that is not checked statically.
Handler = Callable[[Channel, Any], None]

# What opens, closes or declares; channel.open besides. See `churn_pace`.
CHURNING = frozenset(
    (
        methods.ChannelClose.INDEX,
        methods.ExchangeDeclare.INDEX,
        methods.ExchangeDelete.INDEX,
        methods.ExchangeBind.INDEX,
        methods.ExchangeUnbind.INDEX,
        methods.QueueDeclare.INDEX,
        methods.QueueDelete.INDEX,
        methods.QueueBind.INDEX,
        methods.QueueUnbind.INDEX,
        methods.BasicConsume.INDEX,
        methods.BasicCancel.INDEX,
    )
)


def _paced(handler: Handler) -> Handler:
    def run(channel: Channel, method: Any) -> None:
        channel.connection.churn.spend()
        handler(channel, method)

    return run


_ALL: dict[int, Handler] = {
    **mode_methods.HANDLERS,
    **exchange_methods.HANDLERS,
    **queue_methods.HANDLERS,
    **basic_methods.HANDLERS,
}
HANDLERS: dict[int, Handler] = {
    index: _paced(handler) if index in CHURNING else handler for index, handler in _ALL.items()
}

# A method frame has its class and method, a header frame its class, weight and body size; there is no type 0.
SHORTEST = (1 << 32, 4, frames.CONTENT_HEADER_BYTES, 0)


def on_frame(connection: Connection, kind: int, number: int, data: bytes, start: int, stop: int) -> None:
    """Any frame; its payload is data[start:stop]."""
    if kind == frames.HEARTBEAT:
        on_heartbeat(number, data[start:stop])
    elif kind > frames.BODY or stop - start < SHORTEST[kind]:
        raise frame_error(f"{describe(kind, data[start:stop])}: unknown_frame")
    elif number == 0:
        on_connection_frame(connection, kind, data, start, stop)
    elif connection.closing:
        return
    elif not connection.opened:
        raise unexpected_frame(describe(kind, data[start:stop]))
    else:
        on_channel_frame(connection, kind, number, data, start, stop)


def describe(kind: int, payload: bytes) -> str:
    """Return a frame in RabbitMQ's words: its type and the octets of its payload, at most sixteen."""
    count = "all" if len(payload) <= 16 else "first 16"
    return f"type {kind}, {count} octets = {term_text(('x', payload[:16]))}"


def on_heartbeat(number: int, payload: bytes) -> None:
    if payload:
        raise frame_error(f"{describe(frames.HEARTBEAT, payload)}: unknown_frame")
    if number != 0:
        raise unexpected_frame(describe(frames.HEARTBEAT, payload))


def on_connection_frame(connection: Connection, kind: int, data: bytes, start: int, stop: int) -> None:
    if kind != frames.METHOD:
        if connection.closing:
            return
        raise unexpected_frame(describe(kind, data[start:stop]))
    method = methods.decode_method(data, start, stop)
    if isinstance(method, methods.ConnectionCloseOk) and connection.closing:
        connection.abort()
    elif isinstance(method, methods.ConnectionClose):
        connection.closed_by_client()
    elif connection.closing:
        return
    else:
        try:
            on_connection_method(connection, method)
        except AmqpError as error:
            connection.close_with(error, method.INDEX)


def on_connection_method(connection: Connection, method: methods.Method) -> None:
    if not connection.opened:
        connection.handshake.on_method(method)
    elif isinstance(method, methods.ConnectionUpdateSecret):
        connection.handshake.update_secret(method)
    else:
        raise channel_error("unexpected method in connection state running")


def on_channel_frame(connection: Connection, kind: int, number: int, data: bytes, start: int, stop: int) -> None:
    channel = connection.channels.get(number)
    if channel is None:
        open_channel(connection, kind, number, data, start, stop)
        return
    if channel.closing:
        on_closing_channel(connection, channel, kind, data, start, stop)
        return
    # Content belongs to a publish; content out of nowhere to nothing.
    index = methods.BasicPublish.INDEX if channel.in_content() else 0
    try:
        if kind == frames.HEADER:
            channel.on_header(data[start:stop])
        elif kind == frames.BODY:
            channel.on_body(data[start:stop])
        else:
            if channel.in_content():
                raise unexpected_frame(channel.content_complaint())
            index = int.from_bytes(data[start : start + 4], "big")
            handle(channel, methods.decode_method(data, start, stop))
    except ChannelException as error:
        connection.refuse_channel(channel, error, index)
    except AmqpError as error:
        connection.refuse(error, index)


def handle(channel: Channel, method: methods.Method) -> None:
    """Run a method; raises AmqpError for whatever is wrong with it."""
    if isinstance(method, methods.BasicPublish):
        try:
            channel.begin_content(PublishRoute(channel, method, b""))
        except ChannelException as error:
            channel.begin_refused_content(error)
        return
    handler = HANDLERS.get(method.INDEX)
    if handler is None:
        raise command_invalid("unimplemented method")
    handler(channel, method)


def open_channel(connection: Connection, kind: int, number: int, data: bytes, start: int, stop: int) -> None:
    """The channel is not open: only channel.open may come."""
    if kind != frames.METHOD:
        raise unexpected_frame("expected method frame, got non method frame instead")
    method = methods.decode_method(data, start, stop)
    if not isinstance(method, methods.ChannelOpen):
        connection.close_with(channel_error("expected 'channel.open'"), method.INDEX)
        return
    count = len(connection.channels)
    if count >= connection.channels_max:
        raise not_allowed(
            f"number of channels opened ({count}) has reached the negotiated channel_max ({connection.channels_max})"
        )
    user = connection.broker.users.get(connection.user.name)
    if user is not None and user.limits:
        connection.server.admission.check_channels(user)
    connection.churn.spend()
    connection.channels[number] = Channel(connection, number)
    connection.send(number, methods.ChannelOpenOk())


def on_closing_channel(connection: Connection, channel: Channel, kind: int, data: bytes, start: int, stop: int) -> None:
    """Only close and close-ok count on a channel that we have closed; the rest was sent before the client knew."""
    if kind != frames.METHOD:
        return
    index = int.from_bytes(data[start : start + 4], "big")
    if index == methods.ChannelClose.INDEX:
        connection.send(channel.number, methods.ChannelCloseOk())
    elif index == methods.ChannelCloseOk.INDEX:
        connection.channels.pop(channel.number, None)
    elif index == methods.ChannelOpen.INDEX:
        connection.close_with(channel_error("second 'channel.open' seen"), index)
