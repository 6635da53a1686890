"""How a message left its queue, why, and who had it: the numbers that a queue tells its backing.

The outcomes are the kinds of the journal's rows (`journal.format.rows`), so that a backing which writes rows need not
translate them; a backing that writes none ignores them. The queue decides, since it alone knows why a message goes.

Invariants
  1. Every outcome is one of `rows.GONE_KINDS`: whichever is given, the message is gone.
  2. Whatever died has a reason: REJECTED, EXPIRED and DEAD_LETTERED always, DROPPED mostly. Others have none.
  3. An actor above 0 is a consumer that `BackingQueue.name_actor` has numbered.

A crash loses or keeps an outcome together with its row. Recovery looks at none of this beyond "gone".
"""

from __future__ import annotations

from typing import Final

from penstock.journal.format import rows

# Its consumer has acknowledged it.
ACKED: Final = rows.ACKED
# A consumer refused it, and there is no place for dead letters.
REJECTED: Final = rows.REJECTED
EXPIRED: Final = rows.EXPIRED
# It was published to the dead-letter exchange; the reason says why.
DEAD_LETTERED: Final = rows.DEAD_LETTERED
# The queue itself gave it up: no room, a newer one of its key, too many deliveries.
DROPPED: Final = rows.DROPPED
# An operator or a client removed it.
PURGED: Final = rows.PURGED
# Handed out without acknowledgement.
FETCHED: Final = rows.FETCHED
LOST: Final = rows.LOST
# It is in another queue now, or in this one under another number, and did not die on the way.
MOVED: Final = rows.MOVED

# RabbitMQ's reasons, in x-death.
REASON_NONE: Final = 0
REASON_REJECTED: Final = 1
REASON_EXPIRED: Final = 2
REASON_MAXLEN: Final = 3
REASON_DELIVERY_LIMIT: Final = 4
# How people read them, by number.
REASON_NAMES: Final = ("", "rejected", "expired", "maxlen", "delivery_limit")

# basic.get, or not known.
NO_ACTOR: Final = 0
# The queue took it from its place and keeps it.
THE_QUEUE: Final = -1
