"""Methods of the queue class."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from penstock.broker.access.permission import CONFIGURE, READ, WRITE
from penstock.broker.audit.event import BINDING_CREATED, BINDING_DELETED, QUEUE_CREATED, QUEUE_DELETED, QUEUE_PURGED
from penstock.broker.definitions.arguments import queue_notes
from penstock.broker.definitions.names import default_exchange_refusal, without_line_breaks
from penstock.broker.vhost import direct_reply
from penstock.config import TRANSIENT_QUEUES
from penstock.errors import not_found
from penstock.queues.queue import Queue
from penstock.server.channel.channel import Channel
from penstock.server.connection.acts import note
from penstock.server.postgres.answers import when_counted, when_dropped, when_made, when_purged
from penstock.server.settling.settlements import when_settled
from penstock.wire import methods

log = logging.getLogger("penstock.queue")


def queue_name(channel: Channel, name: str) -> str:
    """An empty name stands for the queue last declared on the channel."""
    if name:
        return name
    if not channel.current_queue:
        raise not_found("no previously declared queue")
    return channel.current_queue


def queue_declare(channel: Channel, method: methods.QueueDeclare) -> None:
    name = without_line_breaks(method.queue)
    if is_reply_queue(channel, name):
        if not method.no_wait:
            channel.send(methods.QueueDeclareOk(name, 0, 1))
        return
    if method.passive:
        queue = channel.connection.vhost.queue(name, channel.connection)
    else:
        queue = _declare(channel, method, name)
    channel.current_queue = queue.name
    queue.offer()
    if queue.lifetime is not None:
        queue.lifetime.used()
    index = method.INDEX
    when_made(
        channel,
        index,
        queue,
        lambda: when_counted(channel, index, queue, lambda: _declared(channel, method, queue)),
    )


def _declared(channel: Channel, method: methods.QueueDeclare, queue: Queue) -> None:
    if queue.deleted:
        # By another client, while the database was asked: it is declared behind that.
        queue_declare(channel, method)
        return
    answer = methods.QueueDeclareOk(queue.name, len(queue), queue.consumer_count())
    channel.answer(answer, method.no_wait, lasting=queue.durable and not method.passive)


def is_reply_queue(channel: Channel, name: str) -> bool:
    """The pseudo-queue of direct reply-to, or the address of a channel that waits for replies: both can be declared."""
    replies = channel.connection.broker.direct_replies
    return name == direct_reply.PSEUDO_QUEUE or replies.receiver(name) is not None


def _declare(channel: Channel, method: methods.QueueDeclare, name: str) -> Queue:
    connection = channel.connection
    vhost = connection.vhost
    owner = connection if method.exclusive else None
    if name == "":
        name = vhost.new_queue_name()
        connection.rights.require(CONFIGURE, "queue", name)
        _check_dead_letter_rights(channel, name, method)
        _check_deprecated(channel, name, method)
        queue = vhost.declare_server_named_queue(name, method.durable, method.auto_delete, owner, method.arguments)
        is_new = True
    else:
        vhost.check_queue_name(name)
        connection.rights.require(CONFIGURE, "queue", name)
        is_new = name not in vhost.queues
        if is_new:
            _check_dead_letter_rights(channel, name, method)
            _check_deprecated(channel, name, method)
        queue = vhost.declare_queue(name, method.durable, method.auto_delete, owner, method.arguments)
    if is_new:
        note(
            *(connection, QUEUE_CREATED),
            name=queue.name,
            durable=queue.durable,
            auto_delete=queue.auto_delete,
            exclusive=method.exclusive,
        )
        for text in queue_notes(method.arguments, connection.broker.log is not None):
            log.warning("%s declared with %s", ascii(queue.describe()), ascii(text))
    return queue


def _check_deprecated(channel: Channel, name: str, method: methods.QueueDeclare) -> None:
    if not method.durable and not method.exclusive:
        connection = channel.connection
        connection.broker.deprecated.use(TRANSIENT_QUEUES, f"queue '{name}' in vhost '{connection.vhost.name}'")


def _check_dead_letter_rights(channel: Channel, name: str, method: methods.QueueDeclare) -> None:
    """Check that the user may read from this queue and write to its dead letter exchange."""
    field = method.arguments.get("x-dead-letter-exchange")
    if field is not None and isinstance(field[1], bytes):
        rights = channel.connection.rights
        rights.require(READ, "queue", name)
        rights.require(WRITE, "exchange", field[1].decode("utf-8", "replace"))


def queue_delete(channel: Channel, method: methods.QueueDelete) -> None:
    connection = channel.connection
    vhost = connection.vhost
    name = queue_name(channel, method.queue)
    connection.rights.require(CONFIGURE, "queue", name)
    found = vhost.queues.get(name)
    if found is not None:
        # Not theirs to delete: refused before anything is asked.
        vhost.queue(name, connection, even_crashed=True).offer()
    when_counted(channel, method.INDEX, found, lambda: _delete(channel, method, name))


def _delete(channel: Channel, method: methods.QueueDelete, name: str) -> None:
    connection = channel.connection
    vhost = connection.vhost
    if name not in vhost.queues:
        channel.answer(methods.QueueDeleteOk(0), method.no_wait)
        return
    queue = vhost.queue(name, connection, even_crashed=True)
    vhost.check_deletable(queue, method.if_unused, method.if_empty)
    counts: list[int] = []

    def delete() -> None:
        counts.append(vhost.delete_queue(queue, False, False))
        note(connection, QUEUE_DELETED, name=name, messages=counts[0])

    def answer() -> None:
        # Nothing is counted when another client has deleted it meanwhile.
        channel.answer(methods.QueueDeleteOk(counts[0] if counts else 0), method.no_wait)

    when_dropped(channel, method.INDEX, queue, delete, answer)


def queue_purge(channel: Channel, method: methods.QueuePurge) -> None:
    connection = channel.connection
    name = queue_name(channel, method.queue)
    connection.rights.require(READ, "queue", name)
    queue = connection.vhost.queue(name, connection)
    queue.offer()

    def answer(purged: int) -> None:
        note(connection, QUEUE_PURGED, name=name, messages=purged)
        if not method.no_wait:
            channel.send(methods.QueuePurgeOk(purged))

    when_purged(channel, method.INDEX, queue, answer)


def _names_bound(channel: Channel, method: methods.QueueBind | methods.QueueUnbind) -> tuple[str, str]:
    """The names of the queue and of the key, if the client may bind there."""
    connection = channel.connection
    name = queue_name(channel, method.queue)
    connection.rights.require(WRITE, "queue", name)
    if method.exchange == "":
        raise default_exchange_refusal()
    connection.rights.require(READ, "exchange", method.exchange)
    # An empty queue and an empty key together mean the current queue's name for both.
    key = name if not method.queue and not method.routing_key else method.routing_key
    if connection.vhost.is_topic(method.exchange):
        connection.rights.require_topic(READ, method.exchange, key)
    return name, key


def queue_bind(channel: Channel, method: methods.QueueBind) -> None:
    connection = channel.connection
    vhost = connection.vhost
    name, key = _names_bound(channel, method)
    vhost.exchange(method.exchange)
    queue = vhost.queue(name, connection)
    if not vhost.is_queue_bound(method.exchange, name, key, method.arguments):
        vhost.bind_queue(method.exchange, queue, key, method.arguments)
        note(connection, BINDING_CREATED, source=method.exchange, queue=name, routing_key=key)
    channel.answer(methods.QueueBindOk(), method.no_wait, lasting=queue.durable)


def queue_unbind(channel: Channel, method: methods.QueueUnbind) -> None:
    connection = channel.connection
    vhost = connection.vhost
    name, key = _names_bound(channel, method)
    if vhost.is_queue_bound(method.exchange, name, key, method.arguments):
        # As in RabbitMQ, a client that may not use the queue is refused only where there is something to unbind.
        vhost.queue(name, connection, even_crashed=True)
        vhost.unbind_queue(method.exchange, name, key, method.arguments)
        note(connection, BINDING_DELETED, source=method.exchange, queue=name, routing_key=key)
    channel.answer(methods.QueueUnbindOk())


HANDLERS: dict[int, Callable[[Channel, Any], None]] = {
    methods.QueueDeclare.INDEX: when_settled(queue_declare),
    methods.QueueDelete.INDEX: when_settled(queue_delete),
    methods.QueuePurge.INDEX: when_settled(queue_purge),
    methods.QueueBind.INDEX: queue_bind,
    methods.QueueUnbind.INDEX: queue_unbind,
}
