"""Installing, upgrading and removing the queues' schema.

Migrations run by number, each once, then all functions anew, in one transaction, under an advisory lock, so that two
installers do not race. The SQL is in `sql/`: numbered files for the tables, `functions/` for what every upgrade makes
anew, `commands/` for the rest.

A crash in between leaves what was there before: PostgreSQL takes DDL back like anything else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from psycopg import errors, sql

from penstock.errors import StartupError

if TYPE_CHECKING:
    from psycopg import Connection

DEFAULT_SCHEMA: Final = "penstock"
# xid8 and triggers on rows of partitioned tables are there from 13 on.
OLDEST_SERVER: Final = 130000
# Advisory lock of all installers in a database.
INSTALL_LOCK: Final = (0x7065_6E73, 1)
# Shared by all: they would go with `uninstall`.
NOT_OURS: Final = ("public", "information_schema")
# By these a schema of ours is known.
OUR_TABLES: Final = ("migrations", "messages", "messages_history", "stats_deltas")


def install(connection: Connection[Any], schema: str = DEFAULT_SCHEMA) -> int:
    """Make the schema, or bring it up to date; the version it has then. Raises StartupError if it is not ours."""
    check_name(schema)
    if connection.info.server_version < OLDEST_SERVER:
        raise StartupError(f"the server is PostgreSQL {connection.info.server_version // 10000}; 13 or newer is needed")
    with connection.transaction():
        lock(connection)
        if not is_installed(connection, schema):
            refuse_foreign(connection, schema)
            run(connection, "CREATE SCHEMA IF NOT EXISTS {schema}", schema)
            run(
                connection,
                "CREATE TABLE {schema}.migrations"
                " (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())",
                schema,
            )
        return migrate(connection, schema)


def upgrade(connection: Connection[Any], schema: str = DEFAULT_SCHEMA) -> int:
    """Bring the schema up to date; the version it has then. Raises StartupError if there is none."""
    check_name(schema)
    with connection.transaction():
        lock(connection)
        require_installed(connection, schema)
        return migrate(connection, schema)


def uninstall(connection: Connection[Any], schema: str = DEFAULT_SCHEMA) -> None:
    """Remove the schema with all messages. What others have built on it is not removed: StartupError names it."""
    check_name(schema)
    with connection.transaction():
        lock(connection)
        require_installed(connection, schema)
        try:
            run(connection, command("uninstall"), schema)
        except errors.DependentObjectsStillExist as error:
            detail = error.diag.message_detail or str(error)
            raise StartupError(f'schema "{schema}" is in use: {detail}; drop that first') from None


def migrate(connection: Connection[Any], schema: str) -> int:
    done = version(connection, schema)
    known = migrations()
    if done > known[-1][0]:
        raise StartupError(
            f'schema "{schema}" has version {done}, this penstock knows up to {known[-1][0]}; install a newer penstock'
        )
    insert = sql.SQL("INSERT INTO {}.migrations (version) VALUES (%s)").format(sql.Identifier(schema))
    for number, text in known:
        if number > done:
            run(connection, text, schema)
            connection.execute(insert, (number,))
    for text in functions():
        run(connection, text, schema)
    run(connection, "SELECT {schema}.keep_history()", schema)
    return version(connection, schema)


def lock(connection: Connection[Any]) -> None:
    """One installer at a time. Installers have many rights: functions of other users must not be called from here
    on."""
    connection.execute("SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)")
    connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", INSTALL_LOCK)


def require_installed(connection: Connection[Any], schema: str) -> None:
    if not is_installed(connection, schema):
        raise StartupError(f'there is no penstock in schema "{schema}"; `penstock pg install` makes one')


def refuse_foreign(connection: Connection[Any], schema: str) -> None:
    """Accept an empty schema that was made for us; refuse one with other things in it."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM pg_class c WHERE c.relnamespace = n.oid)"
        " + (SELECT count(*) FROM pg_proc p WHERE p.pronamespace = n.oid) FROM pg_namespace n WHERE n.nspname = %s",
        (schema,),
    ).fetchone()
    if row is not None and row[0] > 0:
        raise StartupError(f'schema "{schema}" has other things in it; choose another name: --schema NAME')


def is_installed(connection: Connection[Any], schema: str) -> bool:
    row = connection.execute(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = ANY (%s)",
        (schema, list(OUR_TABLES)),
    ).fetchone()
    return row is not None and row[0] == len(OUR_TABLES)


def version(connection: Connection[Any], schema: str = DEFAULT_SCHEMA) -> int:
    """Return the last migration that was applied; 0 = none."""
    query = sql.SQL("SELECT coalesce(max(version), 0) FROM {}.migrations").format(sql.Identifier(schema))
    row = connection.execute(query).fetchone()
    return int(row[0]) if row is not None else 0


def run(connection: Connection[Any], text: str, schema: str) -> None:
    """Run our own SQL, with the schema's quoted name in its places. Several statements at once cannot be prepared."""
    quoted = sql.Identifier(schema).as_string(connection)
    connection.execute(text.replace("{schema}", quoted).encode(), prepare=False)


def check_name(schema: str) -> None:
    """Stands in the SQL of texts and bodies too: without quotes and dollars it cannot end them."""
    if not re.fullmatch(r"[\w. -]+", schema) or len(schema.encode()) > 63 or schema.startswith("pg_"):
        raise StartupError(
            f"{schema!r} cannot be the schema's name; letters, digits, '_', '-', '.' and spaces can, 63 bytes at most"
        )
    if schema in NOT_OURS:
        raise StartupError(f'schema "{schema}" is there for other things; choose another name: --schema NAME')


def migrations() -> list[tuple[int, str]]:
    """Number and text of each migration, in order."""
    return [(int(each.name[:4]), each.read_text("utf-8")) for each in sql_files(sql_folder())]


def functions() -> list[str]:
    """What every upgrade makes anew, in order."""
    return [each.read_text("utf-8") for each in sql_files(sql_folder() / "functions")]


def command(name: str) -> str:
    """Return a statement of one of our commands."""
    return (sql_folder() / "commands" / f"{name}.sql").read_text("utf-8")


def sql_folder() -> Path:
    return Path(__file__).parent / "sql"


def sql_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sql"))
