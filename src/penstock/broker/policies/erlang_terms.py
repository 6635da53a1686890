"""JSON values as RabbitMQ's error texts show them: as Erlang prints what it has read from the same JSON."""

from __future__ import annotations

from typing import Any, Final

# Texts are for people: what is longer is cut.
SHOWN_CHARS_MAX: Final = 500


def shown(value: Any) -> str:
    """Return a value, cut where it gets too long to read."""
    text = _term(value, 0)
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "..."


def shown_pairs(definition: dict[str, Any]) -> str:
    """Return a definition as a list of pairs."""
    pairs = ",".join(f"{{{shown(key)},{shown(value)}}}" for key, value in sorted(definition.items()))
    return f"[{pairs}]"


def _term(value: Any, depth: int) -> str:
    if depth > 20:
        return "..."
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        return _text(value[: SHOWN_CHARS_MAX + 1])
    if isinstance(value, list):
        return "[" + ",".join(_term(item, depth + 1) for item in value[:SHOWN_CHARS_MAX]) + "]"
    if isinstance(value, dict):
        return "#{" + ",".join(f"{_term(key, depth)} => {_term(item, depth + 1)}" for key, item in value.items()) + "}"
    return str(value)


def _text(value: str) -> str:
    octets = value.encode("utf-8", "surrogatepass")
    if not value:
        return "<<>>"
    if value.isascii() and value.isprintable():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'<<"{quoted}">>'
    return "<<" + ",".join(str(octet) for octet in octets) + ">>"
