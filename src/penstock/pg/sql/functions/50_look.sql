-- Looking at a queue, and clearing it.

-- Ready ones, to nowhere. What others are just taking is left to them.
CREATE OR REPLACE FUNCTION {schema}.purge(queue text) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_got bigint;
BEGIN
    SELECT q.id INTO v_queue FROM {schema}.queues q WHERE q.name = queue;
    DELETE FROM {schema}.messages m USING (
        SELECT r.ctid FROM {schema}.messages r WHERE r.queue_id = v_queue AND r.state = 0 FOR UPDATE SKIP LOCKED
    ) s
    WHERE m.ctid = s.ctid;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    IF v_got > 0 THEN
        INSERT INTO {schema}.stats_deltas (queue_id, ready) VALUES (v_queue, -v_got);
    END IF;
    RETURN v_got;
END $body$;
COMMENT ON FUNCTION {schema}.purge(text) IS 'Deletes the ready messages of a queue; returns how many.';

-- The queue with all its messages; its history stays. Waits for transactions that have put into it. One statement
-- deletes the rows of all states: it follows a row that changes its state meanwhile.
CREATE OR REPLACE FUNCTION {schema}.drop_queue(queue text) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_got bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- It would not see what was put since the transaction began: rows would stay that nobody finds any more.
        RAISE EXCEPTION 'drop_queue does not work in a % transaction', current_setting('transaction_isolation')
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Call it in READ COMMITTED, PostgreSQL''s default.';
    END IF;
    LOCK TABLE {schema}.queues IN ROW EXCLUSIVE MODE;
    PERFORM pg_advisory_xact_lock({schema}._put_class(), hashtext(queue));
    DELETE FROM {schema}.queues q WHERE q.name = queue RETURNING q.id INTO v_queue;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    FOR v_try IN 1..5 LOOP
        BEGIN
            IF v_try > 1 THEN
                PERFORM 1 FROM {schema}.messages m
                WHERE m.queue_id = v_queue AND (m.state = 0 OR m.state = 1 OR m.state = 2 OR m.state = 3)
                ORDER BY m.id FOR UPDATE;
            END IF;
            DELETE FROM {schema}.messages m
            WHERE m.queue_id = v_queue AND (m.state = 0 OR m.state = 1 OR m.state = 2 OR m.state = 3);
            GET DIAGNOSTICS v_got = ROW_COUNT;
            EXIT;
        EXCEPTION WHEN deadlock_detected THEN
            -- Somebody settles several of them in the order of their ids, which was not the order here.
            IF v_try = 5 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    DELETE FROM {schema}.participants p WHERE p.queue_id = v_queue;
    -- In this order: who folds has differences and wants totals.
    DELETE FROM {schema}.stats_deltas d WHERE d.queue_id = v_queue;
    DELETE FROM {schema}.stats_totals t WHERE t.queue_id = v_queue;
    RETURN v_got;
END $body$;
COMMENT ON FUNCTION {schema}.drop_queue(text) IS
    'Removes a queue and its messages; returns how many messages, NULL when there is no such queue.';

-- Ready ones from an id on, in order, with a limit of bytes; at least one if there is one. Locks nothing.
CREATE OR REPLACE FUNCTION {schema}.browse(queue text, from_id bigint, count integer, bytes_max bigint)
RETURNS SETOF {schema}.messages LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_row {schema}.messages;
    v_bytes bigint := 0;
    v_first boolean := true;
BEGIN
    PERFORM {schema}._check_count(browse.count);
    FOR v_row IN
        SELECT m.* FROM {schema}.messages m
        WHERE m.queue_id = (SELECT q.id FROM {schema}.queues q WHERE q.name = queue) AND m.state = 0 AND m.id >= from_id
        ORDER BY m.id LIMIT browse.count
    LOOP
        v_bytes := v_bytes + octet_length(v_row.payload) + coalesce(octet_length(v_row.properties), 0);
        EXIT WHEN v_bytes > bytes_max AND NOT v_first;
        v_first := false;
        RETURN NEXT v_row;
    END LOOP;
END $body$;
COMMENT ON FUNCTION {schema}.browse(text, bigint, integer, bigint) IS
    'Ready messages from an id on, in order, up to so many and so many bytes; nothing is disturbed.';

-- Exact; walks over them. What has expired is not ready any more.
CREATE OR REPLACE FUNCTION {schema}.count_ready(queue text) RETURNS bigint LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET jit = off AS $body$
BEGIN
    RETURN (SELECT count(*) FROM {schema}.messages m
            WHERE m.queue_id = (SELECT q.id FROM {schema}.queues q WHERE q.name = queue) AND m.state = 0
              AND (m.expires_at IS NULL OR m.expires_at > statement_timestamp()));
END $body$;
COMMENT ON FUNCTION {schema}.count_ready(text) IS 'How many messages are ready, counted.';

-- When it is worth looking again although nobody puts. Leases are not looked at when the sweeper has found that to take
-- long: it wakes who waits anyway.
CREATE OR REPLACE FUNCTION {schema}.next_due(queue text) RETURNS timestamptz LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_due timestamptz;
    v_ends timestamptz;
BEGIN
    SELECT q.id INTO v_queue FROM {schema}.queues q WHERE q.name = queue;
    SELECT min(m.ready_at) INTO v_due FROM {schema}.messages m WHERE m.queue_id = v_queue AND m.state = 2;
    IF NOT EXISTS (SELECT 1 FROM {schema}.upkeep u WHERE u.task = 'leases' AND u.took > interval '50 milliseconds') THEN
        SELECT min(m.reserved_until) INTO v_ends FROM {schema}.messages m WHERE m.queue_id = v_queue AND m.state = 1;
    END IF;
    RETURN least(v_due, v_ends);
END $body$;
COMMENT ON FUNCTION {schema}.next_due(text) IS
    'When the first scheduled message becomes ready, or the first lease ends; NULL: none.';
