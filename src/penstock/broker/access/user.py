"""A user: a record that is replaced as a whole when something of it changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from penstock.broker.access.access_error import BadAccess
from penstock.broker.access.access_limits import USER_LIMITS, read_limits
from penstock.broker.access.password import CONFIGURED, PasswordHash, imported_password
from penstock.broker.access.scram_verifier import ScramVerifier

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
# May publish in other users' names (the user-id property).
IMPERSONATOR: Final = "impersonator"
# Tags mean nothing to the broker besides these; RabbitMQ accepts others, and so does penstock.
TAGS_MAX: Final = 32
NAME_BYTES_MAX: Final = 255


@dataclass(frozen=True)
class User:
    name: str
    # None: the user cannot log in with a password.
    password: PasswordHash | None = None
    scram: ScramVerifier | None = None
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)

    @property
    def is_administrator(self) -> bool:
        return ADMINISTRATOR in self.tags

    @property
    def is_configured(self) -> bool:
        """Whether the password is known to this process alone, from its configuration."""
        return self.password is not None and self.password.algorithm == CONFIGURED

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "tags": list(self.tags)}
        if self.password is not None:
            data["password_hash"] = self.password.encoded
            data["hashing_algorithm"] = self.password.algorithm
        if self.scram is not None:
            data["scram_sha_256"] = self.scram.to_json()
        if self.limits:
            data["limits"] = dict(self.limits)
        return data


def user_from_json(data: dict[str, Any]) -> User:
    """Raises ValueError, KeyError or TypeError for anything that `to_json` does not make."""
    password = None
    if data.get("password_hash"):
        password = imported_password(data["hashing_algorithm"], data["password_hash"])
    scram = ScramVerifier.from_json(data["scram_sha_256"]) if "scram_sha_256" in data else None
    limits = read_limits(data.get("limits", {}), USER_LIMITS)
    return User(checked_user_name(data["name"]), password, scram, checked_tags(data["tags"]), limits)


def checked_user_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BadAccess("a user needs a name")
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX or not name.isprintable():
        raise BadAccess(f"a user's name has at most {NAME_BYTES_MAX} bytes, and no line breaks or control characters")
    return name


def checked_tags(tags: object) -> tuple[str, ...]:
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise BadAccess("tags are a list of words, such as administrator")
    if len(tags) > TAGS_MAX:
        raise BadAccess(f"a user has at most {TAGS_MAX} tags")
    found: dict[str, None] = {}
    for tag in tags:
        if not tag or len(tag) > NAME_BYTES_MAX or not tag.isprintable() or "," in tag or " " in tag:
            raise BadAccess("a tag is a word without spaces and commas")
        found[tag] = None
    return tuple(found)
