"""What lasts of a vhost's policies and parameters, as changes in the journal and whole in a checkpoint.

A change is a whole record, so applying it again does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.broker.policies.policy import Policy, policy_from_json

Json = dict[str, Any]
# By component and name.
Parameters = dict[tuple[str, str], Any]


@dataclass(slots=True)
class PolicyRecords:
    policies: dict[str, Policy] = field(default_factory=dict)
    operator_policies: dict[str, Policy] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=dict)

    def load(self, data: Json) -> None:
        """Take what `whole_policies` has made; older folders have nothing of it."""
        for policy in data.get("policies", ()):
            _policy_set(self, policy)
        for policy in data.get("operator_policies", ()):
            _operator_policy_set(self, policy)
        for parameter in data.get("parameters", ()):
            _parameter_set(self, parameter)


def whole_policies(
    policies: Iterable[Policy], operator_policies: Iterable[Policy], parameters: Parameters
) -> list[tuple[str, list[Json]]]:
    """Return everything that lasts, by the keys of the whole."""
    return [
        ("policies", [policy.to_json() for policy in policies]),
        ("operator_policies", [policy.to_json() for policy in operator_policies]),
        ("parameters", [_parameter_json(*key, value) for key, value in parameters.items()]),
    ]


def policy_set(vhost: str, policy: Policy, is_operator: bool) -> Json:
    return {"kind": "operator policy" if is_operator else "policy", "vhost": vhost, **policy.to_json()}


def policy_cleared(vhost: str, name: str, is_operator: bool) -> Json:
    return {"kind": "operator policy deleted" if is_operator else "policy deleted", "vhost": vhost, "name": name}


def parameter_set(vhost: str, component: str, name: str, value: Any) -> Json:
    return {"kind": "parameter", "vhost": vhost, **_parameter_json(component, name, value)}


def parameter_cleared(vhost: str, component: str, name: str) -> Json:
    return {"kind": "parameter deleted", "vhost": vhost, "component": component, "name": name}


def _parameter_json(component: str, name: str, value: Any) -> Json:
    return {"component": component, "name": name, "value": value}


def _policy_set(records: PolicyRecords, change: Json) -> None:
    policy = policy_from_json(change)
    records.policies[policy.name] = policy


def _policy_cleared(records: PolicyRecords, change: Json) -> None:
    records.policies.pop(_text(change["name"]), None)


def _operator_policy_set(records: PolicyRecords, change: Json) -> None:
    policy = policy_from_json(change)
    records.operator_policies[policy.name] = policy


def _operator_policy_cleared(records: PolicyRecords, change: Json) -> None:
    records.operator_policies.pop(_text(change["name"]), None)


def _parameter_set(records: PolicyRecords, change: Json) -> None:
    records.parameters[(_text(change["component"]), _text(change["name"]))] = change["value"]


def _parameter_cleared(records: PolicyRecords, change: Json) -> None:
    records.parameters.pop((_text(change["component"]), _text(change["name"])), None)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


APPLY_POLICY: Final[dict[str, Callable[[PolicyRecords, Json], None]]] = {
    "policy": _policy_set,
    "policy deleted": _policy_cleared,
    "operator policy": _operator_policy_set,
    "operator policy deleted": _operator_policy_cleared,
    "parameter": _parameter_set,
    "parameter deleted": _parameter_cleared,
}
