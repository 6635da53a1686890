"""What a row of the journal can say: its kinds, its flags, and what its fields mean for each kind.

A row is (seq, queue, actor, count, route, entry, kind, flags, arg, number); the ROW_ constants are the indexes. It
stands for `count` events: messages seq, seq + 1, … of one queue. `entry` is the first of `count` entries in the heaps.

Invariants
  1. A number, once released, keeps its meaning for ever. New kinds get new numbers.
  2. Kinds below 32 are events of messages; those from 32 on are about the journal itself.
  3. Every message leaves its queue by exactly one row of `GONE_KINDS`, or by the FORGET of the queue.
  4. DELIVERED, GIVEN, actors and reasons are for readers of history: recovery means the same without them. REQUEUED and
     RETURNED count a failed delivery, unless the actor of a REQUEUED says that the queue itself had the message.
"""

from __future__ import annotations

from typing import Final

ROW_SEQ: Final = 0
ROW_QUEUE: Final = 1
ROW_ACTOR: Final = 2
ROW_COUNT: Final = 3
ROW_ROUTE: Final = 4
ROW_ENTRY: Final = 5
ROW_KIND: Final = 6
ROW_FLAGS: Final = 7
ROW_ARG: Final = 8
ROW_NUMBER: Final = 9

# arg = priority, number = wall-clock milliseconds of expiry or -1, entry and route set.
PUBLISHED: Final = 1
# From here on: number = payload bytes of the run, no entry, no route.
# actor = who got it: a consumer, 0 for basic.get, -1 when the queue itself took it from its place.
DELIVERED: Final = 2
ACKED: Final = 3
# arg = why a message died: 1 rejected, 2 expired, 3 maxlen, 4 delivery_limit. So for EXPIRED to DROPPED, too.
REJECTED: Final = 4
# actor = -1 when the queue had taken it and puts it back: no consumer had it.
REQUEUED: Final = 5
EXPIRED: Final = 6
# Published to the dead-letter exchange in the same batch.
DEAD_LETTERED: Final = 7
# arg = 0 when the queue gave it up for none of these reasons: a newer one of its key, a key out of its window.
DROPPED: Final = 8
PURGED: Final = 9
# Delivered without acknowledgement (actor): gone.
FETCHED: Final = 10
LOST: Final = 11
# It is elsewhere now, and did not die: an operator moved it, or it was held and has come due.
MOVED: Final = 12
# A message that the queue had taken before (actor -1) was given to a consumer (actor), and came back to the queue.
GIVEN: Final = 13
RETURNED: Final = 14

# arg says what is named, seq is the number that gets the name; the text is the body of its entry.
NAME: Final = 32
# A change of the definitions; the text is the body of its entry.
DEFINE: Final = 33
# The queue was deleted with everything in it.
FORGET: Final = 34
# Kept free: a commit mark is a batch without rows that has a flag in its header.
COMMIT: Final = 35

GONE_KINDS: Final = frozenset({ACKED, REJECTED, EXPIRED, DEAD_LETTERED, DROPPED, PURGED, FETCHED, LOST, MOVED})

PERSISTENT: Final = 1
# Only the first entry of the run carries the properties; they are those of all.
SHARED_PROPS: Final = 2
# The body of each entry is not the message but where it is: i64 address, i32 payload bytes.
REFERENCE: Final = 4

# What a NAME row names (arg): a queue or a consumer, for the rest of the segment; a route, in this batch only. The text
# of a queue or consumer is up to who names it; that of a route is exchange and routing key, as basic.deliver carries
# them.
NAME_QUEUE: Final = 1
NAME_ROUTE: Final = 2
NAME_CONSUMER: Final = 3
