"""Vhosts: made, deleted, limited, listed."""

from __future__ import annotations

from typing import Any, Final

from penstock import limits as bounds
from penstock.broker.access.user import checked_tags
from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import AlreadyExists, BadRequest
from penstock.broker.operations.operation import Operation

VHOST_CREATED: Final = "vhost.created"
VHOST_DELETED: Final = "vhost.deleted"
LIMITS_SET: Final = "vhost.limits.set"
LIMITS_CLEARED: Final = "vhost.limits.cleared"
DESCRIPTION_CHARS_MAX: Final = 1024


def add_vhost(call: Call, *, name: str, description: str = "", tags: str = "") -> None:
    """Make a vhost; its tags are words with commas between them. Permissions let users in."""
    call.actor.require_administrator()
    if name in call.broker.vhosts:
        raise AlreadyExists(f"vhost '{name}' already exists")
    if not name or len(name.encode("utf-8", "replace")) > bounds.SHORT_STRING_BYTES_MAX or not name.isprintable():
        raise BadRequest(f"a vhost needs a name of at most {bounds.SHORT_STRING_BYTES_MAX} printable bytes")
    if len(description) > DESCRIPTION_CHARS_MAX:
        raise BadRequest(f"a description has at most {DESCRIPTION_CHARS_MAX} characters")
    if len(call.broker.vhosts) >= bounds.VHOSTS_MAX:
        raise BadRequest(f"there are {bounds.VHOSTS_MAX} vhosts already; delete some")
    given = [tag.strip() for tag in tags.split(",") if tag.strip()]
    call.broker.add_vhost(name, description, checked_tags(given))
    call.note(VHOST_CREATED, name=name, description=description, tags=given)


def delete_vhost(call: Call, *, name: str) -> None:
    """Delete a vhost, with its queues, exchanges and permissions; its connections are closed."""
    call.actor.require_administrator()
    call.vhost(name)
    call.broker.delete_vhost(name)
    call.note(VHOST_DELETED, name=name)


def list_vhosts(call: Call) -> list[dict[str, Any]]:
    """The vhosts."""
    call.actor.require_monitoring()
    return [
        {
            "name": vhost.name,
            "description": vhost.description,
            "tags": list(vhost.tags),
            "limits": vhost.limits,
            "queues": len(vhost.queues),
        }
        for vhost in call.broker.vhosts.values()
    ]


def set_vhost_limits(call: Call, *, vhost: str = "/", limits: dict[str, Any]) -> None:
    """Set max-connections and max-queues of a vhost; a negative number stands for no limit."""
    call.actor.require_administrator()
    call.broker.set_vhost_limits(call.vhost(vhost), limits)
    call.note(LIMITS_SET, vhost=vhost, limits=sorted(limits))


def clear_vhost_limits(call: Call, *, vhost: str = "/", limit: str = "all") -> None:
    """Take one limit of a vhost away, or all."""
    call.actor.require_administrator()
    call.broker.clear_vhost_limits(call.vhost(vhost), limit)
    call.note(LIMITS_CLEARED, vhost=vhost, limits=[limit])


def list_vhost_limits(call: Call, *, vhost: str | None = None) -> list[dict[str, Any]]:
    """The limits of one vhost, or of all that have some."""
    call.actor.require_monitoring()
    found = list(call.broker.vhosts.values()) if vhost is None else [call.vhost(vhost)]
    return [{"vhost": each.name, "limits": each.limits} for each in found if each.limits or vhost is not None]


OPERATIONS: Final = (
    Operation(add_vhost),
    Operation(delete_vhost),
    Operation(list_vhosts, changes=False),
    Operation(set_vhost_limits),
    Operation(clear_vhost_limits),
    Operation(list_vhost_limits, changes=False),
)
