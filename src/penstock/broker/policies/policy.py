"""A policy: settings for the queues and exchanges whose names match a pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

ALL: Final = "all"
QUEUES: Final = "queues"
CLASSIC_QUEUES: Final = "classic_queues"
QUORUM_QUEUES: Final = "quorum_queues"
STREAMS: Final = "streams"
EXCHANGES: Final = "exchanges"
APPLY_TO: Final = (QUEUES, CLASSIC_QUEUES, QUORUM_QUEUES, STREAMS, EXCHANGES, ALL)

# Keys of definitions and their values, as JSON has them.
PolicyDefinition = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    pattern: str
    apply_to: str
    priority: int
    definition: PolicyDefinition

    def to_json(self) -> dict[str, Any]:
        """Return it in the words of RabbitMQ's definitions files, without its vhost."""
        return {
            "name": self.name,
            "pattern": self.pattern,
            "apply-to": self.apply_to,
            "priority": self.priority,
            "definition": self.definition,
        }


def policy_from_json(data: dict[str, Any]) -> Policy:
    """Raises KeyError, TypeError or ValueError for anything that `Policy.to_json` does not make."""
    name, pattern, apply_to = data["name"], data["pattern"], data["apply-to"]
    priority, definition = data["priority"], data["definition"]
    if not (isinstance(name, str) and isinstance(pattern, str) and apply_to in APPLY_TO):
        raise ValueError("not a policy")
    if isinstance(priority, bool) or not isinstance(priority, int) or not isinstance(definition, dict):
        raise ValueError("not a policy")
    return Policy(name, pattern, apply_to, priority, definition)
