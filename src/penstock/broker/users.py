"""Users, their passwords and what they may do in which vhost."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from penstock.errors import access_refused

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"
# The name by which permissions know the default exchange, whose own is empty.
DEFAULT_EXCHANGE: Final = "amq.default"
# A permission pattern is run against every name that a client uses: keep it short.
PATTERN_CHARS_MAX: Final = 256


class Permission:
    """Three patterns: which names a user may configure, write to and read from, in one vhost."""

    def __init__(self, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        self._patterns: dict[str, re.Pattern[str]] = {}
        for kind, pattern in ((CONFIGURE, configure), (WRITE, write), (READ, read)):
            if len(pattern) > PATTERN_CHARS_MAX:
                raise ValueError(f"a permission pattern has at most {PATTERN_CHARS_MAX} characters")
            # RabbitMQ: an empty pattern grants nothing.
            self._patterns[kind] = re.compile(pattern or r"^\b$")

    def allows(self, kind: str, name: str) -> bool:
        return self._patterns[kind].search(name) is not None

    def allows_everything(self) -> bool:
        """Return whether it says so itself: `.*`, three times."""
        return all(pattern.pattern == ".*" for pattern in self._patterns.values())


class User:
    """Someone who can log in."""

    def __init__(self, name: str, password: str, loopback_only: bool = False) -> None:
        self.name = name
        # Allowed from peers on this machine only.
        self.loopback_only = loopback_only
        self.permissions: dict[str, Permission] = {}
        self._salt = secrets.token_bytes(16)
        self._digest = self._hash(password.encode())

    def _hash(self, password: bytes) -> bytes:
        return hashlib.sha256(self._salt + password).digest()

    def has_password(self, password: bytes) -> bool:
        return hmac.compare_digest(self._hash(password), self._digest)

    def may_enter(self, vhost: str) -> bool:
        return vhost in self.permissions

    def require(self, kind: str, object_kind: str, name: str, vhost: str) -> None:
        """Raise 403 unless the user may configure, write to or read from the exchange or queue."""
        permission = self.permissions.get(vhost)
        if object_kind == "exchange" and name == "":
            name = DEFAULT_EXCHANGE
        if permission is None or not permission.allows(kind, name):
            raise access_refused(f"access to {object_kind} '{name}' in vhost '{vhost}' refused for user '{self.name}'")


class Users:
    def __init__(self) -> None:
        self._users: dict[str, User] = {}
        # Checked for unknown names, so that a wrong name takes as long as a wrong password.
        self._nobody = User("", secrets.token_hex())

    def add(self, user: User) -> None:
        self._users[user.name] = user

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    def authenticate(self, name: str, password: bytes) -> User | None:
        """Return the user, or None when name or password are wrong."""
        user = self._users.get(name)
        if user is None:
            self._nobody.has_password(password)
            return None
        # An empty password is refused, even for a user who was given one: as in RabbitMQ.
        return user if user.has_password(password) and password else None
