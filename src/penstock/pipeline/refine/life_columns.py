"""The columns of silver (lives that have ended) and of the open lives that wait for their ending.

A column, once released, keeps its name and its type.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.pipeline.columns import TIME

DEATH: Final = pa.struct(
    [
        pa.field("queue", pa.string()),
        pa.field("exchange", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("count", pa.int64()),
        pa.field("time", TIME),
    ]
)

_MESSAGE: Final = [
    # (queue_no, seq) is the message, as in bronze.
    pa.field("queue_no", pa.int32(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("vhost", pa.string()),
    pa.field("queue", pa.string()),
    # Null in lives whose beginning was before history began.
    pa.field("published", TIME),
    pa.field("published_lsn", pa.int64()),
    pa.field("exchange", pa.string()),
    pa.field("routing_key", pa.string()),
    pa.field("message_id", pa.string()),
    pa.field("size", pa.int64()),
    pa.field("persistent", pa.bool_()),
    pa.field("priority", pa.int16()),
    pa.field("expires", TIME),
    pa.field("first_delivered", TIME),
    pa.field("last_delivered", TIME),
    # Events `delivered` and `fetched`; what the queue itself took is no delivery.
    pa.field("deliveries", pa.int64(), nullable=False),
    pa.field("requeues", pa.int64(), nullable=False),
    # Its last consumer; null for basic.get, and without one.
    pa.field("consumer", pa.string()),
    pa.field("connection", pa.string()),
]

# One row for each life that has ended.
LIVES: Final = pa.schema(
    [
        *_MESSAGE,
        pa.field("settled", TIME, nullable=False),
        pa.field("settled_lsn", pa.int64(), nullable=False),
        # One of OUTCOMES.
        pa.field("outcome", pa.string(), nullable=False),
        # Why it was dead-lettered, dropped, rejected or expired: rejected, expired, maxlen, delivery_limit.
        pa.field("reason", pa.string()),
        # first_delivered - published.
        pa.field("wait_us", pa.int64()),
        # settled - last_delivered; null when nobody had it at its end, and when nobody said when the work was done:
        # a consumer that does not acknowledge (`fetched`).
        pa.field("service_us", pa.int64()),
        # settled - published.
        pa.field("life_us", pa.int64()),
        # From the x-death header of the message as it was published here: newest first. Empty: it was no dead letter.
        pa.field("dead_letter_path", pa.list_(DEATH), nullable=False),
        pa.field("first_death_queue", pa.string()),
        # Its publication is not in the lake: history began later.
        pa.field("partial", pa.bool_(), nullable=False),
    ]
)

# One row for each life that has begun and not ended: what one refinement hands to the next.
OPEN_LIVES: Final = pa.schema(
    [
        *_MESSAGE,
        # The x-death header as it came; it is parsed when the life ends.
        pa.field("x_death", pa.string()),
        pa.field("first_death_queue", pa.string()),
        pa.field("first_delivered_lsn", pa.int64()),
        pa.field("last_delivered_lsn", pa.int64()),
        # The last `requeued`; beyond last_delivered_lsn when no consumer has the message now.
        pa.field("requeued_lsn", pa.int64()),
    ]
)

DELETED: Final = "deleted"
OUTCOMES: Final = (
    *("acked", "rejected", "expired", "dead-lettered", "dropped", "purged", "fetched", "lost", "moved"),
    DELETED,
)
