"""Whether a policy can be taken, in RabbitMQ's words where it has some."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any

from penstock.broker.definitions.feature_arguments import ORDERS
from penstock.broker.operations.call_errors import BadRequest
from penstock.broker.policies.erlang_terms import shown, shown_pairs
from penstock.broker.policies.name_pattern import check_pattern
from penstock.broker.policies.octets import is_name, octet_count
from penstock.broker.policies.policy import APPLY_TO, Policy, PolicyDefinition
from penstock.broker.policies.policy_keys import KEYS
from penstock.limits import POLICY_DEFINITION_BYTES_MAX, SHORT_STRING_BYTES_MAX

# A priority is compared and shown, and written down as JSON.
PRIORITY_MAX = (1 << 63) - 1


def checked_policy(
    name: str, pattern: object, definition: object, priority: object, apply_to: object, is_operator: bool
) -> Policy:
    """Return the policy; raise BadRequest with what is wrong with it."""
    if not is_name(name, SHORT_STRING_BYTES_MAX):
        raise BadRequest(f"the name of a policy has 1 to {SHORT_STRING_BYTES_MAX} bytes")
    number = _priority(priority)
    if not isinstance(pattern, str) or octet_count(pattern) < 0:
        raise BadRequest(f"pattern should be a binary but was {shown(pattern)}")
    check_pattern(pattern)
    if apply_to not in APPLY_TO or not isinstance(apply_to, str):
        raise BadRequest(
            f"apply-to '{apply_to}' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues',"
            " 'streams', 'exchanges', or 'all'"
        )
    return Policy(name, pattern, apply_to, number, _definition(definition, is_operator))


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"priority should be a number, actually was {shown(value)}")
    if abs(value) > PRIORITY_MAX:
        raise BadRequest(f"priority {value} is too large; give one between -{PRIORITY_MAX} and {PRIORITY_MAX}")
    return value


def _definition(definition: object, is_operator: bool) -> PolicyDefinition:
    if not isinstance(definition, dict):
        raise BadRequest(f"definition must be a dictionary: {shown(definition)}")
    if not definition:
        raise BadRequest("no policy provided")
    unknown: PolicyDefinition = {}
    for name, value in definition.items():
        key = KEYS.get(name)
        if key is None or (is_operator and not key.is_of_operators):
            unknown[name] = value
        elif not key.accepts(value):
            raise BadRequest(f"{shown(value)} {key.complaint}")
    if unknown:
        raise BadRequest(f"{shown_pairs(unknown)} are not recognised policy settings{_hint(unknown, is_operator)}")
    _check_together(definition)
    size = len(json.dumps(definition))
    if size > POLICY_DEFINITION_BYTES_MAX:
        raise BadRequest(f"the definition takes {size} bytes, {POLICY_DEFINITION_BYTES_MAX} are possible")
    return dict(definition)


def _hint(unknown: PolicyDefinition, is_operator: bool) -> str:
    known = [name for name, key in KEYS.items() if key.is_of_operators or not is_operator]
    if is_operator and any(name in KEYS for name in unknown):
        return f"; an operator policy can have {', '.join(sorted(known))}"
    near = [near for name in unknown for near in get_close_matches(name[:100], known, 1)]
    return f"; did you mean {', '.join(near)}?" if near else ""


def _check_together(definition: dict[str, Any]) -> None:
    """Refuse what no queue could do, as a declaration with the same arguments is refused."""
    orders = [name[2:] for name in ORDERS if name[2:] in definition]
    if len(orders) > 1:
        raise BadRequest(f"{orders[1]} cannot be combined with {orders[0]}: both order the queue")
    if definition.get("message-deduplication") is True and "cache-size" not in definition:
        raise BadRequest("message-deduplication needs cache-size: how many keys a queue remembers")
    least, most = definition.get("delayed-retry-min"), definition.get("delayed-retry-max")
    if least is not None and most is not None and most < least:
        raise BadRequest("delayed-retry-max is below delayed-retry-min")
