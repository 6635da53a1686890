"""What becomes of messages that leave a queue unread: the seam between a queue and where dead messages go.

A queue without it drops such messages. With it, they are published elsewhere first: to the dead-letter exchange, or,
for a companion queue whose messages have come due, to where they were held back from.

The queue makes the messages pending and calls `dead_letter`. When every target has them, the queue is told
(`DeadLetterSource.handed_over`) and forgets them. Between queues of this node that is in the same turn, hence in the
same batch of the journal; where PostgreSQL has to answer first, it is later. When a target has no room, the strategy
decides: at most once drops them, at least once keeps them pending and offers them again (`DeadLetterSource.refused`).
When a target cannot keep them, because its database is away, they stay in any case.

Invariants
  1. Such messages stay pending at the source until `handed_over` or `refused`.
  2. For each id that was given to `dead_letter`, exactly one of the two is called, sooner or later.
  3. `dead_letter` never publishes by itself within the call chain of another one: work is listed and done one by one.

A crash leaves a message at the source or at the target; or, where these are not in one journal, at both, and the second
one is marked redelivered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from penstock.backing import outcomes
from penstock.message import Entry
from penstock.native import mypyc_attr

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
NOWHERE: Final[frozenset[str]] = frozenset()


@mypyc_attr(allow_interpreted_subclasses=True)
class DeadLetterSource(ABC):
    """A queue, as carriers of its dead letters see it.

    What is not abstract is so for messages that have no place in the queue: there is nothing to note or to give back.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """For x-death."""

    @abstractmethod
    def handed_over(self, seq_ids: Sequence[int], outcome: int, reason: str) -> None:
        """The messages are elsewhere now, or dropped for good, as the outcome says: the queue forgets them.

        The reason is that for which they died; "" for those that did not die.
        """

    @abstractmethod
    def refused(
        self,
        dead: Sequence[Dead],
        reason: str,
        carrier: DeadLetters,
        has_it: frozenset[str] = NOWHERE,
        rests_ms: int = 0,
    ) -> None:
        """Not every target took them. The queue keeps them, and has the carrier dead-letter them again later.

        `has_it`: ids of queues that took them. `rests_ms`: until then nothing is tried, unless `offer_again` comes;
        0 when a target has no room or there is none.
        """

    def give_back(self, seq_ids: Sequence[int]) -> None:
        """They stay where they were, and are ready again."""
        return

    def offer_again(self) -> None:
        """There is room for messages that were turned away: they need not wait any longer."""
        return

    def is_remote(self) -> bool:
        """Return whether its messages are elsewhere than in the node's journal."""
        return False

    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        """Return those that may have been moved before, and delivered at the target: `BackingQueue.doubtful`."""
        return []

    def doubt(self, seq_ids: Sequence[int]) -> None:
        """A move of these has begun whose end may stay unknown: `BackingQueue.doubt`."""
        return

    def already_at(self, seq_id: int) -> frozenset[str]:
        """Return ids of the queues that took the message when it was carried away before, and others did not."""
        return NOWHERE


@mypyc_attr(allow_interpreted_subclasses=True)
class DeadLetters(ABC):
    """Takes dead messages away."""

    # Whether they stay where they died until their targets have them.
    at_least_once: bool = False

    def is_open(self) -> bool:
        """Return whether it could take some away now; asked before messages are read to be handed over again."""
        return True

    @abstractmethod
    def dead_letter(self, source: DeadLetterSource, dead: Sequence[Dead], reason: str) -> None:
        """Publish pending messages of the queue elsewhere; `handed_over` or `refused` follows."""


def reason_number(reason: str) -> int:
    """Return a reason as the journal has it; 0 for one that is not RabbitMQ's."""
    return _REASON_NUMBERS.get(reason, outcomes.REASON_NONE)


def outcome_of_dropped(reason: str) -> int:
    """What becomes of messages that die and have no place to go to."""
    return _OUTCOMES.get(reason, outcomes.DROPPED)
