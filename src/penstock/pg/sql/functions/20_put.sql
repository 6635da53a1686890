-- Putting messages. All of it is part of the caller's transaction: rolled back, it leaves nothing.

-- A message has a payload.
CREATE OR REPLACE FUNCTION {schema}._check_payloads(payloads bytea[]) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    IF payloads IS NULL OR pg_catalog.array_position(payloads, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'a payload is NULL' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'An empty message has the payload ''''.';
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}._check_payloads(bytea[]) IS 'Raises when a payload is NULL.';

-- One message of bytes. In the future: scheduled until then. Written out rather than put together from other functions:
-- what is called once per message costs once per message.
CREATE OR REPLACE FUNCTION {schema}.put(queue text, payload bytea, ready_at timestamptz DEFAULT NULL,
                                        ttl interval DEFAULT NULL) RETURNS {schema}.messages
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_channel text;
    v_one bigint;
    v_now timestamptz := clock_timestamp();
    v_ready_at timestamptz := coalesce(put.ready_at, v_now);
    v_later integer := (v_ready_at > v_now)::integer;
    v_row {schema}.messages;
BEGIN
    IF put.payload IS NULL OR ttl < interval '0' THEN
        PERFORM {schema}._check_payloads(ARRAY[put.payload]), {schema}._check_span('ttl', ttl);
    END IF;
    -- As in _hold_queue.
    IF NOT pg_try_advisory_xact_lock_shared({schema}._put_class(), hashtext(queue)) THEN
        PERFORM {schema}._hold_queue(queue);
    END IF;
    SELECT q.id, q.channel, (
        SELECT s.id FROM (
            SELECT p.id FROM {schema}.participants p WHERE p.queue_id = q.id AND p.waiting LIMIT 16
        ) s ORDER BY random() LIMIT 1
    ) INTO v_queue, v_channel, v_one FROM {schema}.queues q WHERE q.name = queue;
    IF v_queue IS NULL OR current_setting('transaction_isolation') <> 'read committed' THEN
        v_queue := {schema}._hold_queue(queue);
        v_channel := {schema}._channel(queue);
    END IF;
    INSERT INTO {schema}.messages AS m (id, queue_id, state, ready_at, expires_at, payload)
    VALUES (pg_catalog.nextval('{schema}.message_ids'), v_queue, 2 * v_later, v_ready_at, v_ready_at + ttl, put.payload)
    RETURNING m.* INTO v_row;
    INSERT INTO {schema}.stats_deltas (queue_id, ready, scheduled) VALUES (v_queue, 1 - v_later, v_later);
    -- As in _wake.
    IF {schema}._in_transaction() THEN
        PERFORM pg_notify(v_channel, '');
    ELSIF v_one IS NOT NULL THEN
        PERFORM pg_notify(v_channel, v_one::text);
    END IF;
    RETURN v_row;
END $body$;
COMMENT ON FUNCTION {schema}.put(text, bytea, timestamptz, interval) IS
    'Puts one message and returns its row. ready_at: not before then. ttl: stored as expires_at.';

-- One message of text, stored as UTF-8.
CREATE OR REPLACE FUNCTION {schema}.put(queue text, payload text, ready_at timestamptz DEFAULT NULL,
                                        ttl interval DEFAULT NULL) RETURNS {schema}.messages
LANGUAGE sql AS $body$
    SELECT * FROM {schema}.put(queue, pg_catalog.convert_to(payload, 'UTF8'), ready_at, ttl)
$body$;
COMMENT ON FUNCTION {schema}.put(text, text, timestamptz, interval) IS
    'Puts one message of text, as UTF-8, and returns its row. ready_at: not before then. ttl: stored as expires_at.';

-- Many messages for one queue, all or none. Their ids rise in the order of the array.
CREATE OR REPLACE FUNCTION {schema}.put_many(queue text, payloads bytea[], ready_at timestamptz DEFAULT NULL,
                                             ttl interval DEFAULT NULL) RETURNS SETOF bigint
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_now timestamptz := clock_timestamp();
    v_ready_at timestamptz := coalesce(put_many.ready_at, v_now);
    v_state smallint := CASE WHEN put_many.ready_at > v_now THEN 2 ELSE 0 END;
    v_count integer := pg_catalog.cardinality(payloads);
BEGIN
    PERFORM {schema}._check_payloads(payloads);
    PERFORM {schema}._check_span('ttl', ttl);
    v_queue := {schema}._hold_queue(queue);
    IF v_count = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
        INSERT INTO {schema}.messages AS m (id, queue_id, state, ready_at, expires_at, payload)
        SELECT pg_catalog.nextval('{schema}.message_ids'), v_queue, v_state, v_ready_at, v_ready_at + put_many.ttl, p.payload
        FROM pg_catalog.unnest(payloads) AS p (payload)
        RETURNING m.id;
    INSERT INTO {schema}.stats_deltas (queue_id, ready, scheduled)
    VALUES (v_queue, CASE v_state WHEN 0 THEN v_count ELSE 0 END, CASE v_state WHEN 2 THEN v_count ELSE 0 END);
    PERFORM {schema}._wake(v_queue, {schema}._in_transaction());
END $body$;
COMMENT ON FUNCTION {schema}.put_many(text, bytea[], timestamptz, interval) IS
    'Puts messages, all or none, and returns their ids in order.';

-- Like _hold_queue, for numbers; raises when one of them is no queue.
CREATE OR REPLACE FUNCTION {schema}._hold_queues(queue_ids integer[]) RETURNS void LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_missing integer[];
BEGIN
    IF pg_catalog.cardinality(queue_ids) > 256 THEN
        -- So many advisory locks would fill the server's lock table. This one keeps every queue from being dropped or made.
        LOCK TABLE {schema}.queues IN SHARE MODE;
    ELSE
        PERFORM pg_advisory_xact_lock_shared({schema}._put_class(), hashtext(q.name))
        FROM {schema}.queues q WHERE q.id = ANY (queue_ids);
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- As in _hold_queue: an older snapshot may still show a queue that was dropped.
        PERFORM 1 FROM {schema}.queues q WHERE q.id = ANY (queue_ids) FOR KEY SHARE;
    END IF;
    SELECT pg_catalog.array_agg(u.id) INTO v_missing FROM pg_catalog.unnest(queue_ids) AS u (id)
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.queues q WHERE q.id = u.id);
    IF v_missing IS NOT NULL THEN
        RAISE EXCEPTION 'there is no queue with the number %', coalesce(v_missing[1]::text, 'NULL')
            USING ERRCODE = 'undefined_object', HINT = 'It was dropped: get a new number from use_queue.';
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}._hold_queues(integer[]) IS
    'Keeps queues from being dropped before this transaction has ended; raises when one is not there.';

-- Messages for any queues, by their numbers: what a broker has gathered in one turn. The arrays stand beside each other.
CREATE OR REPLACE FUNCTION {schema}.put_rows(queue_ids integer[], payloads bytea[], exchanges text[], routing_keys text[],
                                             properties bytea[], expires_at timestamptz[], deliveries integer[])
RETURNS SETOF bigint LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_count integer := pg_catalog.cardinality(queue_ids);
    v_queues integer[];
BEGIN
    IF v_count IS NULL OR ROW(pg_catalog.cardinality(payloads), pg_catalog.cardinality(exchanges),
                              pg_catalog.cardinality(routing_keys), pg_catalog.cardinality(properties),
                              pg_catalog.cardinality(expires_at), pg_catalog.cardinality(deliveries))
       IS DISTINCT FROM ROW(v_count, v_count, v_count, v_count, v_count, v_count) THEN
        RAISE EXCEPTION 'the arrays differ in length' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give seven arrays with one element per message each; elements other than queue and payload may be NULL.';
    END IF;
    PERFORM {schema}._check_payloads(payloads);
    SELECT pg_catalog.array_agg(DISTINCT u.id) INTO v_queues FROM pg_catalog.unnest(queue_ids) AS u (id);
    PERFORM {schema}._hold_queues(v_queues);
    RETURN QUERY
        INSERT INTO {schema}.messages AS m (id, queue_id, state, ready_at, expires_at, deliveries, exchange, routing_key,
                                            properties, payload)
        SELECT pg_catalog.nextval('{schema}.message_ids'), r.queue_id, 0, v_now, r.expires_at, coalesce(r.deliveries, 0), r.exchange,
               r.routing_key, r.properties, r.payload
        FROM unnest(queue_ids, payloads, exchanges, routing_keys, put_rows.properties, put_rows.expires_at,
                    put_rows.deliveries)
             AS r (queue_id, payload, exchange, routing_key, properties, expires_at, deliveries)
        RETURNING m.id;
    INSERT INTO {schema}.stats_deltas (queue_id, ready)
    SELECT u.id, count(*) FROM pg_catalog.unnest(queue_ids) AS u (id) GROUP BY u.id;
    PERFORM {schema}._wake(u.id, {schema}._in_transaction()) FROM pg_catalog.unnest(v_queues) AS u (id);
END $body$;
COMMENT ON FUNCTION {schema}.put_rows(integer[], bytea[], text[], text[], bytea[], timestamptz[], integer[]) IS
    'Puts messages into queues given by number, all or none, and returns their ids in order.';

-- Of all who put the same slot of a schedule, or an earlier one, only the first does. A slot whose
-- transaction is rolled back is free.
CREATE OR REPLACE FUNCTION {schema}.put_at_slot(schedule text, slot timestamptz, queue text, payload bytea)
RETURNS bigint
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    IF schedule IS NULL OR schedule = '' OR put_at_slot.slot IS NULL THEN
        RAISE EXCEPTION 'a schedule needs a name and a slot' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'The slot is the time at which the entry is due, the same for all who put it.';
    END IF;
    INSERT INTO {schema}.schedules AS s (name, slot) VALUES (schedule, put_at_slot.slot)
    ON CONFLICT (name) DO UPDATE SET slot = EXCLUDED.slot WHERE s.slot < EXCLUDED.slot;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT p.id FROM {schema}.put(queue, payload) AS p);
END $body$;
COMMENT ON FUNCTION {schema}.put_at_slot(text, timestamptz, text, bytea) IS
    'Puts a message unless this slot of the schedule, or a later one, was put already; NULL then.';
