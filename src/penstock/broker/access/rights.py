"""What the user of one connection may do, with what was asked already remembered.

Publishers ask once for each route; other methods ask each time and find the answer here. `forget` is called when the
rights of the user change, so that open connections feel it.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.access.pattern import Pattern
from penstock.broker.access.permission import DEFAULT_EXCHANGE
from penstock.broker.access.user import IMPERSONATOR
from penstock.broker.access.users import Users
from penstock.errors import access_refused

# Answers that are remembered; clients can use any number of names.
ANSWERS_MAX: Final = 4_096


class Rights:
    def __init__(self, users: Users, user: str, vhost: str) -> None:
        self._users = users
        self._user = user
        self._vhost = vhost
        # What was allowed: kind of permission, kind of thing, name.
        self._allowed: set[tuple[str, str, str]] = set()
        # Patterns over routing keys, by kind of permission and exchange, with the user's name in them.
        self._topics: dict[tuple[str, str], Pattern | None] = {}

    def forget(self) -> None:
        self._allowed.clear()
        self._topics.clear()

    def require(self, kind: str, object_kind: str, name: str) -> None:
        """Raise 403 unless the user may configure, write to or read from the exchange or queue."""
        if object_kind == "exchange" and name == "":
            name = DEFAULT_EXCHANGE
        key = (kind, object_kind, name)
        if key in self._allowed:
            return
        permission = self._users.permission(self._user, self._vhost)
        if permission is None or not permission.allows(kind, name):
            raise access_refused(
                f"access to {object_kind} '{name}' in vhost '{self._vhost}' refused for user '{self._user}'"
            )
        if len(self._allowed) >= ANSWERS_MAX:
            self._allowed.clear()
        self._allowed.add(key)

    def require_topic(self, kind: str, exchange: str, routing_key: str) -> None:
        """Raise 403 unless the user may publish or bind with the routing key at a topic exchange."""
        key = (kind, exchange)
        if key not in self._topics:
            if len(self._topics) >= ANSWERS_MAX:
                self._topics.clear()
            self._topics[key] = self._topic_pattern(kind, exchange)
        pattern = self._topics[key]
        if pattern is not None and not pattern.matches(routing_key):
            raise access_refused(
                f"access to topic '{routing_key}' in exchange '{exchange}' in vhost '{self._vhost}' refused for user"
                f" '{self._user}'"
            )

    def _topic_pattern(self, kind: str, exchange: str) -> Pattern | None:
        permission = self._users.topic_permission(self._user, self._vhost, exchange)
        if permission is None:
            return None
        return permission.pattern(kind, {"username": self._user, "vhost": self._vhost})

    def may_publish_as(self, name: str) -> bool:
        """Return whether messages may have this name in their user-id property."""
        if name == self._user:
            return True
        user = self._users.get(self._user)
        return user is not None and IMPERSONATOR in user.tags
