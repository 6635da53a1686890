-- The history's partitions, one a day in UTC. They are made ahead of time and dropped when they are old. Names of tables
-- are put together here and only here: from a date.

-- Whether a day has its partition; makes it if not. A day that has rows in the default partition stays there: moving
-- them would need a lock that finalize waits for. Attaching, unlike CREATE .. PARTITION OF, does not.
CREATE OR REPLACE FUNCTION {schema}._make_day(day date)
RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $body$
#variable_conflict use_column
DECLARE
    v_name text := 'messages_history_' || to_char(day, 'YYYYMMDD');
    v_from timestamptz := day::timestamp AT TIME ZONE 'UTC';
    v_to timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = '{schema}.messages_history'::regclass AND c.relname = v_name)
       OR EXISTS (SELECT 1 FROM {schema}.messages_history_other o WHERE o.finalized_at >= v_from AND o.finalized_at < v_to) THEN
        RETURN 0;
    END IF;
    EXECUTE format('CREATE TABLE {schema}.%I (LIKE {schema}.messages_history INCLUDING ALL)', v_name);
    EXECUTE format('ALTER TABLE {schema}.messages_history ATTACH PARTITION {schema}.%I FOR VALUES FROM (%L) TO (%L)',
                   v_name, v_from, v_to);
    RETURN 1;
EXCEPTION WHEN lock_not_available OR check_violation OR insufficient_privilege OR duplicate_table THEN
    -- Somebody reads or writes the default partition just now, or this role may not make tables, or somebody has detached
    -- the day's table: the next sweep may do better. There is time, days are made ahead; and a day without a partition is kept in the default one.
    RETURN 0;
END $body$;
COMMENT ON FUNCTION {schema}._make_day(date) IS
    'Makes the history''s partition of a day if it can; returns 1 if it did.';

-- Counts first, with a lock that only writers of that day would mind, and there are none; then drops.
CREATE OR REPLACE FUNCTION {schema}._drop_day(name text) RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' SET jit = off AS $body$
BEGIN
    EXECUTE format('LOCK TABLE {schema}.%I IN SHARE MODE', name);
    EXECUTE format('INSERT INTO {schema}.stats_deltas (queue_id, finalized) '
                   'SELECT queue_id, -count(*) FROM {schema}.%I GROUP BY queue_id', name);
    EXECUTE format('DROP TABLE {schema}.%I', name);
    RETURN 1;
EXCEPTION WHEN lock_not_available OR insufficient_privilege OR dependent_objects_still_exist OR undefined_table THEN
    -- Somebody reads it, or has built a view on it: it stays until he has done with it. What else is to be swept goes on.
    RETURN 0;
END $body$;
COMMENT ON FUNCTION {schema}._drop_day(text) IS
    'Drops a partition of the history and takes it out of the counts; returns 1 if it did.';

-- Today's and the next three days' partitions, and what is older than settings.history_days.
CREATE OR REPLACE FUNCTION {schema}.keep_history() RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off AS $body$
#variable_conflict use_column
DECLARE
    v_today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    v_first date;
    v_name text;
    v_changed integer := 0;
BEGIN
    -- Not while somebody counts the history.
    PERFORM pg_advisory_xact_lock({schema}._lock_class(), 0);
    FOR v_ahead IN 0..3 LOOP
        v_changed := v_changed + {schema}._make_day(v_today + v_ahead);
    END LOOP;
    SELECT v_today - s.history_days INTO v_first FROM {schema}.settings s;
    IF v_first IS NULL THEN
        RETURN v_changed;
    END IF;
    FOR v_name IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = '{schema}.messages_history'::regclass AND c.relname ~ '^messages_history_[0-9]{8}$'
          AND to_date(right(c.relname, 8), 'YYYYMMDD') < v_first
        ORDER BY c.relname
    LOOP
        v_changed := v_changed + {schema}._drop_day(v_name);
    END LOOP;
    WITH gone AS (
        DELETE FROM {schema}.messages_history_other o WHERE o.finalized_at < v_first::timestamp AT TIME ZONE 'UTC'
        RETURNING o.queue_id
    )
    INSERT INTO {schema}.stats_deltas (queue_id, finalized) SELECT queue_id, -count(*) FROM gone GROUP BY queue_id;
    RETURN v_changed;
END $body$;
COMMENT ON FUNCTION {schema}.keep_history() IS
    'Makes the history''s partitions of the next days and drops those older than settings.history_days; returns how many.';
