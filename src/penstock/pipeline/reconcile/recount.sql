-- What each queue holds, counted row by row, beside what its counters say; in one snapshot of the caller's.
SELECT s.name,
       s.ready_count, coalesce(m.ready, 0) - s.expired_count,
       s.reserved_count, coalesce(m.reserved, 0),
       s.scheduled_count, coalesce(m.scheduled, 0),
       s.buried_count, coalesce(m.buried, 0),
       s.finalized_count, coalesce(h.finalized, 0)
FROM {schema}.queue_stats s
LEFT JOIN (
    SELECT queue_id, count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE state = 1) AS reserved,
           count(*) FILTER (WHERE state = 2) AS scheduled, count(*) FILTER (WHERE state = 3) AS buried
    FROM {schema}.messages GROUP BY queue_id
) m ON m.queue_id = s.queue_id
LEFT JOIN (
    SELECT queue_id, count(*) AS finalized FROM {schema}.messages_history GROUP BY queue_id
) h ON h.queue_id = s.queue_id
ORDER BY s.name
