"""Preparing a database for a session: with a connection of its own, that is closed afterwards. Both faces use this."""

from __future__ import annotations

import psycopg

from penstock.client.errors import ClientError, ConnectionLost, SetupMissing
from penstock.errors import StartupError
from penstock.pg.install import install, migrations


def newest_version() -> int:
    """Return the version of the schema that this program brings along."""
    return max(number for number, _ in migrations())


def install_schema(url: str, schema: str) -> None:
    """Make the schema, or bring it up to date."""
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            install(connection, schema)
    except StartupError as error:
        raise SetupMissing(str(error)) from None
    except psycopg.OperationalError as error:
        raise ConnectionLost(f"cannot install penstock: {str(error).strip()}") from error
    except psycopg.Error as error:
        raise ClientError(f"cannot install penstock: {str(error).strip()}") from error
