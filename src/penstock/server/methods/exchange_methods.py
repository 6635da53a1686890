"""Methods of the exchange class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.access.permission import CONFIGURE, READ, WRITE
from penstock.broker.audit.event import BINDING_CREATED, BINDING_DELETED, EXCHANGE_CREATED, EXCHANGE_DELETED
from penstock.broker.definitions.names import default_exchange_refusal, without_line_breaks
from penstock.server.channel.channel import Channel
from penstock.server.connection.acts import note
from penstock.wire import methods


def exchange_declare(channel: Channel, method: methods.ExchangeDeclare) -> None:
    connection = channel.connection
    name = without_line_breaks(method.exchange)
    if not method.passive:
        connection.vhost.check_exchange_type(method.type)
    if name == "":
        raise default_exchange_refusal()
    if method.passive:
        connection.vhost.exchange(name)
        lasting = False
    else:
        # In RabbitMQ's order: of several faults, the client hears of the first.
        connection.rights.require(CONFIGURE, "exchange", name)
        connection.vhost.check_exchange_name(name)
        is_new = name not in connection.vhost.exchanges
        if is_new:
            _check_alternate_rights(channel, name, method)
        connection.vhost.declare_exchange(
            name, method.type, method.durable, method.auto_delete, method.internal, method.arguments
        )
        if is_new:
            note(connection, EXCHANGE_CREATED, name=name, type=method.type, durable=method.durable)
        lasting = method.durable
    channel.answer(methods.ExchangeDeclareOk(), method.no_wait, lasting)


def _check_alternate_rights(channel: Channel, name: str, method: methods.ExchangeDeclare) -> None:
    """Check that the user may read from this exchange and write to its alternate exchange."""
    field = method.arguments.get("alternate-exchange")
    if field is not None and isinstance(field[1], bytes):
        connection = channel.connection
        alternate = field[1].decode("utf-8", "replace")
        connection.rights.require(READ, "exchange", name)
        connection.rights.require(WRITE, "exchange", alternate)


def exchange_delete(channel: Channel, method: methods.ExchangeDelete) -> None:
    connection = channel.connection
    name = without_line_breaks(method.exchange)
    connection.vhost.check_exchange_deletable(name)
    connection.rights.require(CONFIGURE, "exchange", name)
    is_there = name in connection.vhost.exchanges
    connection.vhost.delete_exchange(name, method.if_unused)
    if is_there:
        note(connection, EXCHANGE_DELETED, name=name)
    channel.answer(methods.ExchangeDeleteOk(), method.no_wait)


def _check_binding(channel: Channel, method: methods.ExchangeBind | methods.ExchangeUnbind) -> None:
    connection = channel.connection
    connection.rights.require(WRITE, "exchange", method.destination)
    if method.source == "" or method.destination == "":
        raise default_exchange_refusal()
    connection.rights.require(READ, "exchange", method.source)
    if connection.vhost.is_topic(method.source):
        connection.rights.require_topic(READ, method.source, method.routing_key)


def exchange_bind(channel: Channel, method: methods.ExchangeBind) -> None:
    _check_binding(channel, method)
    connection = channel.connection
    connection.vhost.bind_exchange(method.source, method.destination, method.routing_key, method.arguments)
    note(
        *(connection, BINDING_CREATED),
        source=method.source,
        exchange=method.destination,
        routing_key=method.routing_key,
    )
    channel.answer(methods.ExchangeBindOk(), method.no_wait)


def exchange_unbind(channel: Channel, method: methods.ExchangeUnbind) -> None:
    _check_binding(channel, method)
    connection = channel.connection
    connection.vhost.unbind_exchange(method.source, method.destination, method.routing_key, method.arguments)
    note(
        *(connection, BINDING_DELETED),
        source=method.source,
        exchange=method.destination,
        routing_key=method.routing_key,
    )
    channel.answer(methods.ExchangeUnbindOk(), method.no_wait)


HANDLERS: dict[int, Callable[[Channel, Any], None]] = {
    methods.ExchangeDeclare.INDEX: exchange_declare,
    methods.ExchangeDelete.INDEX: exchange_delete,
    methods.ExchangeBind.INDEX: exchange_bind,
    methods.ExchangeUnbind.INDEX: exchange_unbind,
}
