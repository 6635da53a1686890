-- Queues by name, the checks that every verb makes, and waking. Names with an underscore in front are for this schema only.
--
-- In all these files: whoever may make functions in a schema of the caller's search_path must not get one of his called
-- from here. What is called often does not set the search_path, which costs as much as half of the work. Instead every
-- operator gets exactly the types that PostgreSQL has it for, and functions are named with pg_catalog where another one
-- could fit better than PostgreSQL's own: those of any type or of any number of arguments, and literals that are cast.
-- What is called rarely sets the search_path. The multi-argument unnest is the parser's, and safe as it is.

-- Refuses what cannot be the name of a queue.
CREATE OR REPLACE FUNCTION {schema}._check_queue(queue text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    IF queue IS NULL OR queue = '' THEN
        RAISE EXCEPTION 'the queue has no name' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give the name of a queue, for example ''orders''.';
    END IF;
    IF octet_length(queue) > 1024 THEN
        RAISE EXCEPTION 'the name of the queue has % bytes', octet_length(queue)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'A name has 1,024 bytes at most.';
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}._check_queue(text) IS 'Raises when this cannot be the name of a queue.';

-- How many messages one call may move: more would hold locks and memory for too long.
CREATE OR REPLACE FUNCTION {schema}._check_count(count integer) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    IF count IS NULL OR count < 1 OR count > 10000 THEN
        RAISE EXCEPTION 'count is %', coalesce(count::text, 'NULL') USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Ask for 1 to 10,000 messages in one call.';
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}._check_count(integer) IS 'Raises when this is not a number of messages for one call.';

-- A span of time that may be NULL, but not lie in the past.
CREATE OR REPLACE FUNCTION {schema}._check_span(what text, span interval)
RETURNS void LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    IF span < interval '0' THEN
        RAISE EXCEPTION 'the % is negative: %', what, span USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give an interval from 0 upwards, for example interval ''5 minutes''.';
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}._check_span(text, interval) IS 'Raises when a lease, delay, grace or ttl is negative.';

-- The NOTIFY channel that a queue of this name gets. PostgreSQL allows 63 bytes. Above that a hash, with another
-- prefix, so that no queue's own name can be equal to it.
CREATE OR REPLACE FUNCTION {schema}._channel(queue text) RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE WHEN octet_length('penstock.' || queue) <= 63 THEN 'penstock.' || queue
                ELSE 'penstock#' || left(encode(sha256(pg_catalog.convert_to(queue, 'UTF8')), 'hex'), 40) END
$body$;
COMMENT ON FUNCTION {schema}._channel(text) IS 'The NOTIFY channel of a queue of this name, 63 bytes at most.';

-- The queue's number; makes the queue if it is not there. Two that do so at once get the same: the second waits for the
-- first one's transaction. `ordering` changes the queue when it is given.
CREATE OR REPLACE FUNCTION {schema}.use_queue(queue text, ordering text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_id integer;
    v_ordering text;
BEGIN
    PERFORM {schema}._check_queue(queue);
    IF use_queue.ordering NOT IN ('fuzzy', 'strict') THEN
        RAISE EXCEPTION 'there is no ordering "%"', use_queue.ordering USING ERRCODE = 'invalid_parameter_value',
            HINT = 'It is ''fuzzy'' or ''strict''.';
    END IF;
    LOOP
        SELECT q.id, q.ordering INTO v_id, v_ordering FROM {schema}.queues q WHERE q.name = queue;
        IF FOUND THEN
            IF use_queue.ordering <> v_ordering THEN
                UPDATE {schema}.queues q SET ordering = use_queue.ordering WHERE q.id = v_id;
            END IF;
            RETURN v_id;
        END IF;
        INSERT INTO {schema}.queues (name, ordering, channel)
        VALUES (queue, coalesce(use_queue.ordering, 'fuzzy'), {schema}._channel(queue))
        ON CONFLICT (name) DO NOTHING RETURNING id INTO v_id;
        IF FOUND THEN
            RETURN v_id;
        END IF;
    END LOOP;
END $body$;
COMMENT ON FUNCTION {schema}.use_queue(text, text) IS
    'Makes the queue if it is not there, and returns its number. ordering: fuzzy (default) or strict; NULL leaves it.';

-- What to LISTEN to (quoted as an identifier) for messages of this queue. The queue need not exist.
CREATE OR REPLACE FUNCTION {schema}.channel_of(queue text) RETURNS text LANGUAGE plpgsql STABLE AS $body$
BEGIN
    PERFORM {schema}._check_queue(queue);
    RETURN {schema}._channel(queue);
END $body$;
COMMENT ON FUNCTION {schema}.channel_of(text) IS 'The NOTIFY channel of a queue; quote it as an identifier in LISTEN.';

-- The class of our advisory locks. It is made from a table's own number, so that two schemas in one database differ, and
-- lies in a range that nobody gets by counting. Second keys: participants above 0, the sweeper 0, strict queues below 0.
CREATE OR REPLACE FUNCTION {schema}._lock_class() RETURNS integer LANGUAGE sql STABLE AS $body$
    SELECT (1342177280 + ('{schema}.participants'::regclass::oid::bigint & 268435455::bigint))::integer
$body$;
COMMENT ON FUNCTION {schema}._lock_class() IS 'The first key of this schema''s advisory locks.';

-- The class of the locks by which drop_queue waits for puts that are not committed yet. Second key: a hash of the name.
CREATE OR REPLACE FUNCTION {schema}._put_class() RETURNS integer LANGUAGE sql STABLE AS $body$
    SELECT {schema}._lock_class() + 268435456
$body$;
COMMENT ON FUNCTION {schema}._put_class() IS 'The first key of the locks between put and drop_queue.';

-- The queue's number for a put. It cannot be dropped from here on until the caller's transaction has ended: there is no
-- foreign key, and a row without its queue would be lost.
CREATE OR REPLACE FUNCTION {schema}._hold_queue(queue text) RETURNS integer LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_id integer;
BEGIN
    -- By name, and first: what is looked up afterwards is not dropped any more.
    PERFORM pg_advisory_xact_lock_shared({schema}._put_class(), hashtext(queue));
    SELECT q.id INTO v_id FROM {schema}.queues q WHERE q.name = queue;
    IF NOT FOUND THEN
        RETURN {schema}.use_queue(queue);
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- An older snapshot may still show a queue that was dropped. This raises a serialization failure then.
        PERFORM 1 FROM {schema}.queues q WHERE q.id = v_id FOR KEY SHARE;
    END IF;
    RETURN v_id;
END $body$;
COMMENT ON FUNCTION {schema}._hold_queue(text) IS
    'The number of a queue, made if need be, that is not dropped before this transaction has ended.';

-- Whether this call may stand in a transaction that the caller has begun before. Drivers send a statement in steps, and
-- its transaction begins with the first of them, so it looks older than the statement even if it is nothing but that
-- statement. A session that never begins transactions can say so: SET penstock.autocommit = on.
CREATE OR REPLACE FUNCTION {schema}._in_transaction() RETURNS boolean LANGUAGE sql STABLE AS $body$
    SELECT now() <> statement_timestamp() AND current_setting('penstock.autocommit', true) IS DISTINCT FROM 'on'
$body$;
COMMENT ON FUNCTION {schema}._in_transaction() IS
    'Whether the caller may be in a transaction that is more than this statement.';

-- NOTIFY serialises commits, so it is only sent when somebody waits, or when the caller says so because its transaction
-- may commit much later: who waits by then cannot be known. PostgreSQL itself sends equal ones once.
-- The payload is the number of one who waits: all hear it, he looks at once, the others a moment later. Were all of them to
-- look for one message, all but one would look in vain. An empty payload is for all.
CREATE OR REPLACE FUNCTION {schema}._wake(queue_id integer, surely boolean) RETURNS void LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_one bigint;
BEGIN
    IF NOT surely THEN
        -- Some of them are enough to choose from, however many wait.
        SELECT s.id INTO v_one FROM (
            SELECT p.id FROM {schema}.participants p WHERE p.queue_id = _wake.queue_id AND p.waiting LIMIT 16
        ) s ORDER BY random() LIMIT 1;
        IF v_one IS NULL THEN
            RETURN;
        END IF;
    END IF;
    PERFORM pg_notify(q.channel, coalesce(v_one::text, '')) FROM {schema}.queues q WHERE q.id = _wake.queue_id;
END $body$;
COMMENT ON FUNCTION {schema}._wake(integer, boolean) IS 'Notifies the consumers of a queue, and names one, if one waits; all, if surely.';
