"""The calls that the PostgreSQL driver makes, and what it makes of the rows that come back.

Every statement is a call of a function in penstock's schema, or reads one of its views and tables; the schema's name is
the only thing that is put into the text, quoted by psycopg. Numbers go as text with a cast: psycopg would choose a
type by their size, and each type is a statement to prepare. Both faces use this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, LiteralString

from psycopg import sql

from penstock.client.message import Message, State
from penstock.client.properties import properties_by_name

# As messages.state has them.
STATES: Final[tuple[State, ...]] = ("ready", "reserved", "scheduled", "buried")
ID_MAX: Final = 2**63 - 1

COLUMNS: Final[LiteralString] = (
    "id, payload, state, deliveries, ready_at, reserved_at, reserved_by, host(reserved_ip), reserved_until, note,"
    " exchange, routing_key, properties"
)
# Of what was just reserved: its state is known, and who has reserved it is the same for all.
RESERVED_COLUMNS: Final[LiteralString] = (
    "id, payload, deliveries, ready_at, reserved_at, reserved_until, note, exchange, routing_key, properties,"
    " coalesce(expires_at <= clock_timestamp(), false)"
)
EXPIRED_COLUMN: Final = 10
# Of what was just put: the rest is what the caller gave, or nothing.
PUT_COLUMNS: Final[LiteralString] = "id, state, deliveries, ready_at"
TEXTS: Final[dict[str, LiteralString]] = {
    "version": "SELECT max(version) FROM {schema}.migrations",
    # --- queues
    "use_queue": "SELECT {schema}.use_queue(queue => %s::text, ordering => %s::text)",
    "drop_queue": "SELECT {schema}.drop_queue(queue => %s::text)",
    "queues": "SELECT name FROM {schema}.queues ORDER BY name",
    "channel_of": "SELECT {schema}.channel_of(queue => %s::text)",
    # As rows that this connection reserves say it.
    "who_am_i": "SELECT current_setting('application_name'), host(inet_client_addr())",
    "stats": "SELECT ready_count, reserved_count, scheduled_count, buried_count, finalized_count, producer_count,"
    " consumer_count FROM {schema}.queue_stats WHERE name = %s::text",
    "history": "SELECT {columns}, finalized_at, finalized_note FROM {schema}.messages_history"
    " WHERE queue_id = (SELECT id FROM {schema}.queues WHERE name = %s::text)"
    " ORDER BY finalized_at DESC, id DESC LIMIT %s::int",
    # --- participants
    "attach": "SELECT {schema}.attach(queue => %s::text, role => %s::text, grace => interval '0', again => %s::bigint)",
    "detach": "SELECT {schema}.detach(participant => %s::bigint)",
    "set_waiting": "SELECT {schema}.set_waiting(participant => %s::bigint, waiting => %s::boolean),"
    " set_config('synchronous_commit', 'off', true)",
    # Whether we are still a participant, and how many messages have become ready. If a crash takes it back, the next
    # one does it again; likewise whether somebody waits.
    "sweep": "SELECT {schema}.seen(participant => %s::bigint), promoted + returned,"
    " set_config('synchronous_commit', 'off', true) FROM {schema}.sweep()",
    # --- putting
    "put": "SELECT {put} FROM {schema}.put(queue => %s::text, payload => %b::bytea, ready_at => %s::timestamptz,"
    " ttl => make_interval(secs => %s::float8))",
    "put_after": "SELECT {put} FROM {schema}.put(queue => %s::text, payload => %b::bytea,"
    " ready_at => clock_timestamp() + make_interval(secs => %s::float8), ttl => make_interval(secs => %s::float8))",
    "put_many": "SELECT {schema}.put_many(queue => %s::text, payloads => %b::bytea[], ready_at => %s::timestamptz,"
    " ttl => make_interval(secs => %s::float8))",
    "put_many_after": "SELECT {schema}.put_many(queue => %s::text, payloads => %b::bytea[],"
    " ready_at => clock_timestamp() + make_interval(secs => %s::float8), ttl => make_interval(secs => %s::float8))",
    "put_at_slot": "SELECT {schema}.put_at_slot(schedule => %s::text, slot => %s::timestamptz, queue => %s::text,"
    " payload => %b::bytea)",
    # --- taking
    "reserve": "SELECT {reserved} FROM {schema}.reserve(queue => %s::text, count => %s::int,"
    " consumer => %s::bigint, lease => make_interval(secs => %s::float8), floor => %s::bigint, quick => true,"
    " expired => true)",
    "finalize_one": "SELECT {columns}, finalized_at, finalized_note FROM {schema}.finalize(queue => %s::text,"
    " id => %s::bigint, note => %s::text, consumer => %s::bigint)",
    "finalize": "SELECT {schema}.finalize_many(queue => %s::text, ids => %s::bigint[], note => %s::text,"
    " consumer => %s::bigint)",
    # One row at least, with how many were finalized. OFFSET 0 keeps the condition where it is: if one of them was not
    # ours, nothing is reserved.
    "finalize_and_reserve": "SELECT {reserved}, done FROM (SELECT count(*) AS done FROM"
    " {schema}.finalize_many(queue => %s::text, ids => %s::bigint[], note => %s::text, consumer => %s::bigint))"
    " AS finalized LEFT JOIN LATERAL (SELECT * FROM {schema}.reserve(queue => %s::text, count => %s::int,"
    " consumer => %s::bigint, lease => make_interval(secs => %s::float8), floor => %s::bigint,"
    " expired => true) WHERE done = %s::int OFFSET 0) AS next ON true",
    # Of the first ready ones those that are too old: many may lie there, and one by one they would take for ever.
    "finalize_expired": "SELECT {schema}.finalize_many(queue => c.queue, ids => ARRAY(SELECT r.id FROM"
    " {schema}.reserve_ids(queue => c.queue, ids => ARRAY(SELECT b.id FROM {schema}.browse(queue => c.queue,"
    " from_id => 0, count => 1000, bytes_max => 9223372036854775807) AS b WHERE b.expires_at <= clock_timestamp()),"
    " consumer => c.number) AS r), note => %s::text, consumer => c.number)"
    " FROM (SELECT %s::text AS queue, %s::bigint AS number) AS c",
    "requeue": "SELECT {schema}.requeue(queue => %s::text, ids => %s::bigint[], consumer => %s::bigint,"
    " delay => make_interval(secs => %s::float8), note => %s::text)",
    # What this consumer has reserved, without those ids.
    "give_back_others": "SELECT {schema}.requeue(queue => %s::text, ids => ARRAY(SELECT m.id FROM {schema}.messages m"
    " WHERE m.state = 1 AND m.owner = c.number AND m.id <> ALL (%s::bigint[])), consumer => c.number, seen => false)"
    " FROM (SELECT %s::bigint AS number) AS c",
    "bury": "SELECT {schema}.bury(queue => %s::text, ids => %s::bigint[], note => %s::text, consumer => %s::bigint)",
    "kick": "SELECT {schema}.kick(queue => %s::text, count => %s::int)",
    "touch": "SELECT {schema}.touch(queue => %s::text, ids => %s::bigint[],"
    " lease => make_interval(secs => %s::float8), consumer => %s::bigint)",
    # --- waiting: by the server's clock, so that ours may be wrong
    "due": "SELECT extract(epoch FROM min({schema}.next_due(queue => name)) - clock_timestamp())::float8"
    " FROM unnest(%s::text[]) AS name",
    "return_due": "SELECT coalesce(sum({schema}.promote_due(queue => name)), 0)::bigint + {schema}.return_orphans()"
    " FROM unnest(%s::text[]) AS name",
    "any_ready": "SELECT EXISTS (SELECT FROM unnest(%s::text[]) AS name,"
    " LATERAL {schema}.browse(queue => name, from_id => 0, count => 1, bytes_max => 1))",
}


class Statements:
    """The statements for one schema, ready to be sent."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        names = {"schema": sql.Identifier(schema), "columns": sql.SQL(COLUMNS), "reserved": sql.SQL(RESERVED_COLUMNS)}
        names["put"] = sql.SQL(PUT_COLUMNS)
        self._texts = {name: sql.SQL(text).format(**names).as_bytes(None) for name, text in TEXTS.items()}

    def __getitem__(self, name: str) -> bytes:
        return self._texts[name]


def id_array(ids: Sequence[str]) -> str:
    """The ids as PostgreSQL reads an array. What cannot be a row's id is left out: nobody has reserved it."""
    return "{" + ",".join(id for id in ids if id.isascii() and id.isdigit() and int(id) <= ID_MAX) + "}"


def message(queue: str, row: Sequence[Any]) -> Message:
    """A row with `COLUMNS` as a message."""
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
    """A row with `PUT_COLUMNS` as a message with this payload."""
    return Message(str(row[0]), queue, payload, STATES[row[1]], row[2], row[3])


def reserved(queue: str, row: Sequence[Any], name: str | None, address: str | None) -> Message:
    """A row with `RESERVED_COLUMNS` as a message that was reserved under this name and address."""
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
    """A row of the history as a message."""
    return replace(message(queue, row), state="finalized", finalized_at=row[-2], finalized_note=row[-1])
