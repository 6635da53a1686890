"""What every connection of ours begins with: a URL that libpq understands, and settings that no default may change."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

# Our statements are calls of functions: there is nothing to plan anew. And each is a transaction, so a put need not
# notify for the case that it commits much later. Functions that a user has put into a schema of the search_path must
# not be taken for PostgreSQL's own. Keepalives: the server is to notice a client that is gone without a word.
SESSION_SETTINGS: Final = (
    b"SELECT set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false),"
    b" set_config('tcp_keepalives_count', '3', false), set_config('penstock.autocommit', 'on', false),"
    b" set_config('plan_cache_mode', 'force_generic_plan', false), set_config('jit', 'off', false),"
    b" set_config('default_transaction_isolation', 'read committed', false),"
    b" set_config('search_path', 'pg_catalog, pg_temp', false)"
)

# The server speaks, but not for long, or not as one that can be written to: the next connection may lead to another.
LOST_STATES: Final = ("08", "57P", "25006")


def url_options(url: str) -> dict[str, Any]:
    """What the URL says, by libpq's names. Raises ValueError."""
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # libpq's own text has a piece of the URL in it, which may be one of the password.
        raise ValueError(
            "PostgreSQL's libpq does not understand this URL: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with"
            " %25 for % in a password, and only parameters behind ? that libpq knows"
        ) from None


def is_session_lost(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any], error: psycopg.Error) -> bool:
    """Return whether the connection is of no more use. What became of the last statement is then unknown."""
    if connection.closed or connection.broken or isinstance(error, psycopg.InterfaceError):
        return True
    return (error.sqlstate or "").startswith(LOST_STATES)
