"""Redrive: dead letters go back to the queues that they died in, by x-death.

All of a queue, or chosen ones; bounded per call, so that a caller can show how far it is. Each message goes straight
into the queue of its newest death (see `redrive_origin`), as `message_moves` moves it. What cannot go back stays.

    cursor = Cursor()
    while not cursor.is_done:
        done = redrive(vhost, "orders.dead", cursor=cursor)
        cursor = done.cursor
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.backing.outcomes import MOVED
from penstock.broker.operations.call_errors import BadRequest, find_changeable
from penstock.broker.operations.messages.message_moves import Outcome, checked_ids, note_others, read_ready, sync_soon
from penstock.broker.operations.messages.message_walk import LOOKS_MAX, Walk
from penstock.broker.operations.messages.redrive_origin import Origin, origin, redriven_envelope
from penstock.broker.vhost.carrier import Carrier
from penstock.broker.vhost.companions import companion_kind
from penstock.broker.vhost.handovers import RETURN, Errand, Handed
from penstock.broker.vhost.refusal_room import RefusalRooms
from penstock.errors import AmqpError
from penstock.message import Envelope
from penstock.queues.leaving.dead_letters import Dead, DeadLetterSource
from penstock.queues.queue import Queue
from penstock.queues.selection.ready_numbers import first_ready
from penstock.queues.taking import drop_taken, take

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost

# Messages that one call moves.
MOVED_MAX: Final = 2_000
# Problems that are told one by one.
PROBLEMS_MAX: Final = 1_000

NO_ORIGIN: Final = "no origin"
ORIGIN_GONE: Final = "origin gone"
REFUSED: Final = "refused"
BUSY: Final = "busy"
UNKNOWN: Final = "unknown"
OUT_OF_REACH: Final = "out of reach"
PASSED_OVER: Final = "passed over"


@dataclass(slots=True)
class Cursor:
    """How far a redrive is. What dies again meanwhile is behind the end, and is left for another redrive."""

    next_seq_id: int = 0
    # Not beyond this number; -1: where the queue ends at the first call.
    end_seq_id: int = -1
    is_done: bool = False


@dataclass(slots=True)
class Problem:
    """A message that stays where it is."""

    seq_id: int
    what: str
    # Where it would go, if that is known.
    queue: str | None


@dataclass(slots=True)
class Redriven:
    """What one call has done; or would do, in a dry run."""

    moved: int = 0
    # On their way to queues in PostgreSQL, which answer later.
    moving: int = 0
    # Moved, by the queue that they went to.
    moved_to: dict[str, int] = field(default_factory=dict)
    # It did not die, or its x-death is incomplete.
    no_origin: int = 0
    # The queue that it died in does not exist any more.
    origin_gone: int = 0
    # Its queue is full, and refuses what does not fit.
    refused: int = 0
    # With a consumer, gone, or too far from the head.
    busy: int = 0
    unknown: int = 0
    out_of_reach: int = 0
    # Passed over, because they died elsewhere or for another reason.
    passed_over: int = 0
    problems: list[Problem] = field(default_factory=list)
    cursor: Cursor = field(default_factory=Cursor)
    dry_run: bool = False


@dataclass(slots=True)
class _Chosen:
    """Messages that can go back, with where to."""

    seq_id: int
    envelope: Envelope
    body: bytes
    queue: Queue


def redrive(
    vhost: VHost,
    queue_name: str,
    *,
    seq_ids: Sequence[int] | None = None,
    count_max: int | None = None,
    reason: str | None = None,
    source_queue: str | None = None,
    dry_run: bool = False,
    cursor: Cursor | None = None,
) -> Redriven:
    """Move dead letters back; those of `reason` and from `source_queue` only, where these are given.

    With `seq_ids` these and no others, in one call. `count_max`: how many this call moves at most.
    """
    queue = find_changeable(vhost, queue_name)
    if companion_kind(queue.arguments):
        raise BadRequest(f"'{queue_name}' holds messages that wait; there are no dead letters in it")
    if count_max is not None and count_max < 1:
        raise BadRequest(f"count_max is {count_max}; redrive at least one message")
    result = Redriven(dry_run=dry_run)
    sorting = _Sorting(vhost, reason, source_queue)
    if seq_ids is None:
        limit = MOVED_MAX if count_max is None else min(count_max, MOVED_MAX)
        chosen = _next_chosen(queue, sorting, cursor or Cursor(), limit, result)
    else:
        chosen = _given(queue, sorting, checked_ids(seq_ids), count_max, result)
    accepted = _promised(chosen, sorting, may_serve=not dry_run)
    head = first_ready(queue.backing)
    far: list[_Chosen] = []
    if dry_run:
        for item in accepted:
            _count_moved(result, item.queue, 1)
    elif accepted:
        vhost.moves.add(partial(_move, vhost, queue, accepted, result, far))
        sync_soon(vhost)
    if far and seq_ids is None and first_ready(queue.backing) != head:
        # The next call begins there, and finds it nearer.
        result.cursor = Cursor(far[0].seq_id, result.cursor.end_seq_id)
        far, stop = [], far[0].seq_id
        sorting.forget_from(stop)
    for item in far:
        sorting.note(item.seq_id, OUT_OF_REACH, item.queue.name)
    sorting.tell(result)
    return result


def _next_chosen(queue: Queue, sorting: _Sorting, cursor: Cursor, limit: int, result: Redriven) -> list[_Chosen]:
    end = cursor.end_seq_id if cursor.end_seq_id >= 0 else int(queue.backing.status()["next_seq_id"])
    walk = Walk(queue, cursor.next_seq_id, LOOKS_MAX)
    chosen: list[_Chosen] = []
    for seen in walk.messages():
        if seen.seq_id >= end:
            walk.next_seq_id = None
            break
        chosen.extend(sorting.sort(seen.seq_id, seen.entry[0], seen.entry[1]))
        if len(chosen) >= limit:
            break
    is_done = walk.next_seq_id is None or walk.next_seq_id >= end
    result.cursor = Cursor(end if walk.next_seq_id is None else walk.next_seq_id, end, is_done)
    return chosen


def _given(
    queue: Queue, sorting: _Sorting, seq_ids: list[int], count_max: int | None, result: Redriven
) -> list[_Chosen]:
    found: list[Dead] = read_ready(queue, seq_ids)
    outcome = Outcome(done=[seq_id for seq_id, _ in found])
    note_others(queue, seq_ids, outcome)
    for seq_id in outcome.busy:
        sorting.note(seq_id, BUSY, None)
    for seq_id in outcome.unknown:
        sorting.note(seq_id, UNKNOWN, None)
    chosen: list[_Chosen] = []
    for seq_id, (envelope, body, _) in found:
        if count_max is None or len(chosen) < count_max:
            chosen.extend(sorting.sort(seq_id, envelope, body))
    result.cursor = Cursor(is_done=True)
    return chosen


class _Sorting:
    """Says of each message whether it can go back, and remembers why not."""

    def __init__(self, vhost: VHost, reason: str | None, source_queue: str | None) -> None:
        self._vhost = vhost
        self._reason = reason
        self._source_queue = source_queue
        # Messages that stay, and why.
        self._staying: list[Problem] = []
        self._last: Envelope | None = None
        self._origin: Origin | None = None
        self._redriven: Envelope | None = None

    def sort(self, seq_id: int, envelope: Envelope, body: bytes) -> list[_Chosen]:
        """Return the message, if it goes back; else it is noted."""
        if envelope is not self._last:
            self._look_at(envelope)
        source = self._origin
        if source is None or self._redriven is None:
            self.note(seq_id, NO_ORIGIN, None)
            return []
        if (self._reason is not None and source.reason != self._reason) or (
            self._source_queue is not None and source.queue != self._source_queue
        ):
            self.note(seq_id, PASSED_OVER, source.queue)
            return []
        queue = self._vhost.queues.get(source.queue)
        if queue is None or queue.crashed:
            self.note(seq_id, ORIGIN_GONE, source.queue)
            return []
        return [_Chosen(seq_id, self._redriven, body, queue)]

    def _look_at(self, envelope: Envelope) -> None:
        self._last = envelope
        self._redriven = None
        try:
            self._origin = origin(envelope)
            if self._origin is not None:
                self._redriven = redriven_envelope(envelope)
        except (AmqpError, ValueError):
            # Headers that cannot be read, or not be written any more.
            self._origin = None

    def note(self, seq_id: int, what: str, queue_name: str | None) -> None:
        self._staying.append(Problem(seq_id, what, queue_name))

    def forget_from(self, seq_id: int) -> None:
        """The next call comes to these."""
        self._staying = [problem for problem in self._staying if problem.seq_id < seq_id]

    def tell(self, result: Redriven) -> None:
        count = Counter([problem.what for problem in self._staying])
        result.no_origin = count[NO_ORIGIN]
        result.origin_gone = count[ORIGIN_GONE]
        result.refused = count[REFUSED]
        result.busy = count[BUSY]
        result.unknown = count[UNKNOWN]
        result.out_of_reach = count[OUT_OF_REACH]
        result.passed_over = count[PASSED_OVER]
        told = sorted([problem for problem in self._staying if problem.what != PASSED_OVER], key=_seq_id_of)
        result.problems = told[:PROBLEMS_MAX]


def _seq_id_of(problem: Problem) -> int:
    return problem.seq_id


def _promised(chosen: list[_Chosen], sorting: _Sorting, may_serve: bool) -> list[_Chosen]:
    """Return those that find room in their queues; what does not is not even taken."""
    rooms = RefusalRooms(may_serve)
    accepted: list[_Chosen] = []
    for item in chosen:
        if rooms.promise(item.queue, len(item.body) - 1):
            accepted.append(item)
        else:
            sorting.note(item.seq_id, REFUSED, item.queue.name)
    return accepted


def _stretches(chosen: Sequence[_Chosen]) -> Iterator[list[_Chosen]]:
    """Messages of one envelope that follow each other: they are moved as a run."""
    stretch: list[_Chosen] = []
    for item in chosen:
        if stretch and (item.envelope is not stretch[0].envelope or item.queue is not stretch[0].queue):
            yield stretch
            stretch = []
        stretch.append(item)
    if stretch:
        yield stretch


def _move(vhost: VHost, queue: Queue, accepted: list[_Chosen], result: Redriven, far: list[_Chosen]) -> None:
    """Move them; `far` gets those that are too far from the head for one call."""
    had = set(take(queue, [item.seq_id for item in accepted]))
    far.extend([item for item in accepted if item.seq_id not in had])
    done: list[int] = []
    carrier = RedriveTo(vhost)
    for stretch in _stretches([item for item in accepted if item.seq_id in had]):
        dead = [(item.seq_id, (item.envelope, item.body, None)) for item in stretch]
        handed = carrier.hand_over(queue.leaving, dead, stretch[0].envelope, stretch[0].queue)
        done.extend(handed.done)
        result.moving += len(handed.moving)
        _count_moved(result, stretch[0].queue, len(handed.done))
    drop_taken(queue, done)


class RedriveTo(Carrier):
    """Carries dead letters to the queues that they died in, again if these could not keep them."""

    def hand_over(self, source: DeadLetterSource, dead: Sequence[Dead], envelope: Envelope, queue: Queue) -> Handed:
        # No gate is asked: they were let in once.
        errand = Errand(self, envelope, [queue], MOVED, "", RETURN, passes_gates=True)
        return self._vhost.handovers.hand_over(source, dead, errand)

    def carry_alike(self, source: DeadLetterSource, stretch: Sequence[Dead], reason: str) -> None:
        death = origin(stretch[0][1][0])
        queue = None if death is None else self._vhost.queues.get(death.queue)
        if queue is None:
            source.give_back([seq_id for seq_id, _ in stretch])
        else:
            self.hand_over(source, stretch, redriven_envelope(stretch[0][1][0]), queue)


def _count_moved(result: Redriven, target: Queue, count: int) -> None:
    if not count:
        return
    result.moved += count
    result.moved_to[target.name] = result.moved_to.get(target.name, 0) + count
