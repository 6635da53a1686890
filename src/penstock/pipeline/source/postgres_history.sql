-- Finished messages of transactions {from_xid} <= xid < {to_xid}, one part of them. {schema} is a quoted name, {columns}
-- are names of the view, everything else is a number: so the server can send the rows by COPY, a piece at a time.
-- In an order that is the same each time: a sink makes the keys of messages from the places of rows.
-- A dropped queue has no name any more; its number stands for it.
SELECT {columns}
FROM (
    SELECT h.xid::text::bigint AS xid, h.id, coalesce(q.name, h.queue_id::text) AS queue, h.deliveries, h.ready_at,
           h.reserved_at, h.reserved_by, h.finalized_at, coalesce(h.finalized_note, h.note) AS note, h.exchange,
           h.routing_key, h.properties, h.payload AS body
    FROM {schema}.messages_history h
    LEFT JOIN {schema}.queues q ON q.id = h.queue_id
    WHERE h.xid >= '{from_xid}'::xid8 AND h.xid < '{to_xid}'::xid8
      AND h.id % {parts} = {part}
      AND ({queue_id} < 0 OR h.queue_id = {queue_id})
) history
ORDER BY xid, id
