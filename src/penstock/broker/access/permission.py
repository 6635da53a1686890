"""What a user may do in one vhost: patterns over the names of exchanges and queues, and over routing keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.access.access_error import BadAccess
from penstock.broker.access.pattern import Pattern, pattern
from penstock.broker.access.pattern_syntax import BadPattern

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"
# The name by which permissions know the default exchange, whose own is empty.
DEFAULT_EXCHANGE: Final = "amq.default"
# What a topic pattern may name in braces.
VARIABLES: Final = ("username", "vhost", "client_id")


class Permission:
    """Three patterns: which names a user may configure, write to and read from."""

    def __init__(self, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        """Raises BadAccess for a pattern that cannot be used."""
        self._patterns: dict[str, Pattern] = {}
        self.texts = {CONFIGURE: configure, WRITE: write, READ: read}
        for kind, text in self.texts.items():
            self._patterns[kind] = checked_pattern(kind, text)

    def allows(self, kind: str, name: str) -> bool:
        return self._patterns[kind].matches(name)

    def allows_everything(self) -> bool:
        """Return whether it says so itself: `.*`, three times."""
        return all(each.matches_everything for each in self._patterns.values())

    def to_json(self) -> dict[str, Any]:
        return dict(self.texts)


@dataclass(frozen=True)
class TopicPermission:
    """Two patterns over the routing keys that a user may publish with, and bind with, at one topic exchange."""

    write: str
    read: str

    def __post_init__(self) -> None:
        for kind, text in ((WRITE, self.write), (READ, self.read)):
            checked_pattern(kind, expanded(text, dict.fromkeys(VARIABLES, "x")))

    def pattern(self, kind: str, variables: dict[str, str]) -> Pattern:
        return pattern(expanded(self.write if kind == WRITE else self.read, variables))

    def to_json(self) -> dict[str, Any]:
        return {WRITE: self.write, READ: self.read}


def checked_pattern(kind: str, text: object) -> Pattern:
    if not isinstance(text, str):
        raise BadAccess(f"the {kind} permission is a regular expression, as a string")
    try:
        return pattern(text)
    except BadPattern as error:
        raise BadAccess(f"the {kind} pattern cannot be used: {error}") from None


def expanded(text: str, variables: dict[str, str]) -> str:
    """Return a topic pattern with the values of its variables, taken literally."""
    for name, value in variables.items():
        text = text.replace("{" + name + "}", "".join([_literal(char) for char in value]))
    return text


def _literal(char: str) -> str:
    return char if char.isalnum() or char == "_" or not char.isascii() else f"\\x{{{ord(char):x}}}"
