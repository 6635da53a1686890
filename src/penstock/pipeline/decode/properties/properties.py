"""What the properties of a message say, as texts: decoded once for each distinct string of octets.

`Facts` are what the columns show. Texts of AMQP need not be UTF-8 and tables can be malformed: what cannot be shown is
null and named in `problem`, and the octets themselves stay in the column `properties`.

Headers become text: strings as they are, everything else as JSON. Octets are {"base64": …}, timestamps are ISO 8601,
decimals and numbers that JSON does not have (NaN, infinity) are strings.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final, NamedTuple, final

from penstock.errors import AmqpError
from penstock.fields import Field, Table
from penstock.wire.properties import decode_properties

# Distinct properties that are remembered, and the longest of them.
REMEMBERED_MAX: Final = 10_000
REMEMBERED_BYTES_MAX: Final = 4096

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The last second of the year 9999, where datetime ends.
_DATETIME_S_MAX: Final = 253_402_300_799

Headers = list[tuple[str, str]]


class Facts(NamedTuple):
    """What the columns show of some properties."""

    message_id: str | None = None
    correlation_id: str | None = None
    content_type: str | None = None
    headers: Headers | None = None
    problem: str | None = None

    def text(self, name: str) -> str | None:
        """One of the three properties that have a column."""
        if name == "message_id":
            return self.message_id
        return self.correlation_id if name == "correlation_id" else self.content_type


@final
class PropertyReader:
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Facts] = {}

    def __len__(self) -> int:
        return len(self._known)

    def read(self, octets: bytes) -> Facts:
        facts = self._known.get(octets)
        if facts is None:
            facts = read_facts(octets)
            if len(octets) <= REMEMBERED_BYTES_MAX:
                if len(self._known) >= REMEMBERED_MAX:
                    self._known.clear()
                self._known[octets] = facts
        return facts


def read_facts(octets: bytes) -> Facts:
    """Return the facts in flags and property list."""
    try:
        properties = decode_properties(octets)
    except AmqpError as error:
        return Facts(problem=f"properties: {error}")
    problems: list[str] = []
    return Facts(
        _shown("message_id", properties.message_id, problems),
        _shown("correlation_id", properties.correlation_id, problems),
        _shown("content_type", properties.content_type, problems),
        None if properties.headers is None else headers_of(properties.headers),
        "; ".join(problems) or None,
    )


def _shown(name: str, text: str | None, problems: list[str]) -> str | None:
    """Return a text, unless it is not UTF-8: the wire keeps such octets as surrogates."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        problems.append(f"{name} is not UTF-8")
        return None
    return text


def headers_of(table: Table) -> Headers:
    """Return names with values as text."""
    headers: Headers = []
    for name, field in table.items():
        value = plain_value(field)
        headers.append((name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    return headers


def plain_value(field: Field) -> Any:
    """Return a value that JSON has."""
    code, value = field
    if isinstance(value, bytes):
        try:
            return value.decode() if code == "S" else {"base64": b64encode(value).decode()}
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, tuple):
        return str(Decimal(value[1]).scaleb(-value[0]))
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {name: plain_value(item) for name, item in value.items()}
    if code == "T" and isinstance(value, int) and 0 <= value <= _DATETIME_S_MAX:
        return (_EPOCH + timedelta(seconds=value)).isoformat()
    return value
