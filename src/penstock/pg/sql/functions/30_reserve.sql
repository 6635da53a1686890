-- Reserving. Rows are to be found through the index of ready rows, whatever the table's size was when the plan was made,
-- hence the SETs. JIT would take longer than the work.

-- The first rows of a strict queue: whoever is just taking some is waited for.
CREATE OR REPLACE FUNCTION {schema}._take_head(queue_id integer, count integer, owner bigint, lease interval)
RETURNS SETOF {schema}.messages LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_name text := current_setting('application_name');
    v_ip inet := inet_client_addr();
BEGIN
    -- Whoever comes second waits here, and then looks with a snapshot that has what the first one did.
    PERFORM pg_advisory_xact_lock({schema}._lock_class(), -_take_head.queue_id);
    v_now := clock_timestamp();
    RETURN QUERY
    UPDATE {schema}.messages m
    SET state = 1, deliveries = m.deliveries + 1, reserved_at = v_now, reserved_until = v_now + _take_head.lease,
        reserved_by = v_name, reserved_ip = v_ip, owner = _take_head.owner
    FROM (
        SELECT r.ctid FROM {schema}.messages r
        WHERE r.queue_id = _take_head.queue_id AND r.state = 0
        ORDER BY r.id LIMIT _take_head.count FOR UPDATE
    ) s
    WHERE m.ctid = s.ctid
    RETURNING m.*;
END $body$;
COMMENT ON FUNCTION {schema}._take_head(integer, integer, bigint, interval) IS
    'Reserves the first ready messages; waits for others who are just doing so.';

-- The id of the k-th ready row from an id on. It locks nothing: the rows before it stay free for others.
CREATE OR REPLACE FUNCTION {schema}._id_at(queue_id integer, from_id bigint, k integer) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
BEGIN
    RETURN (SELECT m.id FROM {schema}.messages m WHERE m.queue_id = _id_at.queue_id AND m.state = 0 AND m.id >= from_id
            ORDER BY m.id OFFSET k LIMIT 1);
END $body$;
COMMENT ON FUNCTION {schema}._id_at(integer, bigint, integer) IS
    'The id of the k-th ready message from an id on; NULL: none.';

-- Ready messages of a queue whose ttl is over go into the history. What others are just taking is left to them.
CREATE OR REPLACE FUNCTION {schema}._finalize_expired(queue_id integer) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_got integer;
BEGIN
    WITH gone AS (
        DELETE FROM {schema}.messages m USING (
            SELECT r.ctid FROM {schema}.messages r
            WHERE r.queue_id = _finalize_expired.queue_id AND r.state = 0 AND r.expires_at IS NOT NULL
              AND r.expires_at <= clock_timestamp()
            FOR UPDATE SKIP LOCKED
        ) s
        WHERE m.ctid = s.ctid
        RETURNING m.*
    )
    INSERT INTO {schema}.messages_history (id, owner, ready_at, reserved_at, reserved_until, expires_at, queue_id,
        deliveries, state, reserved_by, reserved_ip, exchange, routing_key, properties, payload, note, finalized_at,
        finalized_note, xid)
    SELECT g.id, g.owner, g.ready_at, g.reserved_at, g.reserved_until, g.expires_at, g.queue_id, g.deliveries, g.state,
           g.reserved_by, g.reserved_ip, g.exchange, g.routing_key, g.properties, g.payload, g.note, clock_timestamp(),
           'expired', pg_current_xact_id()
    FROM gone g;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    IF v_got > 0 THEN
        INSERT INTO {schema}.stats_deltas (queue_id, ready, finalized) VALUES (_finalize_expired.queue_id, -v_got, v_got);
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}._finalize_expired(integer) IS 'Moves ready messages whose ttl is over into the history.';

-- Looks behind the drawn offset, then from the floor on, then, with what has just become due, from the beginning; each
-- only for what is still missing. Rows that others are just taking are passed over.
CREATE OR REPLACE FUNCTION {schema}.reserve(queue text, count integer DEFAULT 1, consumer bigint DEFAULT NULL,
    lease interval DEFAULT NULL, relative_top integer DEFAULT NULL, floor bigint DEFAULT 0, quick boolean DEFAULT false,
    expired boolean DEFAULT false)
RETURNS SETOF {schema}.messages LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_strict boolean;
    v_top integer;
    v_attached boolean;
    v_from bigint;
    v_now timestamptz := clock_timestamp();
    v_name text := current_setting('application_name');
    v_ip inet := inet_client_addr();
    v_lease interval := CASE WHEN reserve.consumer IS NULL AND reserve.lease IS NULL THEN interval '15 minutes'
                             ELSE reserve.lease END;
    v_left integer := reserve.count;
    v_got integer;
BEGIN
    IF (reserve.count BETWEEN 1 AND 10000) IS NOT TRUE OR reserve.lease < interval '0' THEN
        PERFORM {schema}._check_count(reserve.count), {schema}._check_span('lease', reserve.lease);
    END IF;
    -- Not in a transaction of the caller's: what it writes besides would be weakened too.
    IF quick AND NOT {schema}._in_transaction() AND pg_current_xact_id_if_assigned() IS NULL THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    SELECT q.id, q.ordering = 'strict',
           CASE WHEN reserve.relative_top IS NULL AND q.ordering = 'fuzzy' THEN (
                    -- From 0 to min(consumers, ready) - 1, by the folded counts; less if there would not be enough behind.
                    -- Not a function of its own: that would be planned at each call, and cost as much as all the rest.
                    SELECT pg_catalog.floor(random() * least(c.value, r.value - reserve.count + 1)::float8)::integer
                    FROM {schema}.stats_totals c, {schema}.stats_totals r
                    WHERE c.queue_id = q.id AND c.name = 'consumers' AND r.queue_id = q.id AND r.name = 'ready'
                ) ELSE reserve.relative_top END,
           reserve.consumer IS NULL OR EXISTS (SELECT 1 FROM {schema}.participants p WHERE p.id = reserve.consumer)
    INTO v_queue, v_strict, v_top, v_attached FROM {schema}.queues q WHERE q.name = queue;
    IF NOT FOUND THEN
        PERFORM {schema}._check_queue(queue);
        RAISE EXCEPTION 'there is no queue "%"', queue USING ERRCODE = 'undefined_object',
            HINT = 'Is the name right? A queue is made by the first put, by attach, and by use_queue.';
    END IF;
    IF NOT v_attached THEN
        RAISE EXCEPTION 'consumer % is not attached', reserve.consumer USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'It has left, or was taken for gone: attach again, and reserve with the new number.';
    END IF;
    IF NOT reserve.expired AND EXISTS (
        SELECT 1 FROM {schema}.messages r
        WHERE r.queue_id = v_queue AND r.state = 0 AND r.expires_at IS NOT NULL AND r.expires_at <= v_now
    ) THEN
        PERFORM {schema}._finalize_expired(v_queue);
    END IF;
    FOR v_look IN 1..3 LOOP
        IF v_look = 1 THEN
            CONTINUE WHEN v_strict OR v_top IS NULL OR v_top <= 0;
            v_from := {schema}._id_at(v_queue, reserve.floor, v_top);
            CONTINUE WHEN v_from IS NULL;
        ELSIF v_look = 2 THEN
            v_from := coalesce(reserve.floor, 0);
        ELSE
            EXIT WHEN {schema}._promote(v_queue) = 0;
            v_from := 0;
        END IF;
        IF v_strict THEN
            RETURN QUERY SELECT * FROM {schema}._take_head(v_queue, v_left, reserve.consumer, v_lease);
        ELSE
            -- The join goes through the rows as they were chosen, so they come out in order.
            RETURN QUERY
            UPDATE {schema}.messages m
            SET state = 1, deliveries = m.deliveries + 1, reserved_at = v_now, reserved_until = v_now + v_lease,
                reserved_by = v_name, reserved_ip = v_ip, owner = reserve.consumer
            FROM (
                SELECT r.ctid FROM {schema}.messages r
                WHERE r.queue_id = v_queue AND r.state = 0 AND r.id >= v_from
                ORDER BY r.id LIMIT v_left FOR UPDATE SKIP LOCKED
            ) s
            WHERE m.ctid = s.ctid
            RETURNING m.*;
        END IF;
        GET DIAGNOSTICS v_got = ROW_COUNT;
        v_left := v_left - v_got;
        EXIT WHEN v_left = 0;
    END LOOP;
    v_got := reserve.count - v_left;
    IF v_got > 0 THEN
        INSERT INTO {schema}.stats_deltas (queue_id, ready, reserved) VALUES (v_queue, -v_got, v_got);
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}.reserve(text, integer, bigint, interval, integer, bigint, boolean, boolean) IS
    'Reserves up to count messages, in order of their ids (those of a second look come last). consumer: the number from '
    'attach. lease: how long (15 minutes without a consumer). relative_top: how many to leave at the head. floor: hint, '
    'look from this id on. quick: do not wait for the disk; ignored inside transactions. expired: also those whose ttl is '
    'over, for who does something with them; else they go into the history.';

-- Ready messages by their ids, for who has seen them with browse.
CREATE OR REPLACE FUNCTION {schema}.reserve_ids(queue text, ids bigint[], consumer bigint)
RETURNS SETOF {schema}.messages LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_attached boolean;
    v_until timestamptz := CASE WHEN reserve_ids.consumer IS NULL THEN clock_timestamp() + interval '15 minutes' END;
    v_got integer;
BEGIN
    SELECT q.id, reserve_ids.consumer IS NULL
                 OR EXISTS (SELECT 1 FROM {schema}.participants p WHERE p.id = reserve_ids.consumer)
    INTO v_queue, v_attached FROM {schema}.queues q WHERE q.name = queue;
    IF NOT v_attached THEN
        RAISE EXCEPTION 'consumer % is not attached', reserve_ids.consumer
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'It has left, or was taken for gone: attach again, and reserve with the new number.';
    END IF;
    RETURN QUERY
    WITH taken AS (
        UPDATE {schema}.messages m
        SET state = 1, deliveries = m.deliveries + 1, reserved_at = clock_timestamp(), reserved_until = v_until,
            reserved_by = current_setting('application_name'), reserved_ip = inet_client_addr(), owner = reserve_ids.consumer
        FROM (
            SELECT r.ctid FROM {schema}.messages r
            WHERE r.queue_id = v_queue AND r.state = 0 AND r.id = ANY (ids)
            ORDER BY r.id FOR UPDATE SKIP LOCKED
        ) s
        WHERE m.ctid = s.ctid
        RETURNING m.*
    )
    SELECT * FROM taken ORDER BY id;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    IF v_got > 0 THEN
        INSERT INTO {schema}.stats_deltas (queue_id, ready, reserved) VALUES (v_queue, -v_got, v_got);
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}.reserve_ids(text, bigint[], bigint) IS
    'Reserves those of the messages that are ready, in order of their ids.';
