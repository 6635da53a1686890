"""Exporting definitions in RabbitMQ's format.

What only penstock has (argon2id hashes, queue arguments and policy keys of its own) is in the file, too. RabbitMQ
passes over most of it; `rabbitmq_only` leaves out what it would refuse, and names it in the warnings.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import penstock
from penstock.broker.definitions.restore import PREDECLARED_NAMES
from penstock.broker.features.queue_features import QUORUM
from penstock.broker.policies.policy import Policy
from penstock.broker.policies.policy_keys import OWN_KEYS
from penstock.broker.transfer.import_plan import LIMITS_COMPONENT, OPERATOR_POLICY
from penstock.broker.transfer.imported_user import write_user
from penstock.broker.transfer.sections import IN_A_VHOST, SECTIONS, Json
from penstock.broker.vhost.vhost import VHost
from penstock.routing.factory import DELAYED_TYPE
from penstock.wire.tables import table_to_python

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

# The version whose format this is: tools look at it.
RABBITMQ_VERSION = "3.13.7"


class Export:
    def __init__(self, broker: Broker, vhost: VHost | None = None, rabbitmq_only: bool = False) -> None:
        """With a vhost: what is in it, without naming it, so that the file can be imported into another one."""
        self._broker = broker
        self._vhost = vhost
        self._rabbitmq_only = rabbitmq_only
        self.warnings: list[str] = []
        sections = SECTIONS if vhost is None else [name for name in SECTIONS if name in IN_A_VHOST]
        self.definitions: Json = {
            "rabbit_version": RABBITMQ_VERSION,
            "rabbitmq_version": RABBITMQ_VERSION,
            "product_name": "penstock",
            "product_version": penstock.__version__,
            **{name: [] for name in sections},
        }

    def steps(self) -> Iterator[None]:
        """Export; the caller may let others work between two steps. What changes meanwhile may be in it or not."""
        if self._vhost is None:
            self._add_broker()
            yield
        for vhost in [self._vhost] if self._vhost is not None else list(self._broker.vhosts.values()):
            self._add_rules(vhost)
            yield
            for exchange in list(vhost.exchanges.values()):
                if exchange.durable and exchange.name not in PREDECLARED_NAMES:
                    if self._rabbitmq_only and exchange.type_name == DELAYED_TYPE:
                        self._warn(f"exchange '{exchange.name}' needs RabbitMQ's plugin for delayed messages")
                    entry = {
                        "name": exchange.name,
                        "type": exchange.type_name,
                        "durable": True,
                        "auto_delete": exchange.auto_delete,
                        "internal": exchange.internal,
                        "arguments": self._arguments(exchange.arguments, f"exchange '{exchange.name}'"),
                    }
                    self._add("exchanges", vhost, entry)
                yield
            for queue in list(vhost.queues.values()):
                if queue.durable:
                    entry = {
                        "name": queue.name,
                        "type": "quorum" if queue.arguments.get("x-queue-type") == QUORUM else "classic",
                        "durable": True,
                        "auto_delete": queue.auto_delete,
                        "arguments": self._arguments(queue.arguments, f"queue '{queue.name}'"),
                    }
                    self._add("queues", vhost, entry)
                yield
            for binding in vhost.bindings():
                kind, name = binding.destination
                entry = {
                    "source": binding.source,
                    "destination": name,
                    "destination_type": kind,
                    "routing_key": binding.routing_key,
                    "arguments": self._arguments(binding.arguments, f"a binding of exchange '{binding.source}'"),
                }
                self._add("bindings", vhost, entry)
                yield

    def _add(self, section: str, vhost: VHost, entry: Json) -> None:
        if self._vhost is None:
            entry["vhost"] = vhost.name
        self.definitions[section].append(entry)

    def _add_broker(self) -> None:
        broker, users = self._broker, self._broker.users
        whole = self.definitions
        for vhost in broker.vhosts.values():
            about = {"description": vhost.description, "tags": list(vhost.tags)}
            whole["vhosts"].append({"name": vhost.name, "metadata": about, **about})
        for user in users.all():
            if users.is_configured(user.name):
                self._warn(f"user '{user.name}' is made by the configuration at each start, and is not exported")
                continue
            whole["users"].append(write_user(user))
            for name in broker.vhosts:
                permission = users.permission(user.name, name)
                if permission is not None:
                    whole["permissions"].append({"user": user.name, "vhost": name, **permission.to_json()})
            for (name, exchange), topic in users.topic_permissions_of(user.name).items():
                entry = {"user": user.name, "vhost": name, "exchange": exchange, **topic.to_json()}
                whole["topic_permissions"].append(entry)
        for name, value in broker.global_parameters.values.items():
            whole["global_parameters"].append({"name": name, "value": value})

    def _add_rules(self, vhost: VHost) -> None:
        """Policies, operator policies, limits and other parameters of a vhost."""
        for policy in vhost.policies.ordinary.by_name.values():
            for kept in self._policy(policy):
                self._add("policies", vhost, kept)
        for policy in vhost.policies.operators.by_name.values():
            for kept in self._policy(policy):
                name = kept.pop("name")
                self._add("parameters", vhost, {"component": OPERATOR_POLICY, "name": name, "value": kept})
        if vhost.limits and self._vhost is None:
            self._add("parameters", vhost, {"component": LIMITS_COMPONENT, "name": "limits", "value": vhost.limits})
        for (component, name), value in vhost.policies.parameters.items():
            self._add("parameters", vhost, {"component": component, "name": name, "value": value})

    def _policy(self, policy: Policy) -> list[Json]:
        data = policy.to_json()
        if self._rabbitmq_only:
            own = [key for key in policy.definition if key in OWN_KEYS]
            if own:
                self._warn(f"policy '{policy.name}' is exported without {', '.join(own)}")
            data["definition"] = {key: value for key, value in policy.definition.items() if key not in own}
        return [data] if data["definition"] else []

    def _arguments(self, arguments: Any, described: str) -> Json:
        plain = table_to_python(arguments)
        return {name: self._plain(value, f"{name} of {described}") for name, value in plain.items()}

    def _plain(self, value: object, described: str) -> object:
        if isinstance(value, dict):
            return {name: self._plain(inner, described) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._plain(inner, described) for inner in value]
        if isinstance(value, bytes | Decimal | datetime | date):
            self._warn(f"{described} is of a kind that JSON does not have, and is exported as a text")
            return value.hex() if isinstance(value, bytes) else str(value)
        return value

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
