"""What `penstock pg status` tells, and the two chores that an operator may do by hand: sweep and retain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.rows import dict_row

from penstock.pg.install import command, is_installed, migrations, require_installed, version

if TYPE_CHECKING:
    from psycopg import Connection

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Status:
    """A schema and what is in it. Version 0 = it is not there, and nothing else is told."""

    schema: str
    version: int
    # The version that this program brings along.
    newest: int
    queues: list[Row]
    participants: list[Row]
    # dead_rows, messages_bytes, and what pins the horizon: see sql/commands/status.sql.
    upkeep: Row
    history_days: int | None = None


def read_status(connection: Connection[Any], schema: str) -> Status:
    """One look, in one transaction."""
    newest = migrations()[-1][0]
    with connection.transaction():
        if not is_installed(connection, schema):
            return Status(schema, 0, newest, [], [], {})
        days = rows(connection, "SELECT history_days FROM {}.settings", schema)
        return Status(
            schema,
            version(connection, schema),
            newest,
            rows(connection, "SELECT * FROM {}.queue_stats ORDER BY name", schema),
            rows(
                connection,
                "SELECT id, role, name, pid, host(ip) AS ip, waiting,"
                " extract(epoch FROM now() - seen_at)::float AS seen_s_ago FROM {}.participants ORDER BY id",
                schema,
            ),
            upkeep(connection, schema),
            days[0]["history_days"],
        )


def upkeep(connection: Connection[Any], schema: str) -> Row:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(command("status").encode(), {"schema": schema}).fetchone()
        return row if row is not None else {}


def rows(connection: Connection[Any], text: str, schema: str) -> list[Row]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(sql.SQL(text).format(sql.Identifier(schema)).as_bytes(connection)).fetchall()


def sweep(connection: Connection[Any], schema: str) -> Row:
    """What sweep() did."""
    with connection.transaction():
        require_installed(connection, schema)
        return rows(connection, "SELECT * FROM {}.sweep()", schema)[0]


def retain(connection: Connection[Any], schema: str, days: int) -> int:
    """Keep the history for so many days from now on; how many partitions were made or dropped at once."""
    with connection.transaction():
        require_installed(connection, schema)
        query = sql.SQL("UPDATE {}.settings SET history_days = %s").format(sql.Identifier(schema))
        connection.execute(query, (days,))
        return int(rows(connection, "SELECT {}.keep_history() AS changed", schema)[0]["changed"])
