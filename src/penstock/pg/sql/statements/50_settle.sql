-- Settling what is reserved.

-- columns: message_columns
id, payload, state, deliveries, ready_at, reserved_at, reserved_by, host(reserved_ip), reserved_until, note, exchange,
routing_key, properties

-- name: finalize_one
SELECT {message_columns}, finalized_at, finalized_note FROM {schema}.finalize(queue => %s::text, id => %s::bigint,
    note => %s::text, consumer => %s::bigint)

-- name: finalize
SELECT {schema}.finalize_many(queue => %s::text, ids => %s::bigint[], note => %s::text, consumer => %s::bigint)

-- name: finalize_count
SELECT count(*) FROM {schema}.finalize_many(queue => %s::text, ids => %s::bigint[], note => %s::text,
    consumer => %s::bigint)

-- Of the first ready messages those that are too old: many may lie there, and one by one they would take for ever.
-- name: finalize_expired
SELECT {schema}.finalize_many(queue => c.queue, ids => ARRAY(
    SELECT r.id FROM {schema}.reserve_ids(queue => c.queue, ids => ARRAY(
        SELECT b.id FROM {schema}.browse(queue => c.queue, from_id => 0, count => 1000, bytes_max => 9223372036854775807) AS b
        WHERE b.expires_at <= clock_timestamp()), consumer => c.number) AS r),
    note => %s::text, consumer => c.number)
FROM (SELECT %s::text AS queue, %s::bigint AS number) AS c

-- name: requeue
SELECT {schema}.requeue(queue => %s::text, ids => %s::bigint[], consumer => %s::bigint,
    delay => make_interval(secs => %s::float8), note => %s::text)

-- name: requeue_count
SELECT count(*) FROM {schema}.requeue(queue => %s::text, ids => %s::bigint[], consumer => %s::bigint, seen => %s::boolean)

-- name: bury
SELECT {schema}.bury(queue => %s::text, ids => %s::bigint[], note => %s::text, consumer => %s::bigint)

-- name: kick
SELECT {schema}.kick(queue => %s::text, count => %s::int)

-- name: touch
SELECT {schema}.touch(queue => %s::text, ids => %s::bigint[], lease => make_interval(secs => %s::float8),
    consumer => %s::bigint)

-- name: history
SELECT {message_columns}, finalized_at, finalized_note FROM {schema}.messages_history
WHERE queue_id = (SELECT id FROM {schema}.queues WHERE name = %s::text) ORDER BY finalized_at DESC, id DESC LIMIT %s::int
