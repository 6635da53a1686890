-- Queues: making, dropping, counting.

-- name: version
SELECT max(version) FROM {schema}.migrations

-- name: use_queue
SELECT {schema}.use_queue(queue => %s::text, ordering => %s::text)

-- name: drop_queue
SELECT {schema}.drop_queue(queue => %s::text)

-- name: purge
SELECT {schema}.purge(queue => %s::text)

-- name: queues
SELECT name FROM {schema}.queues ORDER BY name

-- name: channel_of
SELECT {schema}.channel_of(queue => %s::text)

-- name: stats
SELECT ready_count, reserved_count, scheduled_count, buried_count, finalized_count, producer_count, consumer_count
FROM {schema}.queue_stats WHERE name = %s::text

-- What has expired is counted too: it leaves when it comes to the head.
-- name: ready_counts
SELECT name, ready_count + expired_count FROM {schema}.queue_stats WHERE name = ANY (%s::text[])
