"""The columns of the views, by name, in their order, as Arrow types.

Every reader produces these and no others; Spark's schema, the lake's tables and the plain reader of the tests are made
from them. A column, once released, keeps its name and its type.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TIME: Final = pa.timestamp("us", tz="UTC")
# The last millisecond of the year 9999: neither Python nor SQL knows later times. Messages can be held until later.
EXPIRES_MS_MAX: Final = 253_402_300_799_999
HEADERS: Final = pa.map_(pa.string(), pa.string())

_CONTENT: Final = [
    pa.field("exchange", pa.string()),
    pa.field("routing_key", pa.string()),
    pa.field("persistent", pa.bool_()),
    pa.field("priority", pa.int16()),
    pa.field("expires", TIME),
    # Payload bytes.
    pa.field("size", pa.int64()),
    pa.field("message_id", pa.string()),
    pa.field("correlation_id", pa.string()),
    pa.field("content_type", pa.string()),
    # Values as text: strings as they are, everything else as JSON.
    pa.field("headers", HEADERS),
    # Flags and list, as in an AMQP content header, for publishing the message again.
    pa.field("properties", pa.binary()),
    # Null when it is not asked for, and when a large body had left the disk already.
    pa.field("body", pa.binary()),
]

# One row for each event.
EVENTS: Final = pa.schema(
    [
        # The event's position in the log: unique, growing, the same each time it is read. Rows that only name things
        # have positions, too, and are not shown: so there are gaps that mean nothing.
        pa.field("lsn", pa.int64(), nullable=False),
        # When its batch was written.
        pa.field("time", TIME, nullable=False),
        pa.field("vhost", pa.string()),
        pa.field("queue", pa.string()),
        # Number of the queue in this log; never given again. (queue_no, seq) is the message: a queue with priorities
        # has a number for each level, and a queue that was deleted and declared anew has another one.
        pa.field("queue_no", pa.int32(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        # One of KINDS.
        pa.field("kind", pa.string(), nullable=False),
        pa.field("kind_no", pa.int16(), nullable=False),
        # Why a message was dead-lettered: rejected, expired, maxlen, delivery_limit.
        pa.field("reason", pa.string()),
        # Tag and connection of its consumer; null without one, for basic.get, and in journals of older brokers.
        pa.field("consumer", pa.string()),
        pa.field("connection", pa.string()),
        # From here on: of published events, null elsewhere.
        *_CONTENT,
        # Why the row is not whole; null for nearly all. Damage on disk is one row of kind `unreadable` for each range,
        # whose lsn is its first; properties that are no properties leave the row whole but for them.
        pa.field("problem", pa.string()),
    ]
)

# One row for each run of events on consecutive messages: what jobs that only count read.
RUNS: Final = pa.schema(
    [
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("vhost", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("queue_no", pa.int32(), nullable=False),
        # The first of `count` messages.
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("kind_no", pa.int16(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("consumer", pa.string()),
        pa.field("connection", pa.string()),
        pa.field("exchange", pa.string()),
        pa.field("routing_key", pa.string()),
        # Payload bytes of the run.
        pa.field("bytes", pa.int64()),
        # As in EVENTS. The count of an `unreadable` row is that of the events that are lost.
        pa.field("problem", pa.string()),
    ]
)

# Messages that are in a queue now.
MESSAGES: Final = pa.schema(
    [
        pa.field("vhost", pa.string(), nullable=False),
        pa.field("queue", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        # ready, unacked, delayed, …
        pa.field("state", pa.string(), nullable=False),
        # Null where the broker does not know: while a consumer has it.
        pa.field("redelivered", pa.bool_()),
        *_CONTENT,
    ]
)

# Finished messages of queues in PostgreSQL (penstock.messages_history).
POSTGRES_HISTORY: Final = pa.schema(
    [
        # The transaction that finished it: positions of the stream are transaction ids, in the order of their commits.
        pa.field("xid", pa.int64(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("queue", pa.string()),
        pa.field("deliveries", pa.int32()),
        pa.field("ready_at", TIME),
        pa.field("reserved_at", TIME),
        pa.field("reserved_by", pa.string()),
        pa.field("finalized_at", TIME, nullable=False),
        pa.field("note", pa.string()),
        pa.field("exchange", pa.string()),
        pa.field("routing_key", pa.string()),
        pa.field("properties", pa.binary()),
        pa.field("body", pa.binary()),
    ]
)

# Ranges of the log instead of their events, for who decodes them itself where they go: the archive job. Rows of events
# would be made by Python, taken apart by the JVM, and put together again by Python.
RANGES: Final = pa.schema(
    [
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("from_pos", pa.int64(), nullable=False),
        pa.field("to_pos", pa.int64(), nullable=False),
        pa.field("from_lsn", pa.int64(), nullable=False),
        pa.field("to_lsn", pa.int64(), nullable=False),
        # Of the segment, as JSON; null when it is large, and the decoder asks for it.
        pa.field("index", pa.string()),
    ]
)

VIEWS: Final = {"events": EVENTS, "runs": RUNS, "messages": MESSAGES, "postgres": POSTGRES_HISTORY, "ranges": RANGES}

# kind_no -> kind. 1 to 14 are the journal's numbers; those from 100 on exist in the views only.
TAKEN: Final = 100
UNREADABLE: Final = 101
KINDS: Final = {
    1: "published",
    2: "delivered",
    3: "acked",
    4: "rejected",
    5: "requeued",
    6: "expired",
    7: "dead-lettered",
    8: "dropped",
    9: "purged",
    # Delivered to a consumer that does not acknowledge: gone.
    10: "fetched",
    11: "lost",
    # To another queue, by an operator or because it had come due.
    12: "moved",
    # 13 and 14 are written for history alone, by queues with selectors, groups and the like.
    13: "delivered",
    14: "requeued",
    # The queue was deleted with what was in it; seq is -1.
    34: "deleted",
    # Row DELIVERED with actor -1: the queue itself took it from its place.
    TAKEN: "taken",
    UNREADABLE: "unreadable",
}
# A message's life ends with one of these, or with `deleted` of its queue.
GONE: Final = ("acked", "rejected", "expired", "dead-lettered", "dropped", "purged", "fetched", "lost", "moved")
