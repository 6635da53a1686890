"""Users: made, deleted, given passwords, tags and limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.broker.access.access_error import UserExists
from penstock.broker.access.password import PASSWORD_BYTES_MAX, PasswordHash, hash_password, imported_password
from penstock.broker.access.scram_verifier import ScramVerifier, scram_verifier
from penstock.broker.access.users import is_right
from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import BadRequest, CallError, NotAllowed
from penstock.broker.operations.later import Later
from penstock.broker.operations.operation import Operation

USER_CREATED: Final = "user.created"
USER_DELETED: Final = "user.deleted"
CREDENTIALS_CHANGED: Final = "user.password.changed"
CREDENTIALS_CLEARED: Final = "user.password.cleared"
TAGS_SET: Final = "user.tags.set"
LIMITS_SET: Final = "user.limits.set"
LIMITS_CLEARED: Final = "user.limits.cleared"

Hashed = tuple[PasswordHash, ScramVerifier | None]


def add_user(
    call: Call, *, name: str, password: str = "", password_hash: str = "", hashing_algorithm: str = ""
) -> Later:
    """Make a user, who may do nothing yet. A password hash of RabbitMQ can be given instead of a password."""
    call.actor.require_administrator()
    users = call.broker.users
    if users.get(name) is not None:
        raise UserExists(name)

    def add(hashed: Hashed) -> None:
        users.add(name, *hashed)
        call.note(USER_CREATED, name=name)

    return _with_hash(call, password, password_hash, hashing_algorithm, add)


def change_password(
    call: Call, *, name: str, password: str = "", password_hash: str = "", hashing_algorithm: str = ""
) -> Later:
    """Give a user another password. Its open connections stay."""
    call.actor.require_administrator()
    users = call.broker.users
    users.find(name)

    def change(hashed: Hashed) -> None:
        users.set_password(name, *hashed, vhosts=list(call.broker.vhosts))
        call.note(CREDENTIALS_CHANGED, name=name)

    return _with_hash(call, password, password_hash, hashing_algorithm, change)


def _with_hash(call: Call, password: str, password_hash: str, algorithm: str, act: Callable[[Hashed], None]) -> Later:
    """Act with the hash of a password, which is made off the loop."""
    later = Later()
    if password_hash:
        if password:
            raise BadRequest("give a password or a password hash, not both")
        default = "argon2id" if password_hash.startswith("$argon2id$") else "rabbit_password_hashing_sha256"
        act((imported_password(algorithm or default, password_hash), None))
        later.finish(None)
        return later
    if not password:
        raise BadRequest("a password cannot be empty; clear_password takes a user's password away")
    raw = password.encode("utf-8", "surrogatepass")
    if len(raw) > PASSWORD_BYTES_MAX:
        raise BadRequest(f"a password has at most {PASSWORD_BYTES_MAX} bytes")

    def hashed(made: Hashed) -> None:
        try:
            act(made)
        except CallError as error:
            later.fail(error)
        else:
            later.finish(None)

    call.broker.elsewhere(lambda: (hash_password(raw), scram_verifier(raw)), hashed)
    return later


def clear_password(call: Call, *, name: str) -> None:
    """Take a user's password away: it cannot log in with one any more."""
    call.actor.require_administrator()
    call.broker.users.set_password(name, None, None, list(call.broker.vhosts))
    call.note(CREDENTIALS_CLEARED, name=name)


def authenticate_user(call: Call, *, name: str, password: str) -> Later:
    """Succeed if the user has this password."""
    call.actor.require_administrator()
    user = call.broker.users.get(name)
    later = Later()

    def checked(is_known: bool) -> None:
        if is_known:
            later.finish({"user": name})
        else:
            later.fail(NotAllowed(f"failed to authenticate user '{name}': wrong user or password"))

    raw = password.encode("utf-8", "surrogatepass")
    call.broker.elsewhere(partial(is_right, user, raw), checked)
    return later


def delete_user(call: Call, *, name: str) -> None:
    """Delete a user, with its permissions; its connections are closed."""
    call.actor.require_administrator()
    call.broker.users.delete(name)
    call.note(USER_DELETED, name=name)


def set_user_tags(call: Call, *, name: str, tags: list[str]) -> None:
    """Replace the tags of a user; an empty list takes them all away."""
    call.actor.require_administrator()
    call.broker.users.set_tags(name, tags)
    call.note(TAGS_SET, name=name, tags=tags)


def list_users(call: Call) -> list[dict[str, Any]]:
    """The users and their tags."""
    call.actor.require_administrator()
    users = call.broker.users
    return [
        {
            "user": user.name,
            "tags": list(user.tags),
            "limits": user.limits,
            "has_password": user.password is not None,
            "source": "configuration" if users.is_configured(user.name) else "journal",
        }
        for user in users.all()
    ]


def set_user_limits(call: Call, *, name: str, limits: dict[str, Any]) -> None:
    """Set max-connections and max-channels of a user; a negative number stands for no limit."""
    call.actor.require_administrator()
    call.broker.users.set_limits(name, limits)
    call.note(LIMITS_SET, name=name, limits=sorted(limits))


def clear_user_limits(call: Call, *, name: str, limit: str = "all") -> None:
    """Take one limit of a user away, or all."""
    call.actor.require_administrator()
    call.broker.users.clear_limits(name, limit)
    call.note(LIMITS_CLEARED, name=name, limits=[limit])


def list_user_limits(call: Call, *, name: str | None = None) -> list[dict[str, Any]]:
    """The limits of one user, or of all that have some."""
    call.actor.require_administrator()
    users = call.broker.users
    found = users.all() if name is None else [users.find(name)]
    return [{"user": user.name, "limits": user.limits} for user in found if user.limits or name is not None]


OPERATIONS: Final = (
    Operation(add_user),
    Operation(change_password),
    Operation(clear_password),
    Operation(authenticate_user, changes=False),
    Operation(delete_user),
    Operation(set_user_tags),
    Operation(list_users, changes=False),
    Operation(set_user_limits),
    Operation(clear_user_limits),
    Operation(list_user_limits, changes=False),
)
