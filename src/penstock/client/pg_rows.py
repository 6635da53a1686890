"""What a session makes of the rows that its statements return. Both faces use this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.client.message import Message, State
from penstock.client.properties import properties_by_name

# As messages.state has them.
STATES: Final[tuple[State, ...]] = ("ready", "reserved", "scheduled", "buried")
ID_MAX: Final = 2**63 - 1

# Of `reserved_columns` in sql/statements: whether the message is too old.
EXPIRED_COLUMN: Final = 10


def id_array(ids: Sequence[str]) -> str:
    """Return the ids as PostgreSQL reads an array. What cannot be a row's id is left out: it is not reserved."""
    return "{" + ",".join(id for id in ids if id.isascii() and id.isdigit() and int(id) <= ID_MAX) + "}"


def message(queue: str, row: Sequence[Any]) -> Message:
    """Return a row with `message_columns` as a message."""
    return Message(
        id=str(row[0]),
        queue=queue,
        payload=row[1],
        state=STATES[row[2]],
        deliveries=row[3],
        ready_at=row[4],
        reserved_at=row[5],
        reserved_by=row[6],
        reserved_ip=row[7],
        reserved_until=row[8],
        note=row[9],
        exchange=row[10],
        routing_key=row[11],
        properties=properties_by_name(row[12]) if row[12] else {},
    )


def put_message(queue: str, payload: bytes, row: Sequence[Any]) -> Message:
    """Return a row with `put_columns` as a message with this payload."""
    return Message(str(row[0]), queue, payload, STATES[row[1]], row[2], row[3])


def reserved(queue: str, row: Sequence[Any], name: str | None, address: str | None) -> Message:
    """Return a row with `reserved_columns` as a message that was reserved under this name and address."""
    number, payload, deliveries, ready_at, reserved_at, until, note, exchange, routing_key, properties = row[:10]
    # By position: with names it takes half as long again.
    return Message(
        str(number),
        queue,
        payload,
        "reserved",
        deliveries,
        ready_at,
        reserved_at,
        name,
        address,
        until,
        None,
        None,
        note,
        exchange,
        routing_key,
        properties_by_name(properties) if properties else {},
    )


def finalized(queue: str, row: Sequence[Any]) -> Message:
    """Return a row of the history as a message."""
    return replace(message(queue, row), state="finalized", finalized_at=row[-2], finalized_note=row[-1])
