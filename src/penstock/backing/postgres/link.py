"""What a queue in PostgreSQL asks the database for, and what it is told.

A `PgQueueLink` belongs to one queue of one node; a `PgLink` opens them. The implementation does the I/O
(`server.postgres.link` on the event loop; the contract suite at once), so that the queue itself stays synchronous.
Every call is posted: it returns at once, and its result comes later, on the queue's own thread, to the `PgReserved` or
to the function that was given. A link that answers at once calls it before it returns.

Invariants
  1. `done` of a put is called once: with the ids, in order, after COMMIT; with None when the rows are not there, or
     when that cannot be known.
  2. Rows that a receiver was given are reserved for this node until it finalizes them or gives them back, or until it
     hears `link_lost`.
  3. Posted calls are done in the order in which they were posted, settling before reserving.
  4. Posted settling survives a lost connection: it is done again over the next one, which does no harm.
  5. A call that reports no error was done and committed. After an error the queue is still there for this node; if the
     connection was lost, the database may or may not have done it.

A crash of the node leaves rows reserved; the database returns them when the node has not been seen for some seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.backing.backing_queue import Answered, Purged
from penstock.errors import ChannelException
from penstock.native import mypyc_attr

if TYPE_CHECKING:
    from penstock.backing.postgres.reserved import PgReserved

# A row to be put: payload, exchange, routing key, properties, expiry in wall-clock ms (-1 = never), deliveries so far.
PutRow = tuple[bytes, str, str, bytes, int, int]
# A row that was reserved or looked at: id, deliveries (this one included), expiry in ms or -1, exchange, routing key,
# properties, payload, and since when it is ready (ms). None where nothing was given.
TakenRow = tuple[int, int, int, str | None, str | None, bytes | None, bytes, int]
# What became of a put: ids, or None when it is not there for certain.
PutDone = Callable[[list[int] | None], None]
# What was found; nothing also when the database cannot be asked.
Looked = Callable[[list[TakenRow]], None]


class PgUnavailable(ChannelException):
    """The database cannot be asked now. Its code is RabbitMQ's for a queue whose node is down."""

    def __init__(self, explanation: str) -> None:
        super().__init__(404, explanation)


def unavailable(queue: str, why: str) -> PgUnavailable:
    """Short: a reply text has 255 octets."""
    return PgUnavailable(f"queue '{queue}' is in PostgreSQL, which cannot be asked now; try again later ({why})")


@mypyc_attr(allow_interpreted_subclasses=True)
class PgQueueLink(ABC):
    """One queue in the database."""

    @abstractmethod
    def put(self, rows: Sequence[PutRow], done: PutDone) -> None:
        """Append rows; all that is put in a turn is committed together."""

    @abstractmethod
    def ask(self) -> None:
        """Reserve some messages when the turn is over, if they are still wanted then. May be called often."""

    @abstractmethod
    def ask_once(self, done: Answered) -> None:
        """Reserve one message, whether a consumer wants it or not, for basic.get.

        `done` is called when it came, or when there is none.
        """

    @abstractmethod
    def make(self, done: Answered) -> None:
        """Have the queue in the database, whether it was there before or not."""

    @abstractmethod
    def count(self, done: Answered) -> None:
        """Count anew, when everything that was posted so far has been answered."""

    @abstractmethod
    def purge(self, done: Purged) -> None:
        """Remove what is ready, when everything posted so far has been answered; nothing is reserved meanwhile."""

    @abstractmethod
    def drop(self, done: Answered) -> None:
        """Remove the queue, for every node. What is put meanwhile waits.

        When it was done, the link must not be used any more; else it goes on.
        """

    @abstractmethod
    def look(self, from_seq_id: int, count_max: int, bytes_max: int, done: Looked) -> None:
        """Show ready messages from this id on, nothing disturbed. After the first one, within the bytes."""

    @abstractmethod
    def take(self, seq_ids: Sequence[int]) -> None:
        """Reserve ready messages by number; the receiver is given them (`numbers_came`)."""

    @abstractmethod
    def finalize(self, seq_ids: Sequence[int], note: str | None) -> None:
        """Reserved messages are done with."""

    @abstractmethod
    def give_back(self, seq_ids: Sequence[int], seen: bool) -> None:
        """Reserved messages are ready again. `seen`: a consumer may have looked at them."""

    @abstractmethod
    def ready_count(self) -> int:
        """Return how many messages are ready in the database, as far as is known."""

    @abstractmethod
    def ready_bytes(self) -> int:
        """Their payloads, as far as is known."""

    @abstractmethod
    def unsent_bytes(self) -> int:
        """What was put by this queue and is not committed yet."""

    @abstractmethod
    def is_congested(self) -> bool:
        """More was put, over all queues, than the database takes at present."""

    @abstractmethod
    def close(self) -> None:
        """This node leaves the queue, when what was posted is done: what is reserved for it goes back."""

    @abstractmethod
    def leave(self) -> None:
        """This node leaves the queue at once: what was put and not sent is not put any more."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PgLink(ABC):
    """The way to one database."""

    @abstractmethod
    def is_up(self) -> bool:
        """Return whether the database can be asked, as far as is known."""

    @abstractmethod
    def open(
        self, name: str, is_new: bool, receiver: PgReserved, run: Callable[[Callable[[], None]], None]
    ) -> PgQueueLink:
        """Open the link of the queue with this name. PgUnavailable for a new queue while the database is away.

        The caller has a new queue made (`PgQueueLink.make`). `run` runs a function in the queue's context, or drops
        it when the queue is gone.
        """

    @abstractmethod
    def drop(self, name: str) -> None:
        """Remove a queue; what its link had posted is forgotten. One that has no link here is left
        alone."""
