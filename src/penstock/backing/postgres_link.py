"""The door to PostgreSQL: what a queue that has its messages there asks for, and what it is told.

Owns: the shapes of what goes through the door, and nothing else. A `PgDoor` belongs to one queue of one node. Whoever
implements it does the I/O (`server.pg_link` on the event loop; the contract suite at once), so that the queue itself
stays synchronous.

Life of the data: *posted* work returns at once, and its result comes later, on the queue's own thread, to the
`PgReceiver` or to the function that was given. *Direct* calls block, for some seconds at most, and are for rare verbs;
while the link is down they raise `PgUnavailable` at once.

Invariants
  1. `done` of a put is called once: with the ids, in order, after COMMIT; with None when the rows are not there, or
     nobody knows whether they are.
  2. Rows that a receiver was given are reserved for this node until it finalizes them or gives them back, or until it
     hears `link_lost`.
  3. What was posted is done in the order in which it was posted, settling before reserving.
  4. Posted settling is not lost when the connection is: it is done again, over the next one, which does no harm.

A crash of the node leaves rows reserved; the database returns them when the node has not been seen for some seconds. It
does not know consumers, confirms or envelopes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from penstock.errors import ChannelException

# A row to be put: payload, exchange, routing key, properties, expiry in wall-clock ms (-1 = never), deliveries so far.
PutRow = tuple[bytes, str, str, bytes, int, int]
# A row that was reserved or looked at: id, deliveries (this one included), expiry in ms or -1, exchange, routing key,
# properties, payload, and since when it is ready (ms). What nobody gave is None.
TakenRow = tuple[int, int, int, str | None, str | None, bytes | None, bytes, int]
# What became of a put: ids, or None when it is not there for certain.
PutDone = Callable[[list[int] | None], None]


class PgUnavailable(ChannelException):
    """The database cannot be asked now. Its code is RabbitMQ's for a queue whose node is down."""

    def __init__(self, explanation: str) -> None:
        super().__init__(404, explanation)


class PgReceiver(ABC):
    """The queue's side: what a door asks it, and tells it."""

    @abstractmethod
    def is_wanted(self) -> bool:
        """Whether somebody would take a message now, and there is room for it."""

    @abstractmethod
    def refill_count(self) -> int:
        """How many messages to reserve at once, by their size and by how fast they were taken so far."""

    @abstractmethod
    def refill_floor(self) -> int:
        """Nothing that is ready has a lower id, as far as is known; 0 = look at everything."""

    @abstractmethod
    def rows_came(self, rows: Sequence[TakenRow], asked: int) -> None:
        """Rows were reserved for this node, in the order of their ids; `asked`: how many it would have taken."""

    @abstractmethod
    def held_ids(self) -> list[int]:
        """Ids of all rows that the queue believes to be reserved for it."""

    @abstractmethod
    def link_lost(self) -> None:
        """The connection that reserves was lost: what was not handed out yet may be somebody else's soon."""

    @abstractmethod
    def tick(self) -> None:
        """Called about twice a second."""


class PgDoor(ABC):
    """One queue in the database."""

    # --- posted -------------------------------------------------------------------------------------

    @abstractmethod
    def put(self, rows: Sequence[PutRow], done: PutDone) -> None:
        """Append rows; all that is put in a turn is committed together."""

    @abstractmethod
    def ask(self) -> None:
        """Reserve some messages when the turn is over, if they are still wanted then. May be called often."""

    @abstractmethod
    def ask_once(self, done: Callable[[], None]) -> None:
        """Reserve one message, whether a consumer wants it or not: somebody gets it by hand.

        `done` is called when it came, or when there is none. PgUnavailable while the link is down.
        """

    @abstractmethod
    def when_quiet(self, done: Callable[[], None]) -> None:
        """Call `done` when everything that was posted so far has been answered; soon, also when the link is down."""

    @abstractmethod
    def purge_first(self, done: Callable[[], None]) -> None:
        """Begin a purge, which `purge` completes and counts; `done` is called when only that is left to do."""

    @abstractmethod
    def finalize(self, seq_ids: Sequence[int], note: str | None) -> None:
        """Reserved messages are done with."""

    @abstractmethod
    def give_back(self, seq_ids: Sequence[int], seen: bool) -> None:
        """Reserved messages are ready again. `seen`: somebody may have looked at them."""

    # --- what is known ------------------------------------------------------------------------------

    @abstractmethod
    def ready_count(self) -> int:
        """How many messages are ready in the database, as far as is known."""

    @abstractmethod
    def ready_bytes(self) -> int:
        """Their payloads, as far as is known."""

    @abstractmethod
    def unsent_bytes(self) -> int:
        """What was put by this queue and is not committed yet."""

    @abstractmethod
    def is_congested(self) -> bool:
        """More was put, over all queues, than the database takes at present."""

    # --- direct -------------------------------------------------------------------------------------

    @abstractmethod
    def refresh(self) -> None:
        """Count anew."""

    @abstractmethod
    def take(self, seq_ids: Sequence[int]) -> list[TakenRow]:
        """Reserve ready messages by number."""

    @abstractmethod
    def browse(self, from_seq_id: int, count_max: int, bytes_max: int) -> list[TakenRow]:
        """Ready messages from this id on, nothing disturbed. After the first one, within the bytes."""

    @abstractmethod
    def purge(self, held: Sequence[int]) -> int:
        """Remove what is ready, what is on its way, and these, which are reserved for this node; how many they were."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the queue, for every node. The door must not be used afterwards."""

    @abstractmethod
    def close(self) -> None:
        """This node leaves the queue: what is reserved for it goes back."""


class PgLink(ABC):
    """Opens doors."""

    @abstractmethod
    def is_up(self) -> bool:
        """Whether direct calls may succeed."""

    @abstractmethod
    def open(self, name: str, is_new: bool, receiver: PgReceiver, run: Callable[[Callable[[], None]], None]) -> PgDoor:
        """The door to the queue of this name in the database; a new one is made, which is a direct call.

        `run` runs a function in the queue's context, or drops it when the queue is gone.
        """

    @abstractmethod
    def drop(self, name: str) -> None:
        """Remove a queue that nobody has open here. Direct."""
