"""What can be wrong with a change of users, permissions and limits."""

from __future__ import annotations

from penstock.broker.operations.call_errors import BadRequest


class BadAccess(BadRequest, ValueError):
    """A value that cannot be taken; the text is one line that says what to do."""


class NoSuchUser(BadAccess):
    kind = "not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"user '{name}' does not exist; list_users shows the names")


class UserExists(BadAccess):
    kind = "exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"user '{name}' already exists; change_password sets another password")
