"""What becomes of messages that leave a queue unread: the seam between a queue and where dead messages go.

A queue without it drops such messages. With it, they are published elsewhere first: to the dead-letter exchange, or,
for a companion queue whose messages have come due, to where they were held back from.

Life of the data: the queue makes the messages pending and calls `bury`. When they are published at the target, the
queue is told what became of them (`Grave.buried`) and forgets them; that is in the same turn, hence in the same batch
of the journal. When the target refuses them, the strategy decides: at most once drops them, at least once keeps them
pending and offers them again (`Grave.unburied`).

Invariants
  1. Buried messages stay pending at the source until `buried` or `unburied`.
  2. For each id that was given to `bury`, exactly one of the two is called: in the same turn, unless that has moved
     very many messages already.
  3. `bury` never publishes by itself within the call chain of another one: work is listed and done one by one.

A crash leaves a message at the source or at the target. It does not know exchanges and headers: `broker/dead_lettering`
does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from penstock.backing import outcomes
from penstock.message import Entry
from penstock.queues.selection import SelectionHost

# Why a message died, in RabbitMQ's words.
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"

_REASON_NUMBERS: Final = {
    REJECTED: outcomes.REASON_REJECTED,
    EXPIRED: outcomes.REASON_EXPIRED,
    MAXLEN: outcomes.REASON_MAXLEN,
    DELIVERY_LIMIT: outcomes.REASON_DELIVERY_LIMIT,
}
# Of what has no place to go to; everything else is dropped.
_OUTCOMES: Final = {REJECTED: outcomes.REJECTED, EXPIRED: outcomes.EXPIRED}

# A pending message of a queue: seq_id and entry.
Dead = tuple[int, Entry]


class Grave(SelectionHost):
    """A queue, as those who carry its dead away see it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For x-death."""

    @abstractmethod
    def buried(self, seq_ids: Sequence[int], outcome: int, reason: str) -> None:
        """The messages are elsewhere now, or dropped for good, as the outcome says: the queue forgets them.

        The reason is that for which they died; "" for those that did not die.
        """

    @abstractmethod
    def unburied(self, dead: Sequence[Dead], reason: str) -> None:
        """The target refused them. The queue keeps them, and buries them again later."""


class DeadLetters(ABC):
    """Takes dead messages away."""

    @abstractmethod
    def bury(self, grave: Grave, dead: Sequence[Dead], reason: str) -> None:
        """Publish pending messages of the queue elsewhere; `buried` or `unburied` follows, as a rule in this turn."""


def reason_number(reason: str) -> int:
    """A reason as the journal has it; 0 for one that is not RabbitMQ's."""
    return _REASON_NUMBERS.get(reason, outcomes.REASON_NONE)


def outcome_of_dropped(reason: str) -> int:
    """What becomes of messages that die and have no place to go to."""
    return _OUTCOMES.get(reason, outcomes.DROPPED)
