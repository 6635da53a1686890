-- Participants. If a crash takes back a sign of life, or whether a consumer waits, the next one is told in its place: these
-- do not wait for the disk.

-- name: attach
SELECT {schema}.attach(queue => %s::text, role => %s::text, grace => make_interval(secs => %s::float8), again => %s::bigint)

-- name: detach
SELECT {schema}.detach(participant => %s::bigint)

-- The name and the address that rows carry which this connection reserves.
-- name: who_am_i
SELECT current_setting('application_name'), host(inet_client_addr())

-- name: set_waiting
SELECT {schema}.set_waiting(participant => %s::bigint, waiting => %s::boolean), set_config('synchronous_commit', 'off', true)

-- Which of these numbers are still participants.
-- name: seen
SELECT p, {schema}.seen(participant => p) FROM unnest(%s::bigint[]) AS p, set_config('synchronous_commit', 'off', true)

-- name: sweep
SELECT promoted + returned FROM {schema}.sweep()

-- Whether we are still a participant, and how many messages have become ready.
-- name: seen_and_sweep
SELECT {schema}.seen(participant => %s::bigint), promoted + returned, set_config('synchronous_commit', 'off', true)
FROM {schema}.sweep()

-- Gives back what a participant has reserved by answers that it never got: everything but the ids that it knows.
-- name: give_back_others
SELECT {schema}.requeue(queue => %s::text, ids => ARRAY(SELECT m.id FROM {schema}.messages m
    WHERE m.state = 1 AND m.owner = c.number EXCEPT SELECT unnest(%s::bigint[])), consumer => c.number, seen => false)
FROM (SELECT %s::bigint AS number) AS c
