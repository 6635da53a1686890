-- Who is attached to a queue, and how one knows that it is alive: by the session's advisory lock on its number.

-- The second key of a participant's lock.
CREATE OR REPLACE FUNCTION {schema}._lock_key(participant bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS $body$
    SELECT (participant % 2147483647::bigint + 1)::integer
$body$;
COMMENT ON FUNCTION {schema}._lock_key(bigint) IS 'The second key of a participant''s advisory lock.';

-- The second keys of all our locks that somebody holds.
CREATE OR REPLACE FUNCTION {schema}._held_keys() RETURNS integer[] LANGUAGE sql VOLATILE AS $body$
    SELECT coalesce(pg_catalog.array_agg(DISTINCT l.objid::bigint::integer), '{}') FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.classid = {schema}._lock_class()::oid AND l.objsubid = 2 AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.objid::bigint BETWEEN 1 AND 2147483647
$body$;
COMMENT ON FUNCTION {schema}._held_keys() IS 'The second keys of the participants'' locks that are held.';

-- Counts the participants of a queue into the totals, where reserve looks. The rows are locked before the participants
-- are looked at: of two who attach at once the second sees the first.
CREATE OR REPLACE FUNCTION {schema}._count_participants(queue_id integer) RETURNS void LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    -- Not for a queue that was dropped meanwhile: nobody would remove the rows.
    INSERT INTO {schema}.stats_totals AS t (queue_id, name, value)
    SELECT q.id, n.name, 0 FROM {schema}.queues q, (VALUES ('consumers'), ('producers')) AS n (name)
    WHERE q.id = _count_participants.queue_id ORDER BY n.name
    ON CONFLICT (queue_id, name) DO UPDATE SET value = t.value;
    UPDATE {schema}.stats_totals t
    SET value = (SELECT count(*) FROM {schema}.participants p WHERE p.queue_id = t.queue_id AND p.role || 's' = t.name)
    WHERE t.queue_id = _count_participants.queue_id AND t.name IN ('consumers', 'producers');
END $body$;
COMMENT ON FUNCTION {schema}._count_participants(integer) IS 'Counts the participants of a queue into the totals.';

-- The lock is shared: a number that is taken up again may still be locked by the connection that broke.
CREATE OR REPLACE FUNCTION {schema}.attach(queue text, role text, grace interval, lease interval DEFAULT NULL,
                                           again bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
    v_id bigint;
    v_name text;
BEGIN
    IF attach.role IS NULL OR attach.role NOT IN ('producer', 'consumer') THEN
        RAISE EXCEPTION 'there is no role "%"', coalesce(attach.role, 'NULL') USING ERRCODE = 'invalid_parameter_value',
            HINT = 'It is ''producer'' or ''consumer''.';
    END IF;
    PERFORM {schema}._check_span('grace', attach.grace), {schema}._check_span('lease', attach.lease);
    v_queue := {schema}.use_queue(queue);
    -- First the lock, then the row: a row without a lock belongs to nobody.
    IF again IS NOT NULL AND pg_try_advisory_lock_shared({schema}._lock_class(), {schema}._lock_key(again)) THEN
        UPDATE {schema}.participants p
        SET pid = pg_backend_pid(), ip = inet_client_addr(), seen_at = clock_timestamp(), waiting = false,
            grace = coalesce(attach.grace, p.grace), lease = attach.lease
        WHERE p.id = again AND p.queue_id = v_queue AND p.role = attach.role RETURNING p.name INTO v_name;
        IF FOUND THEN
            PERFORM set_config('application_name', v_name, false);
            RETURN again;
        END IF;
        PERFORM pg_advisory_unlock_shared({schema}._lock_class(), {schema}._lock_key(again));
    END IF;
    -- A number whose lock is somebody else's by accident is passed over.
    LOOP
        v_id := pg_catalog.nextval('{schema}.participant_ids');
        EXIT WHEN pg_try_advisory_lock_shared({schema}._lock_class(), {schema}._lock_key(v_id));
    END LOOP;
    v_name := left(pg_catalog.format('penstock %s %s %s', attach.role, v_id, queue), 63);
    WHILE octet_length(v_name) > 63 LOOP
        v_name := left(v_name, -1);
    END LOOP;
    INSERT INTO {schema}.participants (id, queue_id, role, name, pid, ip, attached_at, seen_at, grace, lease)
    VALUES (v_id, v_queue, attach.role, v_name, pg_backend_pid(), inet_client_addr(), clock_timestamp(), clock_timestamp(),
            coalesce(attach.grace, interval '0'), attach.lease);
    PERFORM set_config('application_name', v_name, false);
    PERFORM {schema}._count_participants(v_queue);
    RETURN v_id;
END $body$;
COMMENT ON FUNCTION {schema}.attach(text, text, interval, interval, bigint) IS
    'Makes this session a producer or consumer of the queue and returns its number. grace: how long it may be without a '
    'connection. lease: how long it may be without calling seen. again: take up this number after a broken connection.';

-- Leaves; what was reserved goes back.
CREATE OR REPLACE FUNCTION {schema}.detach(participant bigint) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_column
DECLARE
    v_queue integer;
BEGIN
    PERFORM {schema}._give_back(ARRAY[participant]);
    DELETE FROM {schema}.participants p WHERE p.id = participant RETURNING p.queue_id INTO v_queue;
    IF FOUND THEN
        PERFORM {schema}._count_participants(v_queue);
    END IF;
    IF EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid()
               AND l.classid = {schema}._lock_class()::oid AND l.objid = {schema}._lock_key(participant)::oid
               AND l.mode = 'ShareLock') THEN
        PERFORM pg_advisory_unlock_shared({schema}._lock_class(), {schema}._lock_key(participant));
    END IF;
END $body$;
COMMENT ON FUNCTION {schema}.detach(bigint) IS 'A participant leaves; what it has reserved becomes ready.';

-- A sign of life. It is written down ten times per lease or grace at most: while an old snapshot is held, every version of
-- the row stays, and whoever puts or reserves walks over them. Beat three times per lease, or oftener.
CREATE OR REPLACE FUNCTION {schema}.seen(participant bigint) RETURNS boolean LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    UPDATE {schema}.participants p SET seen_at = clock_timestamp()
    WHERE p.id = participant
      AND clock_timestamp() >= p.seen_at + least(p.lease, nullif(p.grace, interval '0'), interval '10 minutes') / 10::float8;
    RETURN FOUND OR EXISTS (SELECT 1 FROM {schema}.participants p WHERE p.id = participant);
END $body$;
COMMENT ON FUNCTION {schema}.seen(bigint) IS
    'A sign of life; false when the participant was taken for gone: attach again.';

-- Whether a put is to notify. Nothing is written when nothing changes.
CREATE OR REPLACE FUNCTION {schema}.set_waiting(participant bigint, waiting boolean)
RETURNS void LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    UPDATE {schema}.participants p SET waiting = set_waiting.waiting, seen_at = clock_timestamp()
    WHERE p.id = participant AND p.waiting <> set_waiting.waiting;
END $body$;
COMMENT ON FUNCTION {schema}.set_waiting(bigint, boolean) IS
    'A consumer says whether it waits for notifications. After saying so it looks once more before it waits.';
