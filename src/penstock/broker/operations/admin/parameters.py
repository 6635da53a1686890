"""Runtime parameters of vhosts, and global ones: kept and listed."""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import BadRequest
from penstock.broker.operations.operation import Operation

PARAMETER_SET: Final = "parameter.set"
PARAMETER_CLEARED: Final = "parameter.cleared"


def set_parameter(call: Call, *, vhost: str = "/", component: str, name: str, value: str) -> None:
    """Set a parameter; the value is JSON."""
    call.actor.require_policymaker(vhost)
    call.vhost(vhost).policies.set_parameter(component, name, _decoded(value))
    # Values may have secrets in them: URIs of shovels have passwords.
    call.note(PARAMETER_SET, vhost=vhost, component=component, name=name)


def clear_parameter(call: Call, *, vhost: str = "/", component: str, name: str) -> None:
    """Remove a parameter."""
    call.actor.require_policymaker(vhost)
    call.vhost(vhost).policies.clear_parameter(component, name)
    call.note(PARAMETER_CLEARED, vhost=vhost, component=component, name=name)


def list_parameters(call: Call, *, vhost: str = "/") -> list[dict[str, Any]]:
    """The parameters of a vhost."""
    call.actor.require_policymaker(vhost)
    parameters = call.vhost(vhost).policies.parameters
    return [
        {"component": component, "name": name, "value": value}
        for (component, name), value in sorted(parameters.items(), key=lambda item: item[0])
    ]


def set_global_parameter(call: Call, *, name: str, value: str) -> None:
    """Set a global parameter; the value is JSON."""
    call.actor.require_administrator()
    call.broker.global_parameters.put(name, _decoded(value))
    call.note(PARAMETER_SET, component="global", name=name)


def clear_global_parameter(call: Call, *, name: str) -> None:
    """Remove a global parameter."""
    call.actor.require_administrator()
    call.broker.global_parameters.clear(name)
    call.note(PARAMETER_CLEARED, component="global", name=name)


def list_global_parameters(call: Call) -> list[dict[str, Any]]:
    """The global parameters."""
    call.actor.require_administrator()
    return [{"name": name, "value": value} for name, value in sorted(call.broker.global_parameters.values.items())]


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"JSON decoding error. Reason: {error}") from None


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


OPERATIONS: Final = (
    Operation(set_parameter),
    Operation(clear_parameter),
    Operation(list_parameters, changes=False),
    Operation(set_global_parameter),
    Operation(clear_global_parameter),
    Operation(list_global_parameters, changes=False),
)
