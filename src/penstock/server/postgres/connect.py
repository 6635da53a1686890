"""Connections to the PostgreSQL that holds queues: how they are made, and what their errors mean."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from penstock.errors import StartupError
from penstock.pg.sessions import SESSION_SETTINGS, url_options

# What libpq is told unless the URL says otherwise. A peer that is gone without a word is noticed within seconds.
DEFAULTS: dict[str, str] = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# Longer than any of our statements takes; one that does would hold up all behind it.
STATEMENT_S = 30


def full_conninfo(url: str) -> str:
    """Return the URL with what it does not say. With several hosts the one is wanted that can be written to."""
    try:
        given = url_options(url)
    except ValueError as error:
        raise StartupError(f"--postgres: {error}") from None
    wanted: dict[str, Any] = {name: value for name, value in DEFAULTS.items() if name not in given}
    if "," in str(given.get("host", "")) and "target_session_attrs" not in given:
        wanted["target_session_attrs"] = "read-write"
    return make_conninfo(url, **wanted)


async def connect(conninfo: str) -> psycopg.AsyncConnection[Any]:
    connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    try:
        await connection.execute(SESSION_SETTINGS)
        await connection.execute("SELECT set_config('statement_timeout', %s, false)", (str(STATEMENT_S * 1000),))
    except BaseException:
        await connection.close()
        raise
    return connection


def one_line(error: BaseException) -> str:
    """Return the text of an error without its line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
