-- Version 2: `put` and `finalize` return their rows, `reserve` leaves out what has expired, and counts have the names that
-- queue_classic gave them. Functions are made anew after this; one that returns something else has to go first.
DROP FUNCTION IF EXISTS {schema}.put(text, bytea, timestamptz, interval);
DROP FUNCTION IF EXISTS {schema}.put(text, text, timestamptz, interval);
DROP FUNCTION IF EXISTS {schema}.finalize(text, bigint, text, bigint);
DROP FUNCTION IF EXISTS {schema}.reserve(text, integer, bigint, interval, integer, bigint, boolean);
DROP FUNCTION IF EXISTS {schema}.update_queue_counts();
DROP FUNCTION IF EXISTS {schema}.update_participant_counts();
DROP VIEW {schema}.stats;
DROP VIEW {schema}.queue_stats;

-- Ready messages that expire: what has expired is found without a look at the others.
CREATE INDEX messages_expiring ON {schema}.messages (queue_id, expires_at) WHERE state = 0 AND expires_at IS NOT NULL;

-- One row per queue. Sums are exact for whoever looks: deltas are written in the transaction that makes the difference.
-- What has expired is not ready any more, though nobody may have removed it yet.
CREATE VIEW {schema}.queue_stats AS
SELECT q.id AS queue_id, q.name, s.ready - e.expired AS ready_count, s.reserved AS reserved_count,
       s.scheduled AS scheduled_count, s.buried AS buried_count, s.finalized AS finalized_count, p.producer_count,
       p.consumer_count, e.expired AS expired_count
FROM {schema}.queues q
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE role = 'producer') AS producer_count,
           count(*) FILTER (WHERE role = 'consumer') AS consumer_count
    FROM {schema}.participants WHERE queue_id = q.id
) p ON true
LEFT JOIN LATERAL (
    SELECT coalesce(sum(c.ready), 0)::bigint AS ready, coalesce(sum(c.reserved), 0)::bigint AS reserved,
           coalesce(sum(c.scheduled), 0)::bigint AS scheduled, coalesce(sum(c.buried), 0)::bigint AS buried,
           coalesce(sum(c.finalized), 0)::bigint AS finalized
    FROM (
        SELECT ready, reserved, scheduled, buried, finalized FROM {schema}.stats_deltas WHERE queue_id = q.id
        UNION ALL
        SELECT sum(value) FILTER (WHERE t.name = 'ready'), sum(value) FILTER (WHERE t.name = 'reserved'),
               sum(value) FILTER (WHERE t.name = 'scheduled'), sum(value) FILTER (WHERE t.name = 'buried'),
               sum(value) FILTER (WHERE t.name = 'finalized')
        FROM {schema}.stats_totals t WHERE t.queue_id = q.id
    ) c
) s ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS expired FROM {schema}.messages m
    WHERE m.queue_id = q.id AND m.state = 0 AND m.expires_at IS NOT NULL AND m.expires_at <= statement_timestamp()
) e ON true;

-- The same, one row per queue and count.
CREATE VIEW {schema}.stats AS
SELECT s.queue_id, c.name, c.value
FROM {schema}.queue_stats s
CROSS JOIN LATERAL (VALUES ('ready_count', s.ready_count), ('reserved_count', s.reserved_count),
    ('scheduled_count', s.scheduled_count), ('buried_count', s.buried_count), ('finalized_count', s.finalized_count),
    ('producer_count', s.producer_count), ('consumer_count', s.consumer_count), ('expired_count', s.expired_count)
) AS c (name, value);
