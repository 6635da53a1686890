"""Where penstock and RabbitMQ differ on purpose: the script, the reason, and exactly what is different.

A difference replaces lines of RabbitMQ's transcript; what is left must be equal. An entry that no longer changes
anything, or whose lines are not in the recording, fails a test, so the table stays as short as the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

from .session import Transcript


@dataclass(frozen=True)
class Change:
    """Lines of one channel: where RabbitMQ says `rabbitmq`, penstock says `penstock`."""

    place: str
    rabbitmq: tuple[str, ...]
    penstock: tuple[str, ...]


@dataclass(frozen=True)
class Agreed:
    reason: str
    changes: tuple[Change, ...]


AGREED: dict[str, Agreed] = {}


def expected(name: str, recorded: Transcript) -> Transcript:
    """What penstock has to say where RabbitMQ said `recorded`."""
    result = {place: list(lines) for place, lines in recorded.items()}
    agreed = AGREED.get(name)
    for change in agreed.changes if agreed is not None else ():
        lines = result.pop(change.place, [])
        at = _position(lines, change.rabbitmq)
        assert at is not None, f"RabbitMQ does not say {change.rabbitmq} on {change.place} in {name!r}"
        lines[at : at + len(change.rabbitmq)] = change.penstock
        if lines:
            result[change.place] = lines
    return dict(sorted(result.items()))


def _position(lines: list[str], wanted: tuple[str, ...]) -> int | None:
    """Where the wanted lines begin; at the end when nothing is wanted, which is how lines are added."""
    if not wanted:
        return len(lines)
    for at in range(len(lines) - len(wanted) + 1):
        if tuple(lines[at : at + len(wanted)]) == wanted:
            return at
    return None
