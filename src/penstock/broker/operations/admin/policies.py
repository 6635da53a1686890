"""Policies and operator policies: set, cleared, listed, and what applies to a queue or an exchange."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import NoSuchExchange, find_queue
from penstock.broker.operations.later import Later
from penstock.broker.operations.operation import Operation
from penstock.broker.policies.policies import Applied
from penstock.broker.policies.policy import ALL
from penstock.broker.policies.policy_check import checked_policy

POLICY_SET: Final = "policy.set"
POLICY_CLEARED: Final = "policy.cleared"
# RabbitMQ has one event for both kinds of policies that are set, and two for those that are cleared.
OPERATOR_POLICY_CLEARED: Final = "operator.policy.cleared"


def set_policy(
    call: Call,
    *,
    vhost: str = "/",
    name: str,
    pattern: str,
    definition: dict[str, Any],
    priority: int = 0,
    apply_to: str = ALL,
) -> Later:
    """Set a policy, or change the one of that name; done when it has taken effect on all queues and exchanges."""
    call.actor.require_policymaker(vhost)
    return _set(call, vhost, name, pattern, definition, priority, apply_to, False)


def set_operator_policy(
    call: Call,
    *,
    vhost: str = "/",
    name: str,
    pattern: str,
    definition: dict[str, Any],
    priority: int = 0,
    apply_to: str = ALL,
) -> Later:
    """Set an operator policy: limits that no policy and no argument can exceed."""
    call.actor.require_administrator()
    return _set(call, vhost, name, pattern, definition, priority, apply_to, True)


def _set(
    call: Call,
    vhost: str,
    name: str,
    pattern: str,
    definition: dict[str, Any],
    priority: int,
    apply_to: str,
    is_operator: bool,
) -> Later:
    policies = call.vhost(vhost).policies
    policy = checked_policy(name, pattern, definition, priority, apply_to, is_operator)
    later = Later()
    call.note(
        POLICY_SET,
        vhost=vhost,
        name=name,
        pattern=pattern,
        priority=priority,
        apply_to=apply_to,
        is_operator=is_operator,
        keys=sorted(definition),
    )
    policies.put(policy, is_operator, partial(later.finish, None))
    return later


def clear_policy(call: Call, *, vhost: str = "/", name: str) -> Later:
    """Remove a policy; what it had applied to goes by the next one that matches, or by none."""
    call.actor.require_policymaker(vhost)
    later = Later()
    call.vhost(vhost).policies.clear(name, False, partial(later.finish, None))
    call.note(POLICY_CLEARED, vhost=vhost, name=name)
    return later


def clear_operator_policy(call: Call, *, vhost: str = "/", name: str) -> Later:
    """Remove an operator policy."""
    call.actor.require_administrator()
    later = Later()
    call.vhost(vhost).policies.clear(name, True, partial(later.finish, None))
    call.note(OPERATOR_POLICY_CLEARED, vhost=vhost, name=name)
    return later


def list_policies(call: Call, *, vhost: str = "/") -> list[dict[str, Any]]:
    """The policies of a vhost, the one that counts most first."""
    call.actor.require_management(vhost)
    return [{"vhost": vhost, **policy.to_json()} for policy in call.vhost(vhost).policies.ordinary.ranked()]


def list_operator_policies(call: Call, *, vhost: str = "/") -> list[dict[str, Any]]:
    """The operator policies of a vhost, the one that counts most first."""
    call.actor.require_management(vhost)
    return [{"vhost": vhost, **policy.to_json()} for policy in call.vhost(vhost).policies.operators.ranked()]


def queue_policies(call: Call, *, vhost: str = "/", name: str) -> dict[str, Any]:
    """Which policies apply to a queue, and what they say together."""
    call.actor.require_management(vhost)
    found = call.vhost(vhost)
    return applied_json(found.policies.of_queue(find_queue(found, name).name))


def exchange_policies(call: Call, *, vhost: str = "/", name: str) -> dict[str, Any]:
    """Which policies apply to an exchange, and what they say together."""
    call.actor.require_management(vhost)
    found = call.vhost(vhost)
    if name not in found.exchanges:
        raise NoSuchExchange(f"no exchange '{name}' in vhost '{vhost}'")
    return applied_json(found.policies.of_exchange(name))


def applied_json(applied: Applied) -> dict[str, Any]:
    """Return what applies, in RabbitMQ's words; null where there is none."""
    return {
        "policy": None if applied.policy is None else applied.policy.name,
        "operator_policy": None if applied.operator is None else applied.operator.name,
        "effective_policy_definition": applied.definition(),
    }


OPERATIONS: Final = (
    Operation(set_policy),
    Operation(clear_policy),
    Operation(list_policies, changes=False),
    Operation(set_operator_policy),
    Operation(clear_operator_policy),
    Operation(list_operator_policies, changes=False),
    Operation(queue_policies, changes=False),
    Operation(exchange_policies, changes=False),
)
