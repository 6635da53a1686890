"""What counts for a queue or an exchange: its arguments, its policy and its operator policy, put together."""

from __future__ import annotations

from typing import Any

from penstock.broker.definitions.feature_arguments import ORDERS
from penstock.broker.definitions.postgres_arguments import NEED_LOCAL_NUMBERS, is_in_postgres
from penstock.broker.policies.policy import Policy, PolicyDefinition
from penstock.broker.policies.policy_keys import KEYS
from penstock.fields import Field, Table


def effective_definition(policy: Policy | None, operator: Policy | None) -> PolicyDefinition:
    """Return what the two say together: the smaller of two limits, and otherwise the operator's word."""
    if policy is None or operator is None:
        chosen = policy or operator
        return {} if chosen is None else chosen.definition
    merged = {**policy.definition, **operator.definition}
    for name, value in operator.definition.items():
        if name in policy.definition and KEYS[name].is_limit:
            merged[name] = min(policy.definition[name], value)
    return dict(sorted(merged.items()))


def effective_arguments(arguments: Table, definition: PolicyDefinition) -> Table:
    """Return the arguments as a queue goes by them: its own, and what a definition adds or makes smaller."""
    effective: Table = dict(arguments)
    # A queue has one order, that of its arguments; and what a queue in PostgreSQL cannot do, no policy makes it do.
    impossible = set(ORDERS) if any(name in arguments for name in ORDERS) else set()
    if is_in_postgres(arguments):
        impossible.update(NEED_LOCAL_NUMBERS)
    for name, value in definition.items():
        key = KEYS.get(name)
        if key is None or not key.argument or key.argument in impossible:
            continue
        own = arguments.get(key.argument)
        if own is None or (key.is_limit and isinstance(own[1], int) and value < own[1]):
            effective[key.argument] = _field(value, key.most)
    return effective


def _field(value: Any, most: int) -> Field:
    if isinstance(value, bool):
        return ("t", value)
    if isinstance(value, int):
        return ("l", min(value, most))
    return ("S", str(value).encode("utf-8", "surrogateescape"))
