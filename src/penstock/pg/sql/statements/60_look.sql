-- Looking without disturbing. Times are the server's, so that the client's clock may be wrong.

-- name: browse
SELECT {row_columns} FROM {schema}.browse(queue => %s::text, from_id => %s::bigint, count => %s::int,
    bytes_max => %s::bigint)

-- The seconds until the next scheduled message or lease of these queues is due.
-- name: due
SELECT extract(epoch FROM min({schema}.next_due(queue => name)) - clock_timestamp())::float8 FROM unnest(%s::text[]) AS name

-- name: return_due
SELECT coalesce(sum({schema}.promote_due(queue => name)), 0)::bigint + {schema}.return_orphans()
FROM unnest(%s::text[]) AS name

-- name: any_ready
SELECT EXISTS (SELECT FROM unnest(%s::text[]) AS name,
    LATERAL {schema}.browse(queue => name, from_id => 0, count => 1, bytes_max => 1))

-- Queues whose first message has expired.
-- name: heads_expired
SELECT n FROM unnest(%s::text[]) AS n CROSS JOIN LATERAL {schema}.browse(n, 0, 1, 0) AS b WHERE b.expires_at <= now()

-- The ids of the first messages of each queue that have expired, without one between them that has not.
-- name: expired_heads
SELECT n, array_agg(h.id ORDER BY h.id) FROM unnest(%s::text[]) AS n
CROSS JOIN LATERAL (SELECT b.id, bool_and(b.expires_at <= now()) OVER (ORDER BY b.id) AS expired
    FROM {schema}.browse(n, 0, 100, 1048576) AS b) AS h
WHERE h.expired GROUP BY n
