-- Counts, and what somebody has to do now and then: sweep() does all of it.

-- Takes the differences that it can lock, and adds them to the totals. Whoever looks sees the same sum before and after.
CREATE OR REPLACE FUNCTION {schema}.fold_stats() RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    v_folded integer;
BEGIN
    WITH taken AS (
        DELETE FROM {schema}.stats_deltas d USING (
            SELECT r.ctid FROM {schema}.stats_deltas r LIMIT 100000 FOR UPDATE SKIP LOCKED
        ) s
        WHERE d.ctid = s.ctid
        RETURNING d.*
    ), sums AS (
        SELECT t.queue_id, sum(t.ready) AS ready, sum(t.reserved) AS reserved, sum(t.scheduled) AS scheduled,
               sum(t.buried) AS buried, sum(t.finalized) AS finalized
        FROM taken t GROUP BY t.queue_id
    ), folded AS (
        -- In order: two who fold at once do not wait for each other in a circle.
        INSERT INTO {schema}.stats_totals AS t (queue_id, name, value)
        SELECT s.queue_id, n.name, n.value
        FROM sums s JOIN {schema}.queues q ON q.id = s.queue_id
        CROSS JOIN LATERAL (VALUES ('ready', s.ready), ('reserved', s.reserved), ('scheduled', s.scheduled),
            ('buried', s.buried), ('finalized', s.finalized)) AS n (name, value)
        WHERE n.value <> 0
        ORDER BY s.queue_id, n.name
        ON CONFLICT (queue_id, name) DO UPDATE SET value = t.value + EXCLUDED.value
    )
    SELECT count(*) INTO v_folded FROM taken;
    RETURN v_folded;
END $body$;
COMMENT ON FUNCTION {schema}.fold_stats() IS
    'Adds the differences up into the totals; returns how many rows were folded.';

-- A task that walks over much is done more rarely, so that it takes a twentieth of the time at most. Short ones always.
CREATE OR REPLACE FUNCTION {schema}._is_due(task text) RETURNS boolean LANGUAGE sql AS $body$
    SELECT NOT EXISTS (SELECT 1 FROM {schema}.upkeep u WHERE u.task = _is_due.task AND u.took > interval '50 milliseconds'
                       AND clock_timestamp() < u.ran_at + 20::float8 * u.took AND clock_timestamp() >= u.ran_at)
$body$;
COMMENT ON FUNCTION {schema}._is_due(text) IS 'Whether the sweeper may do a task again already.';

-- Remembers how long a task took.
CREATE OR REPLACE FUNCTION {schema}._was_done(task text, began timestamptz) RETURNS void LANGUAGE sql AS $body$
    INSERT INTO {schema}.upkeep (task, ran_at, took) VALUES (task, clock_timestamp(), clock_timestamp() - began)
    ON CONFLICT (task) DO UPDATE SET ran_at = EXCLUDED.ran_at, took = EXCLUDED.took
$body$;
COMMENT ON FUNCTION {schema}._was_done(text, timestamptz) IS 'Remembers how long a task of the sweeper took.';

-- All of it. One does it at a time; the others have nothing to do.
CREATE OR REPLACE FUNCTION {schema}.sweep()
RETURNS TABLE (promoted integer, returned integer, folded integer, partitions integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    v_began timestamptz;
BEGIN
    promoted := 0; returned := 0; folded := 0; partitions := 0;
    IF pg_try_advisory_xact_lock({schema}._lock_class(), 0) THEN
        promoted := {schema}.promote_due();
        returned := {schema}._remove_gone();
        IF {schema}._is_due('leases') THEN
            v_began := clock_timestamp();
            returned := returned + {schema}._end_leases();
            PERFORM {schema}._was_done('leases', v_began);
        END IF;
        IF {schema}._is_due('fold') THEN
            v_began := clock_timestamp();
            folded := {schema}.fold_stats();
            PERFORM {schema}._was_done('fold', v_began);
        END IF;
        partitions := {schema}.keep_history();
    END IF;
    RETURN NEXT;
END $body$;
COMMENT ON FUNCTION {schema}.sweep() IS
    'promote_due, return_orphans, fold_stats and keep_history; zeros when somebody else does so just now. '
    'Call it every second.';

-- One statement has one snapshot: what the truth and the sum differ by there, they differ by in every later one too, because
-- everybody else changes both in one transaction. So nobody has to wait for the count.
CREATE OR REPLACE FUNCTION {schema}.update_queue_counts() RETURNS SETOF {schema}.queue_stats LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'update_queue_counts does not work in a % transaction', current_setting('transaction_isolation')
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Call it in READ COMMITTED, PostgreSQL''s default.';
    END IF;
    -- Two corrections at once would both add the same difference; a partition must not go in between.
    PERFORM pg_advisory_xact_lock({schema}._lock_class(), 0);
    INSERT INTO {schema}.stats_deltas (queue_id, ready, reserved, scheduled, buried, finalized)
    SELECT s.queue_id, coalesce(m.ready, 0) - (s.ready_count + s.expired_count), coalesce(m.reserved, 0) - s.reserved_count,
           coalesce(m.scheduled, 0) - s.scheduled_count, coalesce(m.buried, 0) - s.buried_count,
           coalesce(h.finalized, 0) - s.finalized_count
    FROM {schema}.queue_stats s
    LEFT JOIN (
        SELECT queue_id, count(*) FILTER (WHERE state = 0) AS ready, count(*) FILTER (WHERE state = 1) AS reserved,
               count(*) FILTER (WHERE state = 2) AS scheduled, count(*) FILTER (WHERE state = 3) AS buried
        FROM {schema}.messages GROUP BY queue_id
    ) m ON m.queue_id = s.queue_id
    LEFT JOIN (
        SELECT queue_id, count(*) AS finalized FROM {schema}.messages_history GROUP BY queue_id
    ) h ON h.queue_id = s.queue_id;
    PERFORM {schema}.fold_stats();
    -- Of a queue that was dropped while somebody folded.
    DELETE FROM {schema}.stats_totals t WHERE NOT EXISTS (SELECT 1 FROM {schema}.queues q WHERE q.id = t.queue_id);
    RETURN QUERY SELECT * FROM {schema}.queue_stats;
END $body$;
COMMENT ON FUNCTION {schema}.update_queue_counts() IS
    'Counts all messages and sets the counts right, exactly, also while others work.';

-- Removes the gone, counts the rest.
CREATE OR REPLACE FUNCTION {schema}.update_participant_counts()
RETURNS SETOF {schema}.queue_stats LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    PERFORM {schema}.return_orphans();
    PERFORM {schema}._count_participants(q.id) FROM {schema}.queues q ORDER BY q.id;
    RETURN QUERY SELECT * FROM {schema}.queue_stats;
END $body$;
COMMENT ON FUNCTION {schema}.update_participant_counts() IS
    'Removes participants that are gone, giving back what they had reserved, and counts the others.';
