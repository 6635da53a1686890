"""Methods of the basic class, but publish and ack, which `reader` takes in runs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from penstock import limits
from penstock.broker.access.permission import READ
from penstock.broker.definitions.postgres_arguments import is_in_postgres
from penstock.broker.vhost import direct_reply
from penstock.config import GLOBAL_QOS
from penstock.errors import AmqpError, internal_error, not_allowed, not_implemented, precondition_failed
from penstock.fields import TYPE_NAMES, Table
from penstock.message import Run
from penstock.queues.consumers.publisher_marks import NoLocal
from penstock.queues.queue import Queue
from penstock.server.channel.ack_timeouts import consumer_timeout_ms, queue_timeout_ms
from penstock.server.channel.channel import Channel
from penstock.server.channel.consumer_filters import (
    BROWSE_ARGUMENT,
    MULTIQUEUE_ARGUMENT,
    browse_start,
    check_not_browsing,
    consumer_filter,
    multiqueue_names,
)
from penstock.server.channel.queue_consumer import QueueConsumer
from penstock.server.channel.subscription import Subscription
from penstock.server.channel.unacked import UnackedRun
from penstock.server.connection.awaited_method import AwaitedMethod
from penstock.server.methods.queue_methods import queue_name
from penstock.server.postgres.answers import when_looked
from penstock.server.settling.settlements import when_settled
from penstock.server.settling.transaction import ACK, REJECT, REQUEUE
from penstock.wire import methods

INTEGER_TYPES = frozenset("bBsuIil")


def basic_qos(channel: Channel, method: methods.BasicQos) -> None:
    if method.prefetch_size:
        raise not_implemented(f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        connection = channel.connection
        connection.broker.deprecated.use(GLOBAL_QOS, f"connection {connection.shown_name()}")
    channel.send(methods.BasicQosOk())
    channel.offer()
    if method.global_:
        channel.prefetch_count = method.prefetch_count
        channel.update_interest()
    else:
        # RabbitMQ: a limit per consumer lifts the one of the channel.
        channel.consumer_prefetch_count = method.prefetch_count
        channel.prefetch_count = 0
        if channel.connection.qos_reaches_running_consumers():
            for subscription in channel.subscriptions.values():
                subscription.limit_to(method.prefetch_count)
        channel.update_interest()


def basic_consume(channel: Channel, method: methods.BasicConsume) -> None:
    connection = channel.connection
    tag = method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}"
    if tag in channel.subscriptions or tag == channel.reply_tag:
        raise not_allowed(f"attempt to reuse consumer tag '{tag}'")
    if method.queue == direct_reply.PSEUDO_QUEUE:
        if not method.no_ack:
            raise precondition_failed("reply consumer cannot acknowledge")
        channel.open_replies(tag)
        if not method.no_wait:
            channel.send(methods.BasicConsumeOk(tag))
        return
    queues = _queues_of(channel, method)
    acquires = method.arguments.get(BROWSE_ARGUMENT) != ("t", True)
    # A browser takes nothing, so there is nothing to acknowledge.
    no_ack = method.no_ack or not acquires
    subscription = Subscription(channel, tag, no_ack, channel.consumer_prefetch_count)
    for queue in queues:
        subscription.consumers.append(_consumer_of(subscription, queue, acquires, method))
    subscription.offer()
    channel.add_subscription(subscription)
    if method.no_local:
        # The queues want to know who publishes from now on. Publishers remember whether their queues do.
        connection.vhost.topology_version += 1
    if not method.no_wait:
        channel.send(methods.BasicConsumeOk(tag))


def _queues_of(channel: Channel, method: methods.BasicConsume) -> list[Queue]:
    """Return the queues to consume from, each once: the one that the method names, or those of x-multiqueue."""
    connection = channel.connection
    names = multiqueue_names(method.arguments)
    if names is None:
        names = [queue_name(channel, method.queue)]
    elif method.queue and method.queue not in names:
        raise precondition_failed(f"queue '{method.queue}' is not one of those in {MULTIQUEUE_ARGUMENT}")
    for name in names:
        connection.rights.require(READ, "queue", name)
    return [connection.vhost.queue(name, connection) for name in names]


def _consumer_of(
    subscription: Subscription, queue: Queue, acquires: bool, method: methods.BasicConsume
) -> QueueConsumer:
    """Return the consumer at one queue: which messages it wants, from where, and how long it may keep them."""
    arguments, described = method.arguments, queue.describe()
    consumer = QueueConsumer(subscription, queue, _priority(arguments, described), acquires, method.exclusive)
    if not acquires:
        consumer.browse_seq_id = browse_start(arguments, queue)
    else:
        check_not_browsing(arguments, described)
    if method.no_local:
        consumer.no_local = NoLocal(subscription.channel.connection)
    consumer.filter = consumer_filter(arguments, consumer.no_local, described)
    consumer.ack_timeout_ms = consumer_timeout_ms(arguments, queue)
    if consumer.filter is not None and is_in_postgres(queue.arguments):
        raise precondition_failed(
            f"consumers of {described} take what comes: its messages are in PostgreSQL and shared between nodes,"
            " so leave out the selector and no-local"
        )
    return consumer


def _priority(arguments: Table, described: str) -> int:
    field = arguments.get("x-priority")
    if field is None:
        return 0
    kind, value = field
    if kind not in INTEGER_TYPES or not isinstance(value, int):
        raise precondition_failed(
            f"invalid arg 'x-priority' for {described}: \"expected integer, got {TYPE_NAMES[kind]}\""
        )
    return value


def basic_cancel(channel: Channel, method: methods.BasicCancel) -> None:
    tag = method.consumer_tag
    subscription = channel.subscriptions.get(tag)
    if subscription is not None:
        subscription.offer()
        channel.cancel_subscription(subscription)
    elif tag == channel.reply_tag:
        channel.close_replies()
    if not method.no_wait:
        channel.send(methods.BasicCancelOk(tag))


def basic_get(channel: Channel, method: methods.BasicGet) -> None:
    connection = channel.connection
    name = queue_name(channel, method.queue)
    connection.rights.require(READ, "queue", name)
    queue = connection.vhost.queue(name, connection)
    queue.offer()
    _get(channel, method, queue)


def _get(channel: Channel, method: methods.BasicGet, queue: Queue) -> None:
    if not (queue.deleted or queue.crashed or queue.paused) and queue.backing.waits_for_disk():
        again = AwaitedMethod(channel, method.INDEX, lambda: _get(channel, method, queue), _not_read)
        again.begin(limits.BODY_READ_S, queue.backing.ask_once)
        return
    run = _got(method, queue)
    if run is not None:
        _send_got(channel, method, queue, run)
    elif not when_looked(channel, method.INDEX, queue, lambda: _get_again(channel, method, queue)):
        channel.send(methods.BasicGetEmpty())


def _get_again(channel: Channel, method: methods.BasicGet, queue: Queue) -> None:
    """A queue in PostgreSQL has looked there."""
    run = _got(method, queue)
    if run is not None:
        _send_got(channel, method, queue, run)
    else:
        channel.send(methods.BasicGetEmpty())


def _got(method: methods.BasicGet, queue: Queue) -> Run | None:
    """Take a message; the queue may be gone by now."""
    return None if queue.deleted or queue.crashed else queue.get(method.no_ack)


def _not_read(why: str) -> AmqpError:
    return internal_error(f"the broker could not read a message from its disk ({why})")


def _send_got(channel: Channel, method: methods.BasicGet, queue: Queue, run: Run) -> None:
    envelope, body, _ = run.entries[0]
    tag = channel.take_tags(1)
    if not method.no_ack:
        timeout_ms = queue_timeout_ms(queue)
        due_ms = channel.ack_due_ms(timeout_ms) if timeout_ms else -1
        channel.unacked.add(tag, 1, UnackedRun(queue, None, run.first_seq_id - tag, due_ms))
    channel.send(methods.BasicGetOk(tag, run.redelivered, envelope.exchange, envelope.routing_key, len(queue)))
    channel.connection.send_content(channel.number, envelope.properties, body)


def basic_ack(channel: Channel, method: methods.BasicAck) -> None:
    _settle(channel, method.delivery_tag, method.multiple, ACK)


def basic_nack(channel: Channel, method: methods.BasicNack) -> None:
    _settle(channel, method.delivery_tag, method.multiple, REQUEUE if method.requeue else REJECT)


def basic_reject(channel: Channel, method: methods.BasicReject) -> None:
    _settle(channel, method.delivery_tag, False, REQUEUE if method.requeue else REJECT)


def _settle(channel: Channel, tag: int, multiple: bool, how: int) -> None:
    if multiple:
        channel.settle_through(tag, how)
    else:
        channel.settle_by_client(channel.unacked.take(tag, tag), how)


def basic_recover(channel: Channel, method: methods.BasicRecover) -> None:
    if not method.requeue:
        raise not_implemented("requeue=false")
    channel.send(methods.BasicRecoverOk())
    channel.recover()


def basic_recover_async(channel: Channel, method: methods.BasicRecoverAsync) -> None:
    if not method.requeue:
        raise not_implemented("requeue=false")
    channel.recover()


HANDLERS: dict[int, Callable[[Channel, Any], None]] = {
    methods.BasicQos.INDEX: basic_qos,
    methods.BasicConsume.INDEX: basic_consume,
    methods.BasicCancel.INDEX: basic_cancel,
    methods.BasicGet.INDEX: when_settled(basic_get),
    methods.BasicAck.INDEX: basic_ack,
    methods.BasicNack.INDEX: basic_nack,
    methods.BasicReject.INDEX: basic_reject,
    methods.BasicRecover.INDEX: basic_recover,
    methods.BasicRecoverAsync.INDEX: basic_recover_async,
}
