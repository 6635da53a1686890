-- Version 1: the tables. `{schema}` stands for the quoted name of the schema. A released file is never changed again:
-- what changes later comes as the next number. Functions are not here: every upgrade makes them anew.

-- Queues by name. The channel is where NOTIFY wakes its consumers.
CREATE TABLE {schema}.queues (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    ordering   text NOT NULL DEFAULT 'fuzzy' CHECK (ordering IN ('fuzzy', 'strict')),
    channel    text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE SEQUENCE {schema}.message_ids AS bigint CACHE 1;
CREATE SEQUENCE {schema}.participant_ids AS bigint CACHE 1;

-- Messages that are not finalized. Fixed-width columns first, so that a row has no padding.
-- state: 0 ready, 1 reserved, 2 scheduled, 3 buried.
-- There is no primary key on purpose: the planner would take it for ORDER BY id and walk over all that is reserved.
-- No fillfactor either: the state is in every index, so that no update can stay on its page's chain (HOT) anyway. Vacuum
-- comes early and does not pause instead.
CREATE TABLE {schema}.messages (
    id             bigint NOT NULL,
    owner          bigint,
    ready_at       timestamptz NOT NULL,
    reserved_at    timestamptz,
    reserved_until timestamptz,
    expires_at     timestamptz,
    queue_id       integer NOT NULL,
    deliveries     integer NOT NULL DEFAULT 0,
    state          smallint NOT NULL,
    reserved_by    text,
    reserved_ip    inet,
    exchange       text,
    routing_key    text,
    properties     bytea,
    payload        bytea NOT NULL,
    note           text
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = 100000, autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 50000
);
CREATE INDEX messages_ready ON {schema}.messages (queue_id, id) WHERE state = 0;
CREATE INDEX messages_reserved ON {schema}.messages (id) WHERE state = 1;
CREATE INDEX messages_scheduled ON {schema}.messages (queue_id, ready_at) WHERE state = 2;
CREATE INDEX messages_buried ON {schema}.messages (queue_id, id) WHERE state = 3;

-- What became of messages. A row is written once, by finalize, and goes with its day.
-- xid: for readers that follow commits; ids and times are not in the order of commits.
CREATE TABLE {schema}.messages_history (
    LIKE {schema}.messages,
    finalized_at   timestamptz NOT NULL,
    finalized_note text,
    xid            xid8 NOT NULL
) PARTITION BY RANGE (finalized_at);
CREATE TABLE {schema}.messages_history_other PARTITION OF {schema}.messages_history DEFAULT;
-- Every sweep looks whether something in there is old. It is all of the history where no partitions can be made.
CREATE INDEX messages_history_other_at ON {schema}.messages_history_other (finalized_at);

CREATE FUNCTION {schema}._refuse_update() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'the history is written once' USING ERRCODE = 'object_not_in_prerequisite_state',
        HINT = 'Put a new message instead; what is old goes by settings.history_days.';
END $body$;
COMMENT ON FUNCTION {schema}._refuse_update() IS 'Trigger of messages_history: its rows are never changed.';
CREATE TRIGGER written_once BEFORE UPDATE ON {schema}.messages_history
FOR EACH ROW EXECUTE FUNCTION {schema}._refuse_update();

-- Counts: what was folded, and the differences since then. Every call appends one row; no row is fought over.
CREATE TABLE {schema}.stats_totals (
    queue_id integer NOT NULL,
    name     text NOT NULL,
    value    bigint NOT NULL,
    PRIMARY KEY (queue_id, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE TABLE {schema}.stats_deltas (
    queue_id  integer NOT NULL,
    ready     integer NOT NULL DEFAULT 0,
    reserved  integer NOT NULL DEFAULT 0,
    scheduled integer NOT NULL DEFAULT 0,
    buried    integer NOT NULL DEFAULT 0,
    finalized bigint NOT NULL DEFAULT 0
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000
);

-- Who is attached to a queue. A participant holds the session's advisory lock on its number.
CREATE TABLE {schema}.participants (
    id          bigint PRIMARY KEY,
    queue_id    integer NOT NULL,
    role        text NOT NULL CHECK (role IN ('producer', 'consumer')),
    name        text NOT NULL,
    pid         integer NOT NULL,
    ip          inet,
    attached_at timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    grace       interval NOT NULL,
    lease       interval,
    waiting     boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX participants_queue ON {schema}.participants (queue_id);
CREATE INDEX participants_waiting ON {schema}.participants (queue_id) WHERE waiting;

-- The last slot of a cron entry that was put.
CREATE TABLE {schema}.schedules (
    name text PRIMARY KEY,
    slot timestamptz NOT NULL
);

-- One row. history_days: how long finalized messages are kept; NULL = for ever.
CREATE TABLE {schema}.settings (
    only_row     boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    history_days integer DEFAULT 30 CHECK (history_days >= 1)
);
INSERT INTO {schema}.settings DEFAULT VALUES;

-- When a task of the sweeper ran last and how long it took: one that takes long is done more rarely.
CREATE TABLE {schema}.upkeep (
    task   text PRIMARY KEY,
    ran_at timestamptz NOT NULL,
    took   interval NOT NULL
) WITH (fillfactor = 50);

-- One row per queue. Sums are exact for whoever looks: deltas are written in the transaction that makes the difference.
CREATE VIEW {schema}.queue_stats AS
SELECT q.id AS queue_id, q.name, s.ready, s.reserved, s.scheduled, s.buried, s.finalized, p.producers, p.consumers
FROM {schema}.queues q
LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE role = 'producer') AS producers, count(*) FILTER (WHERE role = 'consumer') AS consumers
    FROM {schema}.participants WHERE queue_id = q.id
) p ON true
LEFT JOIN LATERAL (
    SELECT coalesce(sum(c.ready), 0)::bigint AS ready, coalesce(sum(c.reserved), 0)::bigint AS reserved,
           coalesce(sum(c.scheduled), 0)::bigint AS scheduled, coalesce(sum(c.buried), 0)::bigint AS buried,
           coalesce(sum(c.finalized), 0)::bigint AS finalized
    FROM (
        SELECT ready, reserved, scheduled, buried, finalized FROM {schema}.stats_deltas WHERE queue_id = q.id
        UNION ALL
        SELECT sum(value) FILTER (WHERE t.name = 'ready'), sum(value) FILTER (WHERE t.name = 'reserved'),
               sum(value) FILTER (WHERE t.name = 'scheduled'), sum(value) FILTER (WHERE t.name = 'buried'),
               sum(value) FILTER (WHERE t.name = 'finalized')
        FROM {schema}.stats_totals t WHERE t.queue_id = q.id
    ) c
) s ON true;

-- The same, one row per queue and count.
CREATE VIEW {schema}.stats AS
SELECT s.queue_id, c.name, c.value
FROM {schema}.queue_stats s
CROSS JOIN LATERAL (VALUES ('ready', s.ready), ('reserved', s.reserved), ('scheduled', s.scheduled),
    ('buried', s.buried), ('finalized', s.finalized), ('producers', s.producers), ('consumers', s.consumers)
) AS c (name, value);
