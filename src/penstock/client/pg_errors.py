"""What PostgreSQL and psycopg complain about, in the client's words. Both faces use this."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors

from penstock.client.errors import ClientError, ConnectionLost, NotReserved, SetupMissing

# The server took the statement back, whole, in favour of another one: it can be tried again.
TAKEN_BACK: Final = (errors.DeadlockDetected, errors.SerializationFailure)
NOT_SET_UP: Final = (
    errors.InvalidSchemaName,
    errors.UndefinedFunction,
    errors.UndefinedTable,
    errors.UndefinedColumn,
)


class NotAttached(ClientError):
    """The queue was dropped, or we were taken for gone: with a new number it goes on."""


def translated(error: psycopg.Error, is_lost: bool, schema: str) -> ClientError:
    """Return the error to raise in place of psycopg's."""
    text = str(error).strip()
    if is_lost:
        return ConnectionLost(f"the connection to PostgreSQL was lost: {text}")
    if isinstance(error, NOT_SET_UP):
        return SetupMissing(f"{missing_text(schema)} ({text})")
    if isinstance(error, (errors.ObjectNotInPrerequisiteState, errors.UndefinedObject)):
        return NotAttached(text)
    if isinstance(error, errors.NoDataFound):
        return NotReserved(text)
    return ClientError(text)


def missing_text(schema: str) -> str:
    """What to do about a database without our schema."""
    option = "" if schema == "penstock" else f" --schema {schema!r}"
    return (
        f"penstock is not installed in schema {schema!r} of this database, or is older than this program:"
        f" run `penstock pg install --url …{option}` (or `upgrade`), or give the session install=True"
    )
