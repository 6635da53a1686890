"""Asking for the use of deprecated features."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.operations.call import Call
from penstock.broker.operations.operation import Operation


def list_deprecated_features(call: Call, *, used: bool = False) -> list[dict[str, Any]]:
    """What RabbitMQ has deprecated, whether it is permitted here, and its use since the start."""
    call.actor.require_monitoring()
    return [each for each in call.broker.deprecated.list() if each["used"] or not used]


OPERATIONS: Final = (Operation(list_deprecated_features, changes=False),)
