-- What keeps dead rows from being removed: the oldest snapshot that somebody holds, and how much that has cost so far.
-- Prepared transactions and replication slots pin as well, without a backend.
SELECT
    (SELECT coalesce(sum(s.n_dead_tup), 0)::bigint FROM pg_stat_user_tables s
     WHERE s.schemaname = %(schema)s AND s.relname = 'messages') AS dead_rows,
    (SELECT pg_total_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = %(schema)s AND c.relname = 'messages') AS messages_bytes,
    (SELECT extract(epoch FROM now() - min(a.xact_start))::float FROM pg_stat_activity a
     WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
       AND a.datid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())) AS oldest_transaction_s,
    (SELECT a.pid FROM pg_stat_activity a
     WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
       AND a.datid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     ORDER BY a.xact_start LIMIT 1) AS oldest_transaction_pid,
    (SELECT extract(epoch FROM now() - min(x.prepared))::float FROM pg_prepared_xacts x
     WHERE x.database = current_database()) AS oldest_prepared_s,
    (SELECT count(*) FROM pg_replication_slots r WHERE r.xmin IS NOT NULL AND NOT r.active) AS idle_slots
