"""The calls that the broker makes to the functions of the schema, ready to be executed, and their rows as tuples.

The functions themselves, with what they do and promise, are in `penstock.pg`. The schema's name is the only thing that
is put into the text, quoted by psycopg; everything else is a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import sql

from penstock.backing.postgres_link import PutRow, TakenRow

# As `TakenRow` has them.
COLUMNS = (
    "SELECT id, deliveries, coalesce((extract(epoch FROM expires_at) * 1000)::bigint, -1),"
    " exchange, routing_key, properties, payload, (extract(epoch FROM ready_at) * 1000)::bigint"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PgCalls:
    """Statements for one schema. Parameters are listed behind each."""

    def __init__(self, schema: str) -> None:
        def call(text: str) -> sql.Composed:
            return sql.SQL(text).format(s=sql.Identifier(schema))

        # name
        self.use_queue = call("SELECT {s}.use_queue(%s)")
        self.channel_of = call("SELECT {s}.channel_of(%s)")
        self.drop_queue = call("SELECT {s}.drop_queue(%s)")
        self.purge = call("SELECT {s}.purge(%s)")
        # `put_parameters`
        self.put_rows = call(
            "SELECT {s}.put_rows(%s::integer[], %s::bytea[], %s::text[], %s::text[], %s::bytea[], %s::timestamptz[],"
            " %s::integer[])"
        )
        # name, count, participant, floor
        self.reserve = call(COLUMNS + " FROM {s}.reserve(%s, %s, %s, NULL, 0, %s, true, true)")
        # name, ids, participant
        self.reserve_ids = call(COLUMNS + " FROM {s}.reserve_ids(%s, %s::bigint[], %s)")
        # name, from id, count, bytes
        self.browse = call(COLUMNS + " FROM {s}.browse(%s, %s, %s, %s)")
        # name, ids, note, participant
        self.finalize = call("SELECT count(*) FROM {s}.finalize_many(%s, %s::bigint[], %s, %s)")
        # name, ids, participant, seen
        self.requeue = call("SELECT count(*) FROM {s}.requeue(%s, %s::bigint[], %s, NULL, NULL, %s)")
        # name, grace in seconds, number to take up again or NULL
        self.attach = call("SELECT {s}.attach(%s, 'consumer', make_interval(secs => %s), NULL, %s)")
        # participant
        self.detach = call("SELECT {s}.detach(%s)")
        # participants
        self.seen = call(
            "SELECT p, {s}.seen(p) FROM unnest(%s::bigint[]) AS p, set_config('synchronous_commit', 'off', true)"
        )
        # participant, waiting
        self.set_waiting = call("SELECT {s}.set_waiting(%s, %s), set_config('synchronous_commit', 'off', true)")
        # name, participant
        self.reserved_by = call(
            "SELECT m.id FROM {s}.messages m JOIN {s}.queues q ON q.id = m.queue_id"
            " WHERE q.name = %s AND m.state = 1 AND m.owner = %s"
        )
        # names; with what has expired, which leaves when it comes to the head
        self.ready_counts = call(
            "SELECT name, ready_count + expired_count FROM {s}.queue_stats WHERE name = ANY (%s::text[])"
        )
        # names; those whose first message has expired
        self.heads_expired = call(
            "SELECT n FROM unnest(%s::text[]) AS n CROSS JOIN LATERAL {s}.browse(n, 0, 1, 0) AS b"
            " WHERE b.expires_at <= now()"
        )
        # names; the ids of the first messages of each that have expired, without one between them that has not
        self.expired_heads = call(
            "SELECT n, array_agg(h.id ORDER BY h.id) FROM unnest(%s::text[]) AS n"
            " CROSS JOIN LATERAL (SELECT b.id, bool_and(b.expires_at <= now()) OVER (ORDER BY b.id) AS expired"
            " FROM {s}.browse(n, 0, 100, 1048576) AS b) AS h WHERE h.expired GROUP BY n"
        )
        self.sweep = call("SELECT * FROM {s}.sweep()")


def put_parameters(queue_ids: Sequence[int], rows: Sequence[PutRow]) -> tuple[list[Any], ...]:
    """Seven arrays, as `put_rows` takes them."""
    return (
        list(queue_ids),
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        [row[3] for row in rows],
        [None if row[4] < 0 else EPOCH + timedelta(milliseconds=row[4]) for row in rows],
        [row[5] for row in rows],
    )


def taken_rows(found: Sequence[tuple[Any, ...]]) -> list[TakenRow]:
    """In the order of their ids, whatever part of `reserve` has found them."""
    rows: list[TakenRow] = [(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]) for r in found]
    rows.sort(key=_id_of)
    return rows


def _id_of(row: TakenRow) -> int:
    return row[0]
