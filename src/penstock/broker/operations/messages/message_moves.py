"""Chosen messages of a queue, deleted, moved or copied: calls for the console and the command line.

A move publishes at the target and takes the message off at the source, in one batch of the journal where both are
queues of this node: after a crash it is at one of the two. A queue in PostgreSQL answers later; until then the message
stays at its source, pending, and the move is tried again as long as the database is away. What the target has no room
for stays. Messages that are with a consumer are not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.backing.outcomes import MOVED, PURGED
from penstock.broker.features.x_death import routing_keys_for
from penstock.broker.operations.call_errors import BadRequest, check_exchange, find_changeable, find_queue
from penstock.broker.operations.messages.message_original import Original
from penstock.broker.operations.messages.message_walk import read_pending, shelved_ids
from penstock.broker.vhost.carrier import Carrier
from penstock.broker.vhost.companions import companion_kind
from penstock.broker.vhost.handovers import RETURN, Errand, same_envelopes
from penstock.broker.vhost.refusal_room import RefusalRooms
from penstock.errors import AmqpError
from penstock.limits import SHORT_STRING_BYTES_MAX
from penstock.message import Entry, Envelope
from penstock.queues.leaving.dead_letters import Dead, DeadLetterSource
from penstock.queues.queue import Queue
from penstock.queues.selection.ready_numbers import ready_among
from penstock.queues.taking import drop_taken, purge_first, take
from penstock.wire.property_edits import headers_of

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost

# Messages that one call takes.
CHOSEN_MAX: Final = 5_000
PURGED_MAX: Final = 100_000


@dataclass(slots=True)
class Target:
    """A queue; or an exchange, with a routing key, or None for the key that each message has."""

    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None


@dataclass(slots=True)
class Outcome:
    """What became of each chosen message, by its number."""

    done: list[int] = field(default_factory=list)
    # On its way to a queue in PostgreSQL: it leaves its queue when it is safe there. A copy may still fail, and is
    # named in the log then.
    moving: list[int] = field(default_factory=list)
    # A queue did not take it: it stays as it is.
    refused: list[int] = field(default_factory=list)
    # The exchange knows no queue for it: it stays.
    unrouted: list[int] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    # Ready, and could not be taken now.
    out_of_reach: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Purged:
    """How many messages a purge has dropped, and how many are still ready."""

    count: int
    left: int


def delete(vhost: VHost, queue_name: str, seq_ids: Sequence[int]) -> Outcome:
    """Drop messages for good; they are not dead-lettered."""
    queue = find_changeable(vhost, queue_name)
    chosen = checked_ids(seq_ids)
    outcome = Outcome()
    outcome.done = take(queue, chosen)
    drop_taken(queue, outcome.done, PURGED)
    note_others(queue, chosen, outcome)
    sync_soon(vhost)
    return outcome


def move(vhost: VHost, queue_name: str, seq_ids: Sequence[int], target: Target) -> Outcome:
    queue = find_changeable(vhost, queue_name)
    chosen = checked_ids(seq_ids)
    check_target(vhost, target)
    outcome = Outcome()
    vhost.moves.add(partial(_move, vhost, queue, chosen, target, outcome))
    sync_soon(vhost)
    return outcome


def _move(vhost: VHost, queue: Queue, chosen: list[int], target: Target, outcome: Outcome) -> None:
    found = _promised(vhost, read_ready(queue, chosen), target, outcome)
    taken = read_pending(queue.backing, take(queue, [seq_id for seq_id, _ in found]))
    MoveTo(vhost, target).carry(queue.leaving, taken, outcome)
    drop_taken(queue, outcome.done)
    note_others(queue, chosen, outcome)


def copy(vhost: VHost, queue_name: str, seq_ids: Sequence[int], target: Target) -> Outcome:
    """Publish once more, elsewhere; the messages themselves are not touched."""
    queue = find_changeable(vhost, queue_name)
    chosen = checked_ids(seq_ids)
    check_target(vhost, target)
    outcome = Outcome()
    vhost.moves.add(partial(_copy, vhost, queue, chosen, target, outcome))
    sync_soon(vhost)
    return outcome


def _copy(vhost: VHost, queue: Queue, chosen: list[int], target: Target, outcome: Outcome) -> None:
    found = _promised(vhost, read_ready(queue, chosen), target, outcome)
    MoveTo(vhost, target).carry(Original(queue), found, outcome)
    note_others(queue, chosen, outcome)


def purge_some(vhost: VHost, queue_name: str, count: int) -> Purged:
    """Drop the first ready messages, in the order in which consumers would get them."""
    if not 1 <= count <= PURGED_MAX:
        raise BadRequest(f"count is {count}; purge 1 to {PURGED_MAX} messages at a time, or the whole queue")
    queue = find_changeable(vhost, queue_name)
    purged = purge_first(queue, count)
    sync_soon(vhost)
    return Purged(purged, queue.ready_count())


# --- what others need too -----------------------------------------------------------------------------


def sync_soon(vhost: VHost) -> None:
    """What somebody did by hand does not lie around until the next publisher has to wait for the disk.

    Who wants to know when it is there asks `VHost.settle_when_durable` in the same turn.
    """
    if vhost.log is not None:
        vhost.log.when_durable(_nobody_waits)


def _nobody_waits(is_durable: bool) -> None:
    return None


def checked_ids(seq_ids: Sequence[int]) -> list[int]:
    """Return each number once, in order."""
    chosen = sorted(set(seq_ids))
    if len(chosen) > CHOSEN_MAX:
        raise BadRequest(f"{len(chosen)} messages are chosen; choose up to {CHOSEN_MAX} at a time")
    if chosen and chosen[0] < 0:
        raise BadRequest(f"{chosen[0]} is no number of a message; peek and search show the numbers")
    return chosen


def note_others(queue: Queue, chosen: Sequence[int], outcome: Outcome) -> None:
    """Say why the rest was not done."""
    settled = {*outcome.done, *outcome.moving, *outcome.refused, *outcome.unrouted}
    rest = [seq_id for seq_id in chosen if seq_id not in settled]
    if not rest or queue.deleted:
        outcome.unknown = rest
        return
    outcome.out_of_reach = ready_among(queue.backing, rest)
    outcome.busy = [seq_id for seq_id, _ in read_pending(queue.backing, rest)]
    known = {*outcome.out_of_reach, *outcome.busy}
    unknown = [seq_id for seq_id in rest if seq_id not in known]
    if queue.backing.is_looking():
        # What they are is not known yet: it is being asked for.
        outcome.out_of_reach.extend(unknown)
    else:
        outcome.unknown = unknown


def check_target(vhost: VHost, target: Target) -> None:
    if (target.queue is None) == (target.exchange is None):
        raise BadRequest("where to? Name a queue, or an exchange, and not both")
    if target.queue is not None:
        if target.routing_key is not None:
            raise BadRequest("a routing key goes with an exchange; a queue is named directly")
        if companion_kind(find_queue(vhost, target.queue).arguments):
            raise BadRequest(f"'{target.queue}' is a companion: messages get there through what it belongs to")
        return
    assert target.exchange is not None
    check_exchange(vhost, target.exchange)
    if len((target.routing_key or "").encode("utf-8", "surrogateescape")) > SHORT_STRING_BYTES_MAX:
        raise BadRequest(f"a routing key of more than {SHORT_STRING_BYTES_MAX} bytes; use a shorter one")


def _promised(vhost: VHost, found: Sequence[Dead], target: Target, outcome: Outcome) -> list[Dead]:
    """Return those that find a queue, and room in it; the others stay, untouched."""
    rooms = RefusalRooms(may_serve=True)
    promised: list[Dead] = []
    last: Envelope | None = None
    queues: list[Queue] = []
    for dead in found:
        seq_id, (envelope, body, _) = dead
        if envelope is not last:
            queues = _routed(vhost, envelope, target)[1]
            last = envelope
        if not queues:
            outcome.unrouted.append(seq_id)
        elif all(rooms.promise(queue, len(body) - 1) for queue in queues):
            promised.append(dead)
        else:
            outcome.refused.append(seq_id)
    return promised


class MoveTo(Carrier):
    """Carries messages to the target that the operator named."""

    def __init__(self, vhost: VHost, target: Target) -> None:
        super().__init__(vhost)
        self._target = target

    def carry(self, source: DeadLetterSource, dead: Sequence[Dead], outcome: Outcome) -> None:
        for stretch in same_envelopes(dead):
            self._hand_over(source, stretch, outcome)

    def carry_alike(self, source: DeadLetterSource, stretch: Sequence[Dead], reason: str) -> None:
        self._hand_over(source, stretch, Outcome())

    def _hand_over(self, source: DeadLetterSource, stretch: Sequence[Dead], outcome: Outcome) -> None:
        """Hand the messages over; what finds no queue, or no room, is ready again at its source."""
        envelope, queues = _routed(self._vhost, stretch[0][1][0], self._target)
        if not queues:
            seq_ids = [seq_id for seq_id, _ in stretch]
            source.give_back(seq_ids)
            outcome.unrouted.extend(seq_ids)
            return
        errand = Errand(self, envelope, queues, MOVED, "", RETURN)
        handed = self._vhost.handovers.hand_over(source, stretch, errand)
        outcome.done.extend(handed.done)
        outcome.moving.extend(handed.moving)
        outcome.refused.extend(handed.refused)


def _routed(vhost: VHost, envelope: Envelope, target: Target) -> tuple[Envelope, list[Queue]]:
    """Return the message as it goes on, and the queues that it goes to."""
    if target.queue is not None:
        queue = vhost.queues.get(target.queue)
        return envelope, [] if queue is None else [queue]
    assert target.exchange is not None
    if target.exchange not in vhost.exchanges:
        return envelope, []
    key = envelope.routing_key if target.routing_key is None else target.routing_key
    try:
        keys, headers = routing_keys_for(envelope, target.routing_key), headers_of(envelope)
    except AmqpError:
        # Its properties cannot be read: they were accepted without a look at every octet.
        keys, headers = [key], {}
    queues = vhost.route(target.exchange, keys, headers)
    sent = Envelope(
        target.exchange, key, envelope.properties, envelope.persistent, envelope.priority, envelope.expiration_ms
    )
    return sent, queues


def read_ready(queue: Queue, chosen: list[int]) -> list[Dead]:
    """Return those of the messages that are ready, or held, with what is in them."""
    backing = queue.backing
    found: dict[int, Entry] = {}
    for seq_id in ready_among(backing, chosen):
        run = backing.browse(seq_id, 1, 0)
        if run is not None:
            found[seq_id] = run.entries[0]
    shelved = set(shelved_ids(queue))
    found.update(read_pending(backing, [seq_id for seq_id in chosen if seq_id in shelved]))
    return [(seq_id, found[seq_id]) for seq_id in sorted(found)]
