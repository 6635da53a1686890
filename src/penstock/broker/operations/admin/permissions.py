"""Permissions and topic permissions: set, cleared, listed."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.access.permission import Permission, TopicPermission
from penstock.broker.operations.call import Call
from penstock.broker.operations.operation import Operation

PERMISSION_SET: Final = "permission.created"
PERMISSION_CLEARED: Final = "permission.deleted"
TOPIC_PERMISSION_SET: Final = "topic.permission.created"
TOPIC_PERMISSION_CLEARED: Final = "topic.permission.deleted"


def set_permissions(call: Call, *, vhost: str = "/", user: str, configure: str, write: str, read: str) -> None:
    """Set what a user may do in a vhost: patterns over names; an empty one allows nothing."""
    call.actor.require_administrator()
    call.vhost(vhost)
    call.broker.users.set_permission(user, vhost, Permission(configure, write, read))
    call.note(PERMISSION_SET, user=user, vhost=vhost, configure=configure, write=write, read=read)


def clear_permissions(call: Call, *, vhost: str = "/", user: str) -> None:
    """Take away what a user may do in a vhost: it may not even enter it."""
    call.actor.require_administrator()
    call.vhost(vhost)
    call.broker.users.clear_permission(user, vhost)
    call.note(PERMISSION_CLEARED, user=user, vhost=vhost)


def list_permissions(call: Call, *, vhost: str = "/") -> list[dict[str, Any]]:
    """Who may do what in a vhost."""
    call.actor.require_administrator()
    call.vhost(vhost)
    rows = []
    for user in call.broker.users.all():
        permission = call.broker.users.permission(user.name, vhost)
        if permission is not None:
            rows.append({"user": user.name, **permission.to_json()})
    return rows


def list_user_permissions(call: Call, *, user: str) -> list[dict[str, Any]]:
    """What a user may do, vhost by vhost."""
    call.actor.require_administrator()
    call.broker.users.find(user)
    rows = []
    for vhost in call.broker.vhosts:
        permission = call.broker.users.permission(user, vhost)
        if permission is not None:
            rows.append({"vhost": vhost, **permission.to_json()})
    return rows


def set_topic_permissions(call: Call, *, vhost: str = "/", user: str, exchange: str, write: str, read: str) -> None:
    """Set the routing keys that a user may publish and bind with at a topic exchange."""
    call.actor.require_administrator()
    call.vhost(vhost)
    call.broker.users.set_topic_permission(user, vhost, exchange, TopicPermission(write, read))
    call.note(TOPIC_PERMISSION_SET, user=user, vhost=vhost, exchange=exchange, write=write, read=read)


def clear_topic_permissions(call: Call, *, vhost: str = "/", user: str, exchange: str | None = None) -> None:
    """Allow all routing keys again, at one exchange or at all of the vhost."""
    call.actor.require_administrator()
    call.vhost(vhost)
    call.broker.users.clear_topic_permissions(user, vhost, exchange)
    call.note(TOPIC_PERMISSION_CLEARED, user=user, vhost=vhost, exchange=exchange)


def list_topic_permissions(call: Call, *, vhost: str = "/") -> list[dict[str, Any]]:
    """The topic permissions of a vhost."""
    call.actor.require_administrator()
    call.vhost(vhost)
    return [
        {"user": name, "exchange": exchange, **permission.to_json()}
        for (name, at, exchange), permission in sorted(call.broker.users.kept.topic_permissions.items())
        if at == vhost
    ]


def list_user_topic_permissions(call: Call, *, user: str) -> list[dict[str, Any]]:
    """The topic permissions of a user."""
    call.actor.require_administrator()
    call.broker.users.find(user)
    return [
        {"vhost": vhost, "exchange": exchange, **permission.to_json()}
        for (vhost, exchange), permission in sorted(call.broker.users.topic_permissions_of(user).items())
    ]


OPERATIONS: Final = (
    Operation(set_permissions),
    Operation(clear_permissions),
    Operation(list_permissions, changes=False),
    Operation(list_user_permissions, changes=False),
    Operation(set_topic_permissions),
    Operation(clear_topic_permissions),
    Operation(list_topic_permissions, changes=False),
    Operation(list_user_topic_permissions, changes=False),
)
