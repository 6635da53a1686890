-- What becomes of a reserved message: finalize, requeue, bury, touch. Each looks for the id among the reserved ones, and
-- checks the queue and the owner: NULL for reservations without one. Ids that do not fit are left out.

-- Reserved messages into the history; the ids that were.
CREATE OR REPLACE FUNCTION {schema}.finalize_many(queue text, ids bigint[], note text DEFAULT NULL,
    consumer bigint DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_now timestamptz := clock_timestamp();
    v_xid xid8 := pg_current_xact_id();
    v_got integer;
BEGIN
    SELECT q.id INTO v_queue FROM {schema}.queues q WHERE q.name = queue;
    RETURN QUERY
    WITH gone AS (
        DELETE FROM {schema}.messages m
        WHERE m.id = ANY (ids) AND m.state = 1 AND m.queue_id = v_queue AND m.owner IS NOT DISTINCT FROM consumer
        RETURNING m.*
    )
    INSERT INTO {schema}.messages_history AS h (id, owner, ready_at, reserved_at, reserved_until, expires_at, queue_id,
        deliveries, state, reserved_by, reserved_ip, exchange, routing_key, properties, payload, note, finalized_at,
        finalized_note, xid)
    SELECT id, owner, ready_at, reserved_at, reserved_until, expires_at, queue_id, deliveries, state, reserved_by,
           reserved_ip, exchange, routing_key, properties, payload, note, v_now, finalize_many.note, v_xid
    FROM gone
    RETURNING h.id;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    IF v_got > 0 THEN
        INSERT INTO {schema}.stats_deltas (queue_id, reserved, finalized) VALUES (v_queue, -v_got, v_got);
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}.finalize_many(text, bigint[], text, bigint) IS
    'Moves reserved messages into the history with a note; returns the ids that were reserved so.';

-- One of them and its row there, or an error.
CREATE OR REPLACE FUNCTION {schema}.finalize(queue text, id bigint, note text DEFAULT NULL, consumer bigint DEFAULT NULL)
RETURNS {schema}.messages_history LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_row {schema}.messages_history;
BEGIN
    WITH gone AS (
        DELETE FROM {schema}.messages m
        USING {schema}.queues q
        WHERE m.id = finalize.id AND m.state = 1 AND q.name = queue AND m.queue_id = q.id
          AND m.owner IS NOT DISTINCT FROM consumer
        RETURNING m.*
    )
    INSERT INTO {schema}.messages_history AS h (id, owner, ready_at, reserved_at, reserved_until, expires_at, queue_id,
        deliveries, state, reserved_by, reserved_ip, exchange, routing_key, properties, payload, note, finalized_at,
        finalized_note, xid)
    SELECT g.id, g.owner, g.ready_at, g.reserved_at, g.reserved_until, g.expires_at, g.queue_id, g.deliveries, g.state,
           g.reserved_by, g.reserved_ip, g.exchange, g.routing_key, g.properties, g.payload, g.note, clock_timestamp(),
           finalize.note, pg_current_xact_id()
    FROM gone g
    RETURNING h.* INTO v_row;
    IF v_row.id IS NULL THEN
        RAISE EXCEPTION 'message % of queue "%" is not reserved%', finalize.id, queue,
            coalesce(' by consumer ' || consumer::text, ', or a consumer has reserved it')
            USING ERRCODE = 'no_data_found',
            HINT = 'It was settled before, or its lease ran out, or another has it. Who has reserved with a number '
                   'finalizes with it: consumer => NUMBER.';
    END IF;
    INSERT INTO {schema}.stats_deltas (queue_id, reserved, finalized) VALUES (v_row.queue_id, -1, 1);
    RETURN v_row;
END $body$;
COMMENT ON FUNCTION {schema}.finalize(text, bigint, text, bigint) IS
    'Moves a reserved message into the history with a note, and returns its row there; raises when it is not reserved so.';

-- Finalize, then reserve, in one round trip and one commit.
CREATE OR REPLACE FUNCTION {schema}.finalize_and_reserve(queue text, ids bigint[], note text, count integer, consumer bigint,
    lease interval, relative_top integer DEFAULT NULL, floor bigint DEFAULT 0)
RETURNS SETOF {schema}.messages LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM {schema}.finalize_many(queue, ids, note, consumer);
    RETURN QUERY SELECT * FROM {schema}.reserve(queue, count, consumer, lease, relative_top, floor);
END $body$;
COMMENT ON FUNCTION {schema}.finalize_and_reserve(text, bigint[], text, integer, bigint, interval, integer, bigint) IS
    'finalize_many, then reserve, in one call.';

-- Back to ready, or to scheduled when there is a delay. seen = false: nobody has looked at it, the delivery is not counted.
CREATE OR REPLACE FUNCTION {schema}.requeue(queue text, ids bigint[], consumer bigint DEFAULT NULL,
    delay interval DEFAULT NULL, note text DEFAULT NULL, seen boolean DEFAULT true)
RETURNS SETOF bigint LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_later boolean := coalesce(delay > interval '0', false);
    v_got integer;
BEGIN
    PERFORM {schema}._check_span('delay', delay);
    SELECT q.id INTO v_queue FROM {schema}.queues q WHERE q.name = queue;
    RETURN QUERY
    WITH back AS (
        UPDATE {schema}.messages m
        SET state = CASE WHEN v_later THEN 2 ELSE 0 END,
            ready_at = CASE WHEN v_later THEN clock_timestamp() + delay ELSE m.ready_at END,
            deliveries = m.deliveries - CASE WHEN seen THEN 0 ELSE 1 END, note = coalesce(requeue.note, m.note),
            reserved_at = NULL, reserved_until = NULL, reserved_by = NULL, reserved_ip = NULL, owner = NULL
        WHERE m.id = ANY (ids) AND m.state = 1 AND m.queue_id = v_queue AND m.owner IS NOT DISTINCT FROM consumer
        RETURNING m.id
    )
    SELECT id FROM back ORDER BY id;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    IF v_got > 0 THEN
        INSERT INTO {schema}.stats_deltas (queue_id, ready, scheduled, reserved)
        VALUES (v_queue, CASE WHEN v_later THEN 0 ELSE v_got END, CASE WHEN v_later THEN v_got ELSE 0 END, -v_got);
        PERFORM {schema}._wake(v_queue, {schema}._in_transaction());
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}.requeue(text, bigint[], bigint, interval, text, boolean) IS
    'Gives reserved messages back to their places, at once or after a delay; returns the ids that were reserved so.';

-- Aside, until somebody kicks them.
CREATE OR REPLACE FUNCTION {schema}.bury(queue text, ids bigint[], note text DEFAULT NULL, consumer bigint DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_got integer;
BEGIN
    SELECT q.id INTO v_queue FROM {schema}.queues q WHERE q.name = queue;
    RETURN QUERY
    WITH aside AS (
        UPDATE {schema}.messages m
        SET state = 3, note = coalesce(bury.note, m.note), reserved_until = NULL, owner = NULL
        WHERE m.id = ANY (ids) AND m.state = 1 AND m.queue_id = v_queue AND m.owner IS NOT DISTINCT FROM consumer
        RETURNING m.id
    )
    SELECT id FROM aside ORDER BY id;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    IF v_got > 0 THEN
        INSERT INTO {schema}.stats_deltas (queue_id, reserved, buried) VALUES (v_queue, -v_got, v_got);
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}.bury(text, bigint[], text, bigint) IS
    'Puts reserved messages aside until kick; returns the ids that were reserved so.';

-- Buried ones become ready again, oldest first.
CREATE OR REPLACE FUNCTION {schema}.kick(queue text, count integer DEFAULT 1) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_got integer;
BEGIN
    PERFORM {schema}._check_count(kick.count);
    SELECT q.id INTO v_queue FROM {schema}.queues q WHERE q.name = queue;
    UPDATE {schema}.messages m
    SET state = 0, reserved_at = NULL, reserved_by = NULL, reserved_ip = NULL
    FROM (
        SELECT r.ctid FROM {schema}.messages r WHERE r.queue_id = v_queue AND r.state = 3
        ORDER BY r.id LIMIT kick.count FOR UPDATE SKIP LOCKED
    ) s
    WHERE m.ctid = s.ctid;
    GET DIAGNOSTICS v_got = ROW_COUNT;
    IF v_got > 0 THEN
        INSERT INTO {schema}.stats_deltas (queue_id, ready, buried) VALUES (v_queue, v_got, -v_got);
        PERFORM {schema}._wake(v_queue, {schema}._in_transaction());
    END IF;
    RETURN v_got;
END $body$;
COMMENT ON FUNCTION {schema}.kick(text, integer) IS
    'Makes up to count buried messages ready, oldest first; returns how many.';

-- A lease from now on.
CREATE OR REPLACE FUNCTION {schema}.touch(queue text, ids bigint[], lease interval, consumer bigint DEFAULT NULL)
RETURNS SETOF bigint LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
BEGIN
    IF lease IS NULL THEN
        RAISE EXCEPTION 'the lease is NULL' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Give an interval, for example interval ''5 minutes''.';
    END IF;
    PERFORM {schema}._check_span('lease', lease);
    RETURN QUERY
    WITH kept AS (
        UPDATE {schema}.messages m SET reserved_until = clock_timestamp() + lease
        WHERE m.id = ANY (ids) AND m.state = 1 AND m.owner IS NOT DISTINCT FROM consumer
          AND m.queue_id = (SELECT q.id FROM {schema}.queues q WHERE q.name = queue)
        RETURNING m.id
    )
    SELECT id FROM kept ORDER BY id;
END $body$;
COMMENT ON FUNCTION {schema}.touch(text, bigint[], interval, bigint) IS
    'Has reservations last for a lease from now on; returns the ids that were reserved so.';
