"""How messages get from one queue to others, and when their source may forget them.

Dead letters, released and retried messages, `move` and `redrive` all come through here. The source keeps a message,
pending, until every target has it as safely as it ever will.

Between queues of this node that costs nothing: publishing at the targets and settling the source are one turn, hence
one batch of the journal. Where a queue in PostgreSQL is the source or a target, or where a target that is full passes
the message on as a dead letter, there is no such batch. Then each target gets a token, and the source is settled when
the last token says that the message is safe. Until then the message is *on its way*.

A target that could not keep a message (the database is away) is left alone for a while, longer each time, and the
message stays at its source (`DeadLetterSource.refused`), which offers it again. Targets that have it already are left
out then.

Invariants
  1. For each message exactly one of `DeadLetterSource.handed_over` and `DeadLetterSource.refused` is called, unless its
     queue ends before.
  2. At most `messages_max` messages with `bytes_max` bytes are on their way, one run more at most; others are turned
     away before anything was published, and their sources are told when there is room.
  3. Before a message is on its way its source notes that (`DeadLetterSource.doubt`): when it is offered again, in this
     life or after a clean stop, the targets get it marked redelivered. After a crash everything is marked.

A crash leaves a message at its source, at its targets, or at both, and then the second one is marked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, final

from penstock import limits
from penstock.backing.backing_queue import DOUBTFUL, NOT_DELIVERED
from penstock.backing.outcomes import MOVED
from penstock.call_all import call_all
from penstock.clock import Clock
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, unlike
from penstock.queues.leaving.dead_letters import Dead, DeadLetters, DeadLetterSource
from penstock.queues.queue import Queue

log: Final = logging.getLogger("penstock.queue")

# A target that has refused is left alone for so long; twice as long each time, up to the other.
PAUSE_MS: Final = 1_000
PAUSE_MS_MAX: Final = 5_000

# What becomes of a message that a target has no room for: that target goes without; or it stays pending at its source
# and is offered again; or it is ready there again.
DROP: Final = 0
KEEP: Final = 1
RETURN: Final = 2


@final
class Errand:
    """What is to be done with a run of messages that share an envelope."""

    __slots__ = ("carrier", "delivered", "envelope", "outcome", "passes_gates", "queues", "reason", "when_full")

    def __init__(
        self,
        carrier: DeadLetters,
        envelope: Envelope,
        queues: Sequence[Queue],
        outcome: int,
        reason: str,
        when_full: int = KEEP,
        passes_gates: bool = False,
        delivered: int = NOT_DELIVERED,
    ) -> None:
        # It is asked again if the handover does not succeed.
        self.carrier = carrier
        # The messages as the targets get them.
        self.envelope = envelope
        self.queues = queues
        # What the source writes down.
        self.outcome = outcome
        self.reason = reason
        self.when_full = when_full
        # Messages that were let in once are not checked again.
        self.passes_gates = passes_gates
        self.delivered = delivered


@final
class Handed:
    """What became of the messages of one call, by their numbers."""

    __slots__ = ("done", "moving", "refused")

    def __init__(self) -> None:
        # The targets have them, and the source has forgotten them.
        self.done: list[int] = []
        # They leave their source when the targets have answered.
        self.moving: list[int] = []
        self.refused: list[int] = []


class Handovers:
    def __init__(
        self,
        clock: Clock,
        messages_max: int = limits.HANDOVER_MESSAGES_MAX,
        bytes_max: int = limits.HANDOVER_BYTES_MAX,
    ) -> None:
        self._clock = clock
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0
        # Sources of messages that were turned away.
        self._waiting: dict[DeadLetterSource, None] = {}
        # Targets that have refused: until when they are left alone, and for how long that was.
        self._paused: dict[Queue, tuple[int, int]] = {}

    def has_room(self) -> bool:
        """Return whether more messages may be on their way."""
        return self.messages < self._messages_max and self.bytes < self._bytes_max

    def hand_over(self, source: DeadLetterSource, stretch: Sequence[Dead], errand: Errand) -> Handed:
        """Have every target take the messages, which are pending at their source and share an envelope."""
        handed = Handed()
        doubtful = set(source.doubtful([seq_id for seq_id, _ in stretch]))
        is_single = not errand.passes_gates and any(queue.takes_singly for queue in errand.queues)
        for part in [[each] for each in stretch] if is_single else same_past(stretch, doubtful, source):
            delivered = DOUBTFUL if part[0][0] in doubtful else errand.delivered
            self._hand_over_alike(source, part, errand, delivered, handed)
        return handed

    def hand_over_run(
        self, source: DeadLetterSource, dead: Sequence[Dead], edit: Callable[[Envelope], Envelope], queues: list[Queue]
    ) -> bool:
        """Have plain queues of this node take messages that have waited, as a run, each edited as it is to arrive.

        False, and nothing is done, when they differ in more than their envelopes and bodies: one by one then.
        """
        seq_ids = [seq_id for seq_id, _ in dead]
        if source.is_remote() or source.doubtful(seq_ids):
            return False
        for queue in queues:
            if queue.intake is not None or queue.backing.IS_REMOTE or queue.crashed or queue.deleted:
                return False
        for seq_id, (envelope, _, _) in dead:
            if envelope.expiration_ms >= 0 or source.already_at(seq_id):
                return False
        entries: list[Entry] = [(edit(envelope), body, None) for _, (envelope, body, _) in dead]
        incoming = unlike(entries)
        for queue in queues:
            if not queue.deleted:
                # Else by what an earlier target led to. What went there is gone.
                queue.publish(incoming, None)
        source.handed_over(seq_ids, MOVED, "")
        return True

    def _hand_over_alike(
        self, source: DeadLetterSource, part: Sequence[Dead], errand: Errand, delivered: int, handed: Handed
    ) -> None:
        """Messages of which every target takes all or none."""
        seq_ids = [seq_id for seq_id, _ in part]
        queues = _open_queues(errand, part[0][1][1])
        if queues is None:
            if errand.when_full == RETURN:
                source.give_back(seq_ids)
            else:
                source.refused(part, errand.reason, errand.carrier)
            handed.refused.extend(seq_ids)
            return
        has_it = source.already_at(seq_ids[0])
        if has_it:
            queues = [queue for queue in queues if queue.queue_id not in has_it]
        if any(_needs_token(source, errand, queue, part[0][1][1]) for queue in queues):
            self._send_what_fits(source, part, errand, queues, delivered, handed)
            return
        incoming = Incoming(errand.envelope, [entry[1] for _, entry in part])
        for queue in queues:
            _publish(errand, incoming, queue, delivered, None)
        handed.done.extend(seq_ids)
        source.handed_over(seq_ids, errand.outcome, errand.reason)

    def _send_what_fits(
        self,
        source: DeadLetterSource,
        part: Sequence[Dead],
        errand: Errand,
        queues: Sequence[Queue],
        delivered: int,
        handed: Handed,
    ) -> None:
        """Publish with a token for each target, as much as may be on its way; nothing while a target is left alone."""
        now_ms = self._clock.wall_ms()
        rests_ms = max([self._rest_ms(queue, now_ms) for queue in queues])
        count = 0 if rests_ms else self._fitting_count(part)
        if count:
            self._send(source, part[:count], errand, queues, delivered, handed)
        if count < len(part):
            if not rests_ms:
                self._waiting[source] = None
            source.refused(part[count:], errand.reason, errand.carrier, rests_ms=rests_ms or PAUSE_MS)
            handed.moving.extend([seq_id for seq_id, _ in part[count:]])

    def _fitting_count(self, part: Sequence[Dead]) -> int:
        count = 0
        size = 0
        while count < len(part) and self.messages + count < self._messages_max and self.bytes + size < self._bytes_max:
            size += len(part[count][1][1])
            count += 1
        return count

    def _send(
        self,
        source: DeadLetterSource,
        part: Sequence[Dead],
        errand: Errand,
        queues: Sequence[Queue],
        delivered: int,
        handed: Handed,
    ) -> None:
        seq_ids = [seq_id for seq_id, _ in part]
        incoming = Incoming(errand.envelope, [entry[1] for _, entry in part])
        source.doubt(seq_ids)
        handover = Handover(self, source, part, errand, len(queues))
        self.messages += len(part)
        self.bytes += handover.bytes
        for queue in queues:
            token = TargetToken(handover, queue)
            try:
                if _needs_token(source, errand, queue, incoming.bodies[0]):
                    _publish(errand, incoming, queue, delivered, token)
                else:
                    # Its row stands in the journal before that of the source.
                    _publish(errand, incoming, queue, delivered, None)
                    token.settle()
            except OSError as error:
                log.error("%s could not take messages from queue %s: %s", ascii(queue.describe()), source.name, error)
                token.refuse()
        (handed.done if handover.is_done else handed.moving).extend(seq_ids)

    # --- pauses ---------------------------------------------------------------------------------------

    def _rest_ms(self, queue: Queue, now_ms: int) -> int:
        """For how long a target is left alone yet. A clock that was set back does not make it longer."""
        until_ms, pause_ms = self._paused.get(queue, (0, 0))
        return min(until_ms - now_ms, pause_ms) if until_ms > now_ms else 0

    def has_refused(self, queue: Queue) -> int:
        """Leave a target alone for a while; for how long."""
        now_ms = self._clock.wall_ms()
        until_ms, pause_ms = self._paused.get(queue, (0, 0))
        if until_ms <= now_ms:
            # What was on its way together with the first that was refused makes it no longer.
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX) if pause_ms else PAUSE_MS
            for gone in [each for each in self._paused if each.deleted]:
                del self._paused[gone]
            self._paused[queue] = (now_ms + pause_ms, pause_ms)
        return pause_ms

    def has_kept(self, queue: Queue) -> None:
        if self._paused:
            self._paused.pop(queue, None)

    def ended(self, count: int, size_bytes: int) -> None:
        """Messages are not on their way any more."""
        self.messages -= count
        self.bytes -= size_bytes
        if self._waiting and 2 * self.messages <= self._messages_max and 2 * self.bytes <= self._bytes_max:
            waiting, self._waiting = self._waiting, {}
            call_all([source.offer_again for source in waiting])


@final
class Handover:
    """Messages on their way to queues that answer later."""

    __slots__ = ("_errand", "_handovers", "_kept_by", "_part", "_rests_ms", "_source", "_waiting", "bytes", "is_done")

    def __init__(
        self, handovers: Handovers, source: DeadLetterSource, part: Sequence[Dead], errand: Errand, targets: int
    ) -> None:
        self._handovers = handovers
        self._source = source
        self._part = part
        self._errand = errand
        self.bytes = sum([len(entry[1]) for _, entry in part])
        # Targets that have not answered.
        self._waiting = targets
        self._kept_by: list[str] = []
        self._rests_ms = 0
        self.is_done = False

    def kept(self, queue: Queue) -> None:
        self._handovers.has_kept(queue)
        self._kept_by.append(queue.queue_id)
        self._answered()

    def refused(self, queue: Queue) -> None:
        self._rests_ms = max(self._rests_ms, self._handovers.has_refused(queue))
        self._answered()

    def _answered(self) -> None:
        self._waiting -= 1
        if self._waiting > 0:
            return
        errand = self._errand
        if self._rests_ms:
            has_it = frozenset(self._kept_by)
            self._source.refused(self._part, errand.reason, errand.carrier, has_it, self._rests_ms)
        else:
            self.is_done = True
            self._source.handed_over([seq_id for seq_id, _ in self._part], errand.outcome, errand.reason)
        self._handovers.ended(len(self._part), self.bytes)


@final
class TargetToken(ConfirmToken):
    """Waits for one target."""

    __slots__ = ("_waits_for",)

    def __init__(self, handover: Handover, queue: Queue) -> None:
        super().__init__(1)
        # None once it was told: messages keep their token, which must not keep a queue.
        self._waits_for: tuple[Handover, Queue] | None = (handover, queue)

    def is_of_a_move(self) -> bool:
        return True

    def complete(self) -> None:
        waits_for, self._waits_for = self._waits_for, None
        if waits_for is not None:
            waits_for[0].kept(waits_for[1])

    def refuse(self) -> None:
        waits_for, self._waits_for = self._waits_for, None
        if waits_for is not None:
            waits_for[0].refused(waits_for[1])


def _open_queues(errand: Errand, body: bytes) -> Sequence[Queue] | None:
    """Return the targets that have room; None when a message has to wait for one that has none."""
    queues = errand.queues
    if errand.passes_gates:
        return None if any(queue.crashed for queue in queues) else queues
    may_vanish = errand.when_full == DROP
    found = [queue for queue in queues if not queue.crashed and not queue.deleted and queue.has_room(body, may_vanish)]
    return None if not may_vanish and len(found) < len(queues) else found


def _needs_token(source: DeadLetterSource, errand: Errand, queue: Queue, body: bytes) -> bool:
    """Whether the target cannot take it in the journal's batch in which the source forgets it, or before that."""
    return source.is_remote() or queue.backing.IS_REMOTE or (not errand.passes_gates and queue.passes_on(body))


def _publish(errand: Errand, incoming: Incoming, queue: Queue, delivered: int, token: ConfirmToken | None) -> None:
    if queue.deleted:
        # By what an earlier target led to. What went there is gone.
        if token is not None:
            token.settle()
    elif errand.passes_gates:
        queue.enter(incoming, token, delivered)
    else:
        queue.publish(incoming, token, None, delivered)


def same_past(stretch: Sequence[Dead], doubtful: set[int], source: DeadLetterSource) -> list[Sequence[Dead]]:
    """Return messages that follow each other, are all doubtful or all not, and are in the same targets already."""
    if not doubtful:
        return [stretch]
    parts: list[Sequence[Dead]] = []
    start = 0
    for index in range(1, len(stretch) + 1):
        if (
            index == len(stretch)
            or (stretch[index][0] in doubtful) != (stretch[start][0] in doubtful)
            or source.already_at(stretch[index][0]) != source.already_at(stretch[start][0])
        ):
            parts.append(stretch[start:index])
            start = index
    return parts


def same_routes(dead: Sequence[Dead]) -> list[Sequence[Dead]]:
    """Return messages of one exchange and routing key that follow each other, together."""
    stretches: list[Sequence[Dead]] = []
    start = 0
    for index in range(1, len(dead) + 1):
        if index == len(dead) or dead[index][1][0].address != dead[start][1][0].address:
            stretches.append(dead[start:index])
            start = index
    return stretches


def same_envelopes(dead: Sequence[Dead]) -> list[Sequence[Dead]]:
    """Return messages of one envelope that follow each other, together: they are moved as a run."""
    stretches: list[Sequence[Dead]] = []
    start = 0
    for index in range(1, len(dead) + 1):
        if index == len(dead) or dead[index][1][0] is not dead[start][1][0]:
            stretches.append(dead[start:index])
            start = index
    return stretches
