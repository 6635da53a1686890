"""The contract between a queue and what holds its messages.

A queue owns exactly one `BackingQueue` and is the only one who calls it, always on its own thread. The queue
knows consumers and policies; the backing knows where messages are: in RAM, on disk, in PostgreSQL. Neither
knows the other's business. Verbs follow RabbitMQ's backing-queue behaviour, in Python and in runs: a verb takes
or returns many messages at once wherever that is possible (see `message.Run`).

Words
  seq_id    the position of a message in its queue: grows by one with each publish, is never used twice,
            not even after a restart. It is also the ack tag.
  ready     can be fetched. pending (ack): fetched with ack_required, not yet acked or requeued.
  safe      a message that survives a crash as far as it ever will: a persistent message in a durable queue when
            it is synced to disk; any other message as soon as it is held.

Life of a message
  publish -> ready -> fetch -> pending -> ack -> gone
                        ^                   |
                        +----- requeue -----+        requeue puts it back at its original position
  Mostly from the head; `fetch_at` takes messages by number.

Invariants, true after every call (`check_invariants` asserts what an implementation can know of them)
  1. `fetch` and its kin take ready messages in the order of their seq_ids, requeued ones included.
  2. A seq_id is ready, or pending, or gone; never two of them. depth == len + pending.
  3. A confirm token is settled, or handed out by `drain_confirmed`, only when its run is safe, was acked, or was
     fetched without ack; and at most once per queue.
  4. Counters (len, depth, bytes) are never negative and equal a recount.
  5. Entries are never changed. A fetched run belongs to the caller.

An OSError that comes out of a verb leaves all of them true: a publish that raises has published nothing, ack and
requeue do not raise one, and of the verbs that read, fetch, drop and purge_some have then taken nothing; dropwhile,
fetchwhile and a purge of several levels may have ended early.

Visitors and predicates must not call the backing.

What a crash leaves is said at each verb: "crash:" is kill -9 or loss of power. An implementation that keeps nothing
(volatile) loses everything, and says so in its header.

Verbs of RabbitMQ's behaviour that have no place here: batch_publish (every publish is a batch), publish_delivered (a
queue never pushes: docs/lineage.md), zip_msgs_and_acks (a run carries its ack tags), handle_info (there is no
mailbox: `invoke` and `resume`), set_queue_version (there is one disk layout), is_duplicate (there are no mirrors),
purge_acks (pending messages are settled by whom they were given to), handle_pre_hibernate (a queue is no process that
idles), msg_rates (no caller).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, final

from penstock.backing.outcomes import ACKED, DROPPED, NO_ACTOR, REASON_NONE
from penstock.errors import ChannelException
from penstock.message import ConfirmToken, Entry, Incoming, MessageProps, Run
from penstock.native import mypyc_attr

# Decides on a message's props (None for a message without any): True = go on, False = stop here.
PropsPredicate = Callable[[MessageProps | None], bool]
# Receives (seq_id, entry) of a message.
EntryVisitor = Callable[[int, Entry], None]
# Receives (seq_id, entry, is_pending); returns False to stop the walk.
FoldVisitor = Callable[[int, Entry, bool], bool]
# Work to be done on the queue's own thread, on its own backing.
BackingWork = Callable[["BackingQueue"], None]
# A verb was done; or why not.
Answered = Callable[[ChannelException | None], None]
# How many messages were removed; or 0, and why not.
Purged = Callable[[int, ChannelException | None], None]
# Hands work to the queue's owner from any thread: (name of the implementation, work). See `invoke`.
AsyncCallback = Callable[[str, BackingWork], None]

# What `publish` is told of the past of a message: no consumer had it; one had it; or it may have been in another queue
# already, by a move that a crash has undone here, and a consumer may have had it there.
NOT_DELIVERED: Final = 0
WAS_DELIVERED: Final = 1
DOUBTFUL: Final = 2

# `needs_timeout` answers.
TIMEOUT_NONE: Final = 0
TIMEOUT_IDLE: Final = 1
TIMEOUT_TIMED: Final = 2


@final
class Recovery:
    """How a queue comes back: what the last run of the broker left for it."""

    __slots__ = ("clean",)

    def __init__(self, clean: bool) -> None:
        # True when the queue was terminated and what it left can be trusted; False after a crash.
        self.clean = clean


@mypyc_attr(allow_interpreted_subclasses=True)
class BackingQueue(ABC):
    # Name of the implementation, for `invoke` and for `status`.
    KIND: ClassVar[str] = ""
    # True where something else than the node's journal keeps the messages. A publish there and an ack elsewhere are
    # then not one batch: a move waits for the token before it settles the source.
    IS_REMOTE: ClassVar[bool] = False

    # The share of RAM that it was told to keep to last, in seconds and bytes; None: no share. The memory monitor's.
    told_target: tuple[float, int] | None = None

    # --- life -------------------------------------------------------------------------------------

    def invoke(self, kind: str, work: BackingWork) -> None:
        """Run work that came through the async callback. Work for another implementation is ignored."""
        if kind == self.KIND:
            work(self)

    def set_takers(self, takers: Callable[[], bool]) -> None:
        """Say whom to ask whether a consumer would take a message now; for a backing that fetches from afar."""

    def drain_arrived(self) -> int:
        """Return how many messages have become ready by themselves since the last call: others may publish here, too.

        Asked after work that came through the callback. 0 where messages come through `publish` only.
        """
        return 0

    def stalled(self, error: OSError) -> None:
        """A fetch has raised this. The messages are still there; `drain_arrived` has them when it is time to try again.

        Raises the error where that is not possible.
        """
        raise error

    def waits_for_disk(self) -> bool:
        """Return whether it is too early for a `fetch`: what is next is being read beside the loop, from now on if need
        be, because it is large; or it cannot be read (`stalled`). `drain_arrived` has it when it is time.

        A `fetch` all the same does what it always does. False when nothing is ready.
        """
        return False

    def may_browse(self, from_seq_id: int) -> bool:
        """Return whether a `browse` from there may find something. No body is read for it."""
        return self.browse(from_seq_id, 1, 0) is not None

    def waits_to_browse(self, from_seq_id: int) -> bool:
        """Return whether it is too early for a `browse` from there: as `waits_for_disk`, for those who only look."""
        return False

    def head_is_large(self) -> bool:
        """Return whether the body of what is next is on disk and takes long to read. `drop` does not read it."""
        return False

    def await_body(self, seq_ids: Sequence[int], done: Answered) -> int:
        """Have a large body among pending messages read beside the loop, before `ackfold` shows it.

        Return the first of the messages, in the order given, that is not to be asked for yet; -1 when there is none.
        If it is the first of them, it is being read, and `done` is called when that is over. Else those before it are
        to be shown first: one body is kept at a time.
        """
        return -1

    def is_looking(self) -> bool:
        """Return whether `browse` or `fold` may have found less than there is, and what is missing comes soon."""
        return False

    def is_congested(self) -> bool:
        """More was published than can be taken in at present: publishers are to wait."""
        return False

    # --- what a database answers later. Where the node itself has the messages, all of it is done at once, but large
    # bodies are read first (`ask_once`). --------------------------------------------------------------------------

    def is_made(self) -> bool:
        """Return whether the queue is known to be there."""
        return True

    def make(self, done: Answered) -> None:
        """Have the queue made, if it is not there yet."""
        done(None)

    def count(self, done: Answered) -> None:
        """Count anew what others may have changed, with everything that was published here before."""
        done(None)

    def ask_once(self, done: Answered) -> None:
        """Have one message ready soon, for basic.get; `done` is called when that was tried."""
        done(None)

    def purge_all(self, done: Purged) -> None:
        """Remove what is ready, on all nodes; how much that was is known when `done` is called."""
        done(self.purge(), None)

    def drop_rows(self, done: Answered) -> None:
        """Remove the queue from the database, before it is deleted here."""
        done(None)

    def leave_rows(self) -> None:
        """Have the deletion that follows leave the database alone."""

    @abstractmethod
    def terminate(self) -> None:
        """Stop cleanly. Transient messages are dropped; persistent ones, ready or pending, are kept and synced.

        What `open` recovers from is the implementation's own: for queues on disk, the checkpoint of the clean stop. The
        backing must not be used afterwards.
        crash: before it returns, the next start is a dirty one.
        """

    @abstractmethod
    def delete_and_terminate(self) -> None:
        """Remove everything: ready, pending, files. crash: may leave files that the next start removes."""

    # --- publishing ---------------------------------------------------------------------------------

    @abstractmethod
    def publish(self, incoming: Incoming, props: MessageProps | None, delivered: int = NOT_DELIVERED) -> int:
        """Append messages; return the first seq_id. They expire together, if at all.

        With WAS_DELIVERED or DOUBTFUL the first fetch says redelivered; with DOUBTFUL `doubtful` names them, too.
        The token in `props.confirm` comes out of `drain_confirmed` if the run is safe as soon as it is held. Else it is
        settled by the backing itself, when the journal or the database says so, or refused when it cannot be kept.
        crash: before its token was settled, the run may be there whole, in part (a prefix), or not at all.
        """

    def discard(self, incoming: Incoming) -> None:
        """The run reached the queue but will not be held: it was delivered without ack, or has expired.

        The caller settles the confirm token itself, at once.
        """

    @abstractmethod
    def drain_confirmed(self) -> list[ConfirmToken]:
        """Tokens of runs that were safe at once, or became so by work of the callback, each once (invariant 3).

        The caller settles them. It asks behind each publish with a token, and behind such work.
        """

    @abstractmethod
    def take_owed(self) -> list[ConfirmToken]:
        """Return the tokens that were neither settled nor refused nor handed out, and forget them.

        For a queue that is given up. Nothing is said to them afterwards.
        """

    # --- fetching -----------------------------------------------------------------------------------

    @abstractmethod
    def fetch(self, count_max: int, bytes_max: int, ack_required: bool, actor: int = NO_ACTOR) -> Run | None:
        """Take a run from the head for an actor (`outcomes`); None when nothing is ready.

        At most `count_max` messages (>= 1); after the first, only as long as their bodies fit into `bytes_max`. The run
        may be shorter than it could be. With `ack_required` the messages become pending, else they are gone.
        crash: fetched messages come back marked redelivered, unless gone and that was synced.
        """

    @abstractmethod
    def fetch_at(self, seq_ids: Sequence[int], actor: int = NO_ACTOR) -> list[tuple[int, Entry]]:
        """Take ready messages by number, wherever they stand; they become pending, as with `fetch`.

        In the order given, each once; ids that are not ready are skipped. Those behind and before them stay where they
        are. crash: as with `fetch`.
        """

    @abstractmethod
    def drop(self, ack_required: bool, outcome: int = DROPPED, reason: int = REASON_NONE) -> int | None:
        """Take the message at the head for the queue itself; its seq_id, None when nothing is ready.

        Nothing of the message is read from disk: one that is damaged, or cannot be read now, goes like any other.
        Without `ack_required` it is gone, for the outcome and reason given.
        """

    @abstractmethod
    def dropwhile(self, predicate: PropsPredicate) -> int:
        """Remove messages from the head while the predicate says so; return how many. None is read from disk.

        They have expired. The first message that stays is at the head as before.
        """

    @abstractmethod
    def fetchwhile(self, predicate: PropsPredicate, visit: EntryVisitor) -> int:
        """Like `dropwhile`, but the queue takes each message: it is pending, and shown to `visit` with its seq_id."""

    @abstractmethod
    def head_props(self) -> MessageProps | None:
        """Props of the message at the head; None when nothing is ready or it has none."""

    @abstractmethod
    def browse(self, from_seq_id: int, count_max: int, bytes_max: int) -> Run | None:
        """Return a run of ready messages with seq_id >= from_seq_id, as `fetch` bounds it, nothing disturbed."""

    # --- settling -----------------------------------------------------------------------------------

    @abstractmethod
    def ack(
        self, seq_ids: Sequence[int], outcome: int = ACKED, reason: int = REASON_NONE, actor: int = NO_ACTOR
    ) -> int:
        """Forget pending messages; return how many were pending. Unknown and repeated ids are ignored.

        Outcome and reason say why they go; the actor, who got them, for FETCHED. They are for history, and change
        nothing else. crash: an ack that was not synced is undone; the message comes back marked redelivered.
        """

    @abstractmethod
    def requeue(self, seq_ids: Sequence[int], failed: bool = True) -> int:
        """Make pending messages ready again at their original positions, marked redelivered; return how many.

        `failed`: a consumer had them, and `delivery_count` grows by one. Unknown and repeated ids are ignored. A
        confirm that is still owed stays owed, and comes once. crash: what was not synced is undone, the count too.
        """

    @abstractmethod
    def delivery_count(self, seq_id: int) -> int:
        """Return how often a message was handed out and came back; 0 for one that is gone.

        It survives a clean stop. crash: returns that were synced are still counted; in PostgreSQL each reservation.
        """

    @abstractmethod
    def set_delivery_count(self, seq_id: int, count: int) -> None:
        """Say how often a pending message came back before it was published here. crash: forgotten."""

    def returned_over(self, count: int) -> list[int]:
        """Return the seq_ids of messages, recovered ones too, whose `delivery_count` is above `count`.

        A backing in which counts do not survive a stop, or do not belong to one node, knows none.
        """
        return []

    @abstractmethod
    def doubtful(self, seq_ids: Sequence[int]) -> list[int]:
        """Return those of the messages that may have been moved to another queue before, and delivered there.

        These are all that were there before a crash, all that were published as DOUBTFUL, and those of `doubt`.
        """

    @abstractmethod
    def doubt(self, seq_ids: Sequence[int]) -> None:
        """A move of pending messages has begun whose end may stay unknown: from now on they are `doubtful`.

        A clean stop keeps that; after a crash they are doubtful anyway.
        """

    @abstractmethod
    def pending_ids(self) -> list[int]:
        """Return the seq_ids of all pending messages, in order."""

    @abstractmethod
    def ackfold(self, visit: EntryVisitor, seq_ids: Sequence[int]) -> None:
        """Show pending messages to `visit`, in the order given, each once, unknown ids skipped; nothing is changed."""

    # --- who has what ---------------------------------------------------------------------------------

    def name_actor(self, text: bytes) -> int:
        """A number for a consumer, for `fetch` and its kin; 0 where nothing is written. The text is 1 KiB at most.

        crash: numbers are given anew; each segment of the journal has the names of those that it uses.
        """
        return NO_ACTOR

    def forget_actor(self, actor: int) -> None:
        """The consumer is gone: it is given nothing any more. Unknown numbers are ignored."""

    def note_given(self, seq_ids: Sequence[int], actor: int) -> None:
        """Pending messages that the queue had taken were handed to an actor now. For history: changes nothing.

        Unknown ids are ignored. crash: recovery does not look at it; the message comes back as any pending one.
        """

    def note_returned(self, seq_ids: Sequence[int]) -> None:
        """They came back to the queue, which keeps them pending; `delivery_count` grows by one, as with `requeue`."""

    # --- all messages ---------------------------------------------------------------------------------

    @abstractmethod
    def purge(self) -> int:
        """Remove what is ready; return how many. Pending messages stay; owed confirms are still given."""

    def begin_purge(self) -> bool:
        """Note what is ready. True when `purge` would take long: then `purge_some` is to be called until nothing goes.

        What is published from now on stays. What comes back (requeue) before the last slice goes too.
        """
        return False

    def purge_some(self, count_max: int) -> int:
        """Remove the first of what was ready at `begin_purge`, about so many at most; return how many.

        crash: what a slice has removed comes back if its rows were not synced, as with any purge.
        """
        return 0

    @abstractmethod
    def fold(self, visit: FoldVisitor) -> None:
        """Visit ready and pending messages once each, in the order of seq_ids, until `visit` returns False."""

    @abstractmethod
    def __len__(self) -> int:
        """How many messages are ready."""

    @abstractmethod
    def is_empty(self) -> bool:
        """True when no message is ready."""

    @abstractmethod
    def depth(self) -> int:
        """Ready and pending."""

    @abstractmethod
    def ready_bytes(self) -> int:
        """Return payload bytes of what is ready."""

    @abstractmethod
    def pending_bytes(self) -> int:
        """Return payload bytes of what is pending."""

    # --- memory and time ------------------------------------------------------------------------------

    @abstractmethod
    def ram_bytes(self) -> int:
        """Return roughly what the messages cost in memory now, overhead included; the memory alarm adds these up."""

    def set_ram_duration_target(self, seconds: float) -> None:
        """Hold no more in RAM than is needed for so many seconds at the present rates. May be ignored."""

    def set_ram_bytes_target(self, bytes_max: int) -> None:
        """Hold no more payload bytes in RAM than this; -1 = no limit. May be ignored."""

    def ram_duration(self) -> float:
        """Seconds that the messages in RAM last at the present rates; 0 when the implementation does not page."""
        return 0.0

    def needs_timeout(self) -> int:
        """TIMEOUT_TIMED: confirms are owed, call `timeout` soon. TIMEOUT_IDLE: when there is time. TIMEOUT_NONE."""
        return TIMEOUT_NONE

    def timeout(self) -> None:
        """Do what `needs_timeout` asked for. May be called more often than asked."""

    def resume(self) -> None:
        """Go on with work that was cut into slices (paging)."""

    def set_queue_mode(self, lazy: bool) -> None:
        """Lazy: keep as little in RAM as possible. May be ignored by an implementation that does not page."""

    # --- looking in -----------------------------------------------------------------------------------

    @abstractmethod
    def status(self) -> dict[str, int | float | str]:
        """Return numbers about the inside, by name; for people and for tests."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Assert the invariants above and the implementation's own. Walks everything: for tests and debugging."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BackingQueues(ABC):
    """Opens the backing queues of one vhost and owns what they share."""

    @abstractmethod
    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        """Called once, before any `open`, with the ids of the durable queues; one recovery for each, in order.

        What is found on disk for queues that are not named is removed.
        """

    @abstractmethod
    def stop(self) -> None:
        """Called after the queues were terminated. A crash may come instead."""

    def prepare(self) -> None:
        """Do now what opening a durable queue may need the disk for. An OSError comes out here, not in `open`.

        An OverflowError says that there can be no more durable queues.
        """
        return

    @abstractmethod
    def open(self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback) -> BackingQueue:
        """Return the backing of one queue: new (recovery None) or recovered.

        `queue_id` never contains anything that a client chose. Results of I/O reach the queue through `callback`,
        which may be called from any thread and runs the work on the queue's own (`invoke`), or drops it when the queue
        is gone.
        """

    @abstractmethod
    def delete_crashed(self, queue_id: str) -> None:
        """Remove what a queue left, without opening it."""

    def name_actor(self, text: bytes) -> int:
        """`BackingQueue.name_actor`, for a queue that is made of several of these."""
        return NO_ACTOR

    def forget_actor(self, actor: int) -> None:
        """`BackingQueue.forget_actor`, likewise."""
