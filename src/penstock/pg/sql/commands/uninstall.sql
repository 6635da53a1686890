-- Removes everything that is in the schema, and the schema. Nothing is dropped along: if a view or a table of somebody
-- else's depends on something here, this fails and says what it is.
DO $body$
DECLARE
    v_function regprocedure;
BEGIN
    FOR v_function IN
        SELECT p.oid FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace AND p.prorettype <> 'trigger'::regtype
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_function);
    END LOOP;
END $body$;
DROP VIEW {schema}.stats, {schema}.queue_stats;
DROP TABLE {schema}.messages_history, {schema}.messages, {schema}.queues, {schema}.stats_totals, {schema}.stats_deltas,
    {schema}.participants, {schema}.schedules, {schema}.settings, {schema}.upkeep, {schema}.migrations;
DROP SEQUENCE {schema}.message_ids, {schema}.participant_ids;
DROP FUNCTION {schema}._refuse_update();
DROP SCHEMA {schema};
