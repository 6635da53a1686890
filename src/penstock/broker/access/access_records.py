"""What lasts of users and permissions, as changes in the journal and whole in a checkpoint.

A change is a whole record, so applying it again does no harm. A permission whose user or vhost is gone by then is kept
here, and passed over when it is looked at: the deletion that took it along comes later in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.broker.access.access_error import BadAccess
from penstock.broker.access.permission import Permission, TopicPermission
from penstock.broker.access.user import User, user_from_json

Json = dict[str, Any]


class AccessRecords:
    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        # By user and vhost; of topics by the exchange, too.
        self.permissions: dict[tuple[str, str], Permission] = {}
        self.topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}
        # The default user was deleted by hand, and is not made again.
        self.is_guest_deleted = False

    def delete_user(self, name: str) -> None:
        self.users.pop(name, None)
        for key in [key for key in self.permissions if key[0] == name]:
            del self.permissions[key]
        for topic_key in [key for key in self.topic_permissions if key[0] == name]:
            del self.topic_permissions[topic_key]

    def delete_vhost(self, vhost: str) -> None:
        for key in [key for key in self.permissions if key[1] == vhost]:
            del self.permissions[key]
        for topic_key in [key for key in self.topic_permissions if key[1] == vhost]:
            del self.topic_permissions[topic_key]

    def load(self, whole: Json) -> None:
        """Take what `whole_access` has made; older folders have nothing of it."""
        for kind in ("user", "permission", "topic permission"):
            for data in whole.get(LISTED[kind], ()):
                APPLY_ACCESS[kind](self, data)
        self.is_guest_deleted = bool(whole.get("guest_deleted"))


def user_changed(user: User) -> Json:
    return {"kind": "user", **user.to_json()}


def user_deleted(name: str) -> Json:
    return {"kind": "user deleted", "name": name}


def permission_set(user: str, vhost: str, permission: Permission) -> Json:
    return {"kind": "permission", "user": user, "vhost": vhost, **permission.to_json()}


def permission_cleared(user: str, vhost: str) -> Json:
    return {"kind": "permission cleared", "user": user, "vhost": vhost}


def topic_permission_set(user: str, vhost: str, exchange: str, permission: TopicPermission) -> Json:
    return {"kind": "topic permission", "user": user, "vhost": vhost, "exchange": exchange, **permission.to_json()}


def topic_permission_cleared(user: str, vhost: str, exchange: str) -> Json:
    return {"kind": "topic permission cleared", "user": user, "vhost": vhost, "exchange": exchange}


def guest_deleted() -> Json:
    return {"kind": "guest deleted"}


# The keys of the whole.
LISTED: Final = {"user": "users", "permission": "permissions", "topic permission": "topic_permissions"}


def whole_access(records: AccessRecords) -> list[tuple[str, Iterator[Json]]]:
    """Return everything that lasts, by the keys of the whole; looked at thing by thing while it is written."""
    return [
        ("users", (user.to_json() for user in list(records.users.values()))),
        (
            "permissions",
            (
                {"user": name, "vhost": vhost, **permission.to_json()}
                for (name, vhost), permission in list(records.permissions.items())
            ),
        ),
        (
            "topic_permissions",
            (
                {"user": name, "vhost": vhost, "exchange": exchange, **permission.to_json()}
                for (name, vhost, exchange), permission in list(records.topic_permissions.items())
            ),
        ),
        ("guest_deleted", iter([{"kind": "guest deleted"}] if records.is_guest_deleted else [])),
    ]


def _user(records: AccessRecords, change: Json) -> None:
    user = user_from_json(change)
    records.users[user.name] = user


def _user_deleted(records: AccessRecords, change: Json) -> None:
    records.delete_user(_text(change["name"]))


def _permission(records: AccessRecords, change: Json) -> None:
    permission = Permission(_text(change["configure"]), _text(change["write"]), _text(change["read"]))
    records.permissions[_text(change["user"]), _text(change["vhost"])] = permission


def _permission_cleared(records: AccessRecords, change: Json) -> None:
    records.permissions.pop((_text(change["user"]), _text(change["vhost"])), None)


def _topic_permission(records: AccessRecords, change: Json) -> None:
    key = (_text(change["user"]), _text(change["vhost"]), _text(change["exchange"]))
    records.topic_permissions[key] = TopicPermission(_text(change["write"]), _text(change["read"]))


def _topic_permission_cleared(records: AccessRecords, change: Json) -> None:
    key = (_text(change["user"]), _text(change["vhost"]), _text(change["exchange"]))
    records.topic_permissions.pop(key, None)


def _guest_deleted(records: AccessRecords, change: Json) -> None:
    records.is_guest_deleted = True


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadAccess("not a name or a pattern")
    return value


APPLY_ACCESS: Final[dict[str, Callable[[AccessRecords, Json], None]]] = {
    "user": _user,
    "user deleted": _user_deleted,
    "permission": _permission,
    "permission cleared": _permission_cleared,
    "topic permission": _topic_permission,
    "topic permission cleared": _topic_permission_cleared,
    "guest deleted": _guest_deleted,
}
