-- What comes back by itself: scheduled messages whose time has come, what the gone had reserved, leases that are over.
-- Nothing here waits for a row: what somebody is just changing is found the next time.

-- Scheduled messages of one queue whose time has come.
CREATE OR REPLACE FUNCTION {schema}._promote(queue_id integer) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_got integer;
BEGIN
    UPDATE {schema}.messages m SET state = 0
    FROM (
        SELECT r.ctid FROM {schema}.messages r
        WHERE r.queue_id = _promote.queue_id AND r.state = 2 AND r.ready_at <= statement_timestamp()
        ORDER BY r.ready_at LIMIT 10000 FOR UPDATE SKIP LOCKED
    ) s
    WHERE m.ctid = s.ctid;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    IF v_got > 0 THEN
        INSERT INTO {schema}.stats_deltas (queue_id, ready, scheduled) VALUES (_promote.queue_id, v_got, -v_got);
        PERFORM {schema}._wake(_promote.queue_id, false);
    END IF;
    RETURN v_got;
END $body$;
COMMENT ON FUNCTION {schema}._promote(integer) IS
    'Makes scheduled messages of a queue ready whose time has come; returns how many.';

-- Of all queues: goes from one queue to the next in the index, past those that have nothing scheduled.
CREATE OR REPLACE FUNCTION {schema}.promote_due(queue text DEFAULT NULL) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer := 0;
    v_all integer := 0;
BEGIN
    IF promote_due.queue IS NOT NULL THEN
        SELECT q.id INTO v_queue FROM {schema}.queues q WHERE q.name = promote_due.queue;
        RETURN coalesce({schema}._promote(v_queue), 0);
    END IF;
    LOOP
        SELECT m.queue_id INTO v_queue FROM {schema}.messages m WHERE m.state = 2 AND m.queue_id > v_queue
        ORDER BY m.queue_id, m.ready_at LIMIT 1;
        EXIT WHEN NOT FOUND;
        v_all := v_all + {schema}._promote(v_queue);
    END LOOP;
    RETURN v_all;
END $body$;
COMMENT ON FUNCTION {schema}.promote_due(text) IS
    'Makes scheduled messages ready whose time has come, 10,000 a queue at most; NULL: of all queues. Returns how many.';

-- What these participants have reserved becomes ready. Counted like any other move.
CREATE OR REPLACE FUNCTION {schema}._give_back(owners bigint[]) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_count integer;
    v_all integer := 0;
BEGIN
    FOR v_queue, v_count IN
        WITH back AS (
            UPDATE {schema}.messages m
            SET state = 0, reserved_at = NULL, reserved_until = NULL, reserved_by = NULL, reserved_ip = NULL, owner = NULL
            FROM (SELECT r.ctid FROM {schema}.messages r WHERE r.state = 1 AND r.owner = ANY (owners)
                  FOR UPDATE SKIP LOCKED) s
            WHERE m.ctid = s.ctid
            RETURNING m.queue_id
        )
        SELECT queue_id, count(*) FROM back GROUP BY queue_id
    LOOP
        INSERT INTO {schema}.stats_deltas (queue_id, ready, reserved) VALUES (v_queue, v_count, -v_count);
        PERFORM {schema}._wake(v_queue, false);
        v_all := v_all + v_count;
    END LOOP;
    RETURN v_all;
END $body$;
COMMENT ON FUNCTION {schema}._give_back(bigint[]) IS
    'What these participants have reserved becomes ready; returns how many.';

-- Gives back what gone participants had reserved, and then removes them. Gone: the lock is free and the grace is over, or
-- the lease is over, lock or not.
CREATE OR REPLACE FUNCTION {schema}._remove_gone() RETURNS integer LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_held integer[] := {schema}._held_keys();
    v_gone bigint[];
    v_queue integer;
    v_all integer;
BEGIN
    SELECT pg_catalog.array_agg(c.id) INTO v_gone FROM (
        SELECT p.id FROM {schema}.participants p
        WHERE clock_timestamp() >= p.seen_at + p.lease
           OR clock_timestamp() >= p.seen_at + p.grace AND {schema}._lock_key(p.id) <> ALL (v_held)
        FOR UPDATE SKIP LOCKED
    ) c;
    IF v_gone IS NULL THEN
        RETURN 0;
    END IF;
    -- The rows are locked. Who takes up a number has locked it before it comes to the row, so this look decides.
    v_held := {schema}._held_keys();
    SELECT pg_catalog.array_agg(p.id) INTO v_gone FROM {schema}.participants p
    WHERE p.id = ANY (v_gone)
      AND (clock_timestamp() >= p.seen_at + p.lease OR {schema}._lock_key(p.id) <> ALL (v_held));
    v_all := {schema}._give_back(v_gone);
    FOR v_queue IN
        WITH gone AS (DELETE FROM {schema}.participants p WHERE p.id = ANY (v_gone) RETURNING p.queue_id)
        SELECT DISTINCT queue_id FROM gone ORDER BY queue_id
    LOOP
        PERFORM {schema}._count_participants(v_queue);
    END LOOP;
    RETURN v_all;
END $body$;
COMMENT ON FUNCTION {schema}._remove_gone() IS
    'Removes participants that are gone, after giving back what they had reserved; returns how many messages.';

-- Reservations whose lease is over, and those of participants that are not there any more: they reserved while they were
-- being removed. Walks over all that is reserved.
CREATE OR REPLACE FUNCTION {schema}._end_leases() RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_count integer;
    v_all integer := 0;
BEGIN
    FOR v_queue, v_count IN
        WITH back AS (
            UPDATE {schema}.messages m
            SET state = 0, reserved_at = NULL, reserved_until = NULL, reserved_by = NULL, reserved_ip = NULL, owner = NULL
            FROM (
                SELECT r.ctid FROM {schema}.messages r
                WHERE r.state = 1 AND (r.reserved_until <= statement_timestamp()
                   OR r.owner IS NOT NULL AND r.owner NOT IN (SELECT p.id FROM {schema}.participants p))
                FOR UPDATE SKIP LOCKED
            ) s
            WHERE m.ctid = s.ctid
            RETURNING m.queue_id
        )
        SELECT queue_id, count(*) FROM back GROUP BY queue_id
    LOOP
        INSERT INTO {schema}.stats_deltas (queue_id, ready, reserved) VALUES (v_queue, v_count, -v_count);
        PERFORM {schema}._wake(v_queue, false);
        v_all := v_all + v_count;
    END LOOP;
    RETURN v_all;
END $body$;
COMMENT ON FUNCTION {schema}._end_leases() IS 'Makes ready what has outlived its lease or its owner; returns how many.';

-- Both.
CREATE OR REPLACE FUNCTION {schema}.return_orphans() RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RETURN {schema}._remove_gone() + {schema}._end_leases();
END $body$;
COMMENT ON FUNCTION {schema}.return_orphans() IS
    'Makes ready what participants had reserved who are gone, and what has outlived its lease; returns how many.';
