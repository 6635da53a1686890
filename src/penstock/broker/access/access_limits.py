"""Limits of users and vhosts, by RabbitMQ's names. A negative number stands for no limit."""

from __future__ import annotations

from typing import Final

from penstock.broker.access.access_error import BadAccess

MAX_CONNECTIONS: Final = "max-connections"
MAX_CHANNELS: Final = "max-channels"
MAX_QUEUES: Final = "max-queues"
USER_LIMITS: Final = (MAX_CONNECTIONS, MAX_CHANNELS)
VHOST_LIMITS: Final = (MAX_CONNECTIONS, MAX_QUEUES)
LIMIT_MAX: Final = 2**31 - 1


def read_limits(data: object, known: tuple[str, ...]) -> dict[str, int]:
    """Return limits that were given by name; raises BadAccess."""
    if not isinstance(data, dict):
        raise BadAccess(f'limits are an object such as {{"{known[0]}": 10}}')
    limits: dict[str, int] = {}
    for name, value in data.items():
        if name not in known:
            raise BadAccess(f"the limit '{str(name)[:64]}' is not known; there are {' and '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int) or value > LIMIT_MAX:
            raise BadAccess(f"{name} is a whole number; a negative one stands for no limit")
        limits[name] = max(value, -1)
    return limits


def limit_of(limits: dict[str, int], name: str) -> int:
    """Return the limit; -1 for none."""
    return limits.get(name, -1)
