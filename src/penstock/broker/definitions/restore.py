"""From definitions to vhosts at a start, and back at a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.definitions.definition_log import exchange_definition, queue_definition
from penstock.broker.definitions.definitions import (
    BadDefinitions,
    Definitions,
    NoSuchVHost,
    VHostDefinitions,
    vhost_whole,
)
from penstock.broker.vhost.vhost import EVENT_EXCHANGE, VHost
from penstock.errors import AmqpError, StartupError
from penstock.routing.bindings import QUEUE
from penstock.routing.factory import PREDECLARED

PREDECLARED_NAMES = frozenset((*(name for name, _, _ in PREDECLARED), EVENT_EXCHANGE))


def read_definitions(whole: bytes, changes: list[bytes], report: list[str]) -> Definitions:
    """What the last run has written down. A change that is not understood is passed over, and reported."""
    definitions = Definitions()
    if whole:
        try:
            definitions.load(whole)
        except BadDefinitions as error:
            # Without them the queues are not known, and their messages would be taken for rubbish.
            raise StartupError(
                f"the definitions in the data folder cannot be read: {error}. Nothing was changed. Was it written by a"
                " newer penstock? Start that one, or another data folder with --data-dir."
            ) from error
    lost: list[NoSuchVHost] = []
    for change in changes:
        try:
            definitions.apply(change)
        except NoSuchVHost as error:
            lost.append(error)
        except BadDefinitions as error:
            report.append(f"a change of the definitions was passed over: {error}")
    # A vhost that was deleted while the whole was written is not in it, and the changes before its deletion are here.
    for each in lost:
        if each.name not in definitions.deleted_vhosts:
            report.append(f"a change of the definitions was passed over: {each}")
    return definitions


def restore_vhost(vhost: VHost, wanted: VHostDefinitions) -> None:
    """Make what the definitions name, in a vhost that has nothing yet. Limits on what clients declare do not apply."""
    vhost.is_restoring = True
    vhost.limits = wanted.limits
    vhost.description, vhost.tags = wanted.description, wanted.tags
    try:
        vhost.policies.restore(wanted.rules)
        for exchange in wanted.exchanges.values():
            vhost.declare_exchange(
                exchange.name, exchange.type_name, True, exchange.auto_delete, exchange.internal, exchange.arguments
            )
        vhost.restore_queues(list(wanted.queues.values()))
        for binding in wanted.bindings.values():
            # Not when a change that would have made one of its ends was not understood.
            kind, name = binding.destination
            if binding.source in vhost.exchanges and name in (vhost.queues if kind == QUEUE else vhost.exchanges):
                vhost.bind(binding)
    except AmqpError as error:
        raise StartupError(f"vhost '{vhost.name}' cannot be restored: {error.reply_text}") from error
    finally:
        vhost.is_restoring = False


def whole_vhost(vhost: VHost) -> Iterator[str]:
    """Return everything in a vhost that lasts and is not there from the start, in pieces.

    What is added or deleted while the pieces are taken may be in them or not.
    """
    exchanges = (
        exchange_definition(exchange)
        for exchange in list(vhost.exchanges.values())
        if exchange.durable and exchange.name not in PREDECLARED_NAMES
    )
    queues = (queue_definition(queue) for queue in vhost.all_queues() if queue.durable)
    sections = vhost.policies.sections()
    return vhost_whole(vhost.name, vhost.vhost_id, exchanges, queues, vhost.bindings(), sections, vhost.about())
