"""Runtime parameters: values under a component and a name, per vhost, and global ones under a name.

They are kept and listed, so that what was exported from a RabbitMQ can come and go through here. penstock itself goes
by none of them.
"""

from __future__ import annotations

import json

from penstock.broker.operations.call_errors import BadRequest, NotFound
from penstock.broker.policies.octets import is_name
from penstock.limits import PARAMETER_VALUE_BYTES_MAX, PARAMETERS_MAX, SHORT_STRING_BYTES_MAX

# Those have verbs of their own.
POLICY_COMPONENTS = ("policy", "operator_policy")


def check_component(component: str) -> None:
    if component in POLICY_COMPONENTS:
        raise BadRequest("policies may not be set using this method")
    _check_name("component", component)


def check_parameter(name: str, value: object, count: int) -> None:
    """Raise BadRequest unless the value can be kept beside `count` others."""
    _check_name("name", name)
    if count >= PARAMETERS_MAX:
        raise BadRequest(f"there are {count} parameters already, and there can be no more; clear some")
    size = len(json.dumps(value))
    if size > PARAMETER_VALUE_BYTES_MAX:
        raise BadRequest(f"the value takes {size} bytes, {PARAMETER_VALUE_BYTES_MAX} are possible")


def _check_name(what: str, name: str) -> None:
    if not is_name(name, SHORT_STRING_BYTES_MAX):
        raise BadRequest(f"the {what} of a parameter has 1 to {SHORT_STRING_BYTES_MAX} bytes")


def no_such_parameter() -> NotFound:
    return NotFound("Parameter does not exist")
