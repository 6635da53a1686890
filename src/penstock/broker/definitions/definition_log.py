"""Writes changes of the definitions into the journal, and knows which of them are not on disk yet.

An `-ok` for something durable promises that it lasts. So the answer to a declaration waits as long as any change is
unsynced, also another client's: a client that declares a queue which another has just declared is promised the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.definitions import definitions, policy_records
from penstock.broker.definitions.definitions import ExchangeDefinition, Json, QueueDefinition, encode_change
from penstock.broker.policies.policy import Policy
from penstock.queues.queue import Queue
from penstock.routing.bindings import Binding
from penstock.routing.exchange import Exchange
from penstock.store.node.node_store import NodeStore

# Called with True when all is on disk, with False when that failed.
Durable = Callable[[bool], None]


class DefinitionLog:
    def __init__(self, node: NodeStore) -> None:
        self._journal = node.journal
        # Changes so far, and how many of them are known to be on disk.
        self._recorded = 0
        self._durable = 0

    def vhost_declared(self, name: str, vhost_id: str, about: Json) -> None:
        self.record(definitions.vhost_declared(name, vhost_id, about))

    def vhost_deleted(self, name: str, vhost_id: str) -> None:
        self.record(definitions.vhost_deleted(name, vhost_id))

    def vhost_limits_set(self, name: str, limits: dict[str, int]) -> None:
        self.record(definitions.vhost_limits_set(name, limits))

    def exchange_declared(self, vhost: str, exchange: Exchange) -> None:
        self.record(definitions.exchange_declared(vhost, exchange_definition(exchange)))

    def exchange_deleted(self, vhost: str, name: str) -> None:
        self.record(definitions.exchange_deleted(vhost, name))

    def queue_declared(self, vhost: str, queue: Queue) -> None:
        self.record(definitions.queue_declared(vhost, queue_definition(queue)))

    def queue_deleted(self, vhost: str, name: str) -> None:
        self.record(definitions.queue_deleted(vhost, name))

    def bound(self, vhost: str, binding: Binding) -> None:
        self.record(definitions.bound(vhost, binding))

    def unbound(self, vhost: str, binding: Binding) -> None:
        self.record(definitions.unbound(vhost, binding))

    def policy_set(self, vhost: str, policy: Policy, is_operator: bool) -> None:
        self.record(policy_records.policy_set(vhost, policy, is_operator))

    def policy_cleared(self, vhost: str, name: str, is_operator: bool) -> None:
        self.record(policy_records.policy_cleared(vhost, name, is_operator))

    def parameter_set(self, vhost: str, component: str, name: str, value: Any) -> None:
        self.record(policy_records.parameter_set(vhost, component, name, value))

    def parameter_cleared(self, vhost: str, component: str, name: str) -> None:
        self.record(policy_records.parameter_cleared(vhost, component, name))

    def global_parameter_set(self, name: str, value: Any) -> None:
        self.record(definitions.global_parameter_set(name, value))

    def global_parameter_cleared(self, name: str) -> None:
        self.record(definitions.global_parameter_cleared(name))

    def record(self, change: Json) -> None:
        """Write a change down, in the open batch of the journal."""
        self._journal.define(encode_change(change))
        self._recorded += 1
        # A change is written soon, even when no answer waits for it.
        self.when_durable(_nobody)

    def is_durable(self) -> bool:
        return self._recorded == self._durable

    def when_durable(self, done: Durable) -> None:
        recorded = self._recorded

        def answered(is_durable: bool) -> None:
            if is_durable:
                self._durable = max(self._durable, recorded)
            done(is_durable)

        self._journal.when_durable(answered)


def _nobody(is_durable: bool) -> None:
    return None


def exchange_definition(exchange: Exchange) -> ExchangeDefinition:
    return ExchangeDefinition(
        exchange.name, exchange.type_name, exchange.auto_delete, exchange.internal, exchange.arguments
    )


def queue_definition(queue: Queue) -> QueueDefinition:
    return QueueDefinition(queue.name, queue.queue_id, queue.auto_delete, queue.arguments, queue.paused)
