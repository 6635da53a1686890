"""Methods of the exchange class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.users import CONFIGURE, READ, WRITE
from penstock.broker.vhost import default_exchange_refusal, without_line_breaks
from penstock.routing.bindings import EXCHANGE, Binding
from penstock.server.channel import Channel
from penstock.wire import methods


def exchange_declare(channel: Channel, method: methods.ExchangeDeclare) -> None:
    connection = channel.connection
    name = without_line_breaks(method.exchange)
    if name == "":
        raise default_exchange_refusal()
    if method.passive:
        connection.vhost.exchange(name)
    else:
        connection.user.require(CONFIGURE, "exchange", name, connection.vhost.name)
        _check_alternate_rights(channel, name, method)
        connection.vhost.declare_exchange(
            name, method.type, method.durable, method.auto_delete, method.internal, method.arguments
        )
    if not method.no_wait:
        channel.send(methods.ExchangeDeclareOk())


def _check_alternate_rights(channel: Channel, name: str, method: methods.ExchangeDeclare) -> None:
    """Whoever names an alternate exchange must be able to read from this one and write to that one."""
    field = method.arguments.get("alternate-exchange")
    if field is not None and isinstance(field[1], bytes):
        connection = channel.connection
        alternate = field[1].decode("utf-8", "replace")
        connection.user.require(READ, "exchange", name, connection.vhost.name)
        connection.user.require(WRITE, "exchange", alternate, connection.vhost.name)


def exchange_delete(channel: Channel, method: methods.ExchangeDelete) -> None:
    connection = channel.connection
    name = without_line_breaks(method.exchange)
    if name == "":
        raise default_exchange_refusal()
    connection.user.require(CONFIGURE, "exchange", name, connection.vhost.name)
    connection.vhost.delete_exchange(name, method.if_unused)
    if not method.no_wait:
        channel.send(methods.ExchangeDeleteOk())


def _binding(channel: Channel, method: methods.ExchangeBind | methods.ExchangeUnbind) -> Binding:
    connection = channel.connection
    connection.user.require(WRITE, "exchange", method.destination, connection.vhost.name)
    connection.user.require(READ, "exchange", method.source, connection.vhost.name)
    if method.source == "" or method.destination == "":
        raise default_exchange_refusal()
    return Binding(method.source, (EXCHANGE, method.destination), method.routing_key, method.arguments)


def exchange_bind(channel: Channel, method: methods.ExchangeBind) -> None:
    vhost = channel.connection.vhost
    binding = _binding(channel, method)
    vhost.exchange(method.source)
    vhost.exchange(method.destination)
    vhost.bind(binding)
    if not method.no_wait:
        channel.send(methods.ExchangeBindOk())


def exchange_unbind(channel: Channel, method: methods.ExchangeUnbind) -> None:
    channel.connection.vhost.unbind(_binding(channel, method))
    if not method.no_wait:
        channel.send(methods.ExchangeUnbindOk())


HANDLERS: dict[int, Callable[[Channel, Any], None]] = {
    methods.ExchangeDeclare.INDEX: exchange_declare,
    methods.ExchangeDelete.INDEX: exchange_delete,
    methods.ExchangeBind.INDEX: exchange_bind,
    methods.ExchangeUnbind.INDEX: exchange_unbind,
}
