-- Reserving.

-- For sessions. The state of what was just reserved is known, and who has reserved it is the same for all.
-- columns: reserved_columns
id, payload, deliveries, ready_at, reserved_at, reserved_until, note, exchange, routing_key, properties,
coalesce(expires_at <= clock_timestamp(), false)

-- For brokers: times as milliseconds, -1 = it does not expire.
-- columns: row_columns
id, deliveries, coalesce((extract(epoch FROM expires_at) * 1000)::bigint, -1), exchange, routing_key, properties, payload,
(extract(epoch FROM ready_at) * 1000)::bigint

-- name: reserve
SELECT {reserved_columns} FROM {schema}.reserve(queue => %s::text, count => %s::int, consumer => %s::bigint,
    lease => make_interval(secs => %s::float8), floor => %s::bigint, quick => true, expired => true)

-- From the very head, without a lease.
-- name: reserve_rows
SELECT {row_columns} FROM {schema}.reserve(queue => %s::text, count => %s::int, consumer => %s::bigint, relative_top => 0,
    floor => %s::bigint, quick => true, expired => true)

-- name: reserve_ids
SELECT {row_columns} FROM {schema}.reserve_ids(queue => %s::text, ids => %s::bigint[], consumer => %s::bigint)

-- One row at least, with how many were finalized. OFFSET 0 keeps the condition where it is: if one of them was not ours,
-- nothing is reserved.
-- name: finalize_and_reserve
SELECT {reserved_columns}, done
FROM (SELECT count(*) AS done FROM {schema}.finalize_many(queue => %s::text, ids => %s::bigint[], note => %s::text,
    consumer => %s::bigint)) AS finalized
LEFT JOIN LATERAL (SELECT * FROM {schema}.reserve(queue => %s::text, count => %s::int, consumer => %s::bigint,
    lease => make_interval(secs => %s::float8), floor => %s::bigint, expired => true) WHERE done = %s::int OFFSET 0) AS next
ON true
