-- Putting.

-- What the caller did not give itself.
-- columns: put_columns
id, state, deliveries, ready_at

-- name: put
SELECT {put_columns} FROM {schema}.put(queue => %s::text, payload => %b::bytea, ready_at => %s::timestamptz,
    ttl => make_interval(secs => %s::float8))

-- name: put_after
SELECT {put_columns} FROM {schema}.put(queue => %s::text, payload => %b::bytea,
    ready_at => clock_timestamp() + make_interval(secs => %s::float8), ttl => make_interval(secs => %s::float8))

-- name: put_many
SELECT {schema}.put_many(queue => %s::text, payloads => %b::bytea[], ready_at => %s::timestamptz,
    ttl => make_interval(secs => %s::float8))

-- name: put_many_after
SELECT {schema}.put_many(queue => %s::text, payloads => %b::bytea[],
    ready_at => clock_timestamp() + make_interval(secs => %s::float8), ttl => make_interval(secs => %s::float8))

-- name: put_at_slot
SELECT {schema}.put_at_slot(schedule => %s::text, slot => %s::timestamptz, queue => %s::text, payload => %b::bytea)

-- name: put_rows
SELECT {schema}.put_rows(queue_ids => %s::integer[], payloads => %s::bytea[], exchanges => %s::text[],
    routing_keys => %s::text[], properties => %s::bytea[], expires_at => %s::timestamptz[], deliveries => %s::integer[])
