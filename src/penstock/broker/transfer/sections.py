"""The entries of a definitions file, each of the shape that RabbitMQ writes, and where in the file they stand."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.operations.call_errors import BadRequest

Json = dict[str, Any]

# The order in which they are made: each needs only what is before it.
SECTIONS: Final = (
    "vhosts",
    "users",
    "permissions",
    "topic_permissions",
    "global_parameters",
    "parameters",
    "policies",
    "exchanges",
    "queues",
    "bindings",
)
# What a file says about where it comes from; nothing is done with it.
REMARKS: Final = frozenset(
    ("rabbit_version", "rabbitmq_version", "product_name", "product_version", "rabbitmq_definition_format")
)
# Those of a file that was exported for one vhost: its entries do not name it.
IN_A_VHOST: Final = frozenset(("parameters", "policies", "exchanges", "queues", "bindings"))


class Entry:
    """One entry of a section. Asking it for a value that is not there, or of another kind, raises BadRequest."""

    __slots__ = ("_data", "where")

    def __init__(self, where: str, data: Json) -> None:
        self.where = where
        self._data = data

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def text(self, key: str, default: str | None = None) -> str:
        value = self._data.get(key, default)
        if not isinstance(value, str):
            raise self.bad(f"needs '{key}', a text")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._data.get(key, default)
        if not isinstance(value, bool):
            raise self.bad(f"needs '{key}', true or false")
        return value

    def number(self, key: str, default: int) -> int:
        value = self._data.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.bad(f"needs '{key}', a whole number")
        return value

    def table(self, key: str) -> Json:
        """Return an object; an empty one when there is none. RabbitMQ writes some as lists of pairs."""
        value = self._data.get(key, {})
        if isinstance(value, list) and all(_is_pair(each) for each in value):
            return dict(value)
        if not isinstance(value, dict):
            raise self.bad(f"needs '{key}', an object")
        return value

    def words(self, key: str) -> list[str]:
        """Return a list of texts; older versions of RabbitMQ wrote them as one, with commas."""
        value = self._data.get(key, [])
        if isinstance(value, str):
            return [word.strip() for word in value.split(",") if word.strip()]
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.bad(f"needs '{key}', a list of texts")
        return value

    def value(self, key: str) -> Any:
        if key not in self._data:
            raise self.bad(f"needs '{key}'")
        return self._data[key]

    def bad(self, text: str) -> BadRequest:
        return BadRequest(f"{self.where} {text}")


def read_sections(data: object, vhost: str | None = None) -> dict[str, list[Entry]]:
    """Return the entries by section. With `vhost` all that is in a vhost goes there, whatever the file says."""
    if not isinstance(data, dict):
        raise BadRequest("a definitions file is a JSON object, as RabbitMQ exports one")
    unknown = [key for key in data if key not in SECTIONS and key not in REMARKS]
    if unknown:
        raise BadRequest(f"'{str(unknown[0])[:64]}' is not a section of a definitions file: {', '.join(SECTIONS)}")
    sections: dict[str, list[Entry]] = {}
    for name in SECTIONS:
        entries = data.get(name, [])
        if not isinstance(entries, list):
            raise BadRequest(f"the section '{name}' must be a list")
        if vhost is not None and name not in IN_A_VHOST:
            if entries:
                raise BadRequest(f"the section '{name}' belongs to the whole broker: leave the vhost away to import it")
            continue
        sections[name] = [_entry(name, number, each, vhost) for number, each in enumerate(entries)]
    return sections


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def _entry(section: str, number: int, data: object, vhost: str | None) -> Entry:
    where = f"{section}[{number}]"
    if not isinstance(data, dict):
        raise BadRequest(f"{where} must be an object")
    name = data.get("name")
    if isinstance(name, str):
        where = f"{where} '{name[:64]}'"
    return Entry(where, data if vhost is None else {**data, "vhost": vhost})
