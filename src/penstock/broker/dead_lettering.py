"""Dead letters: from a queue to its dead-letter exchange.

Messages are published as RabbitMQ does it: with x-death, to the exchange by the queue's key or by their own, not to a
queue from which they would come round for ever, never returned. Both ends are changed in one turn, hence in one batch
of the journal: after a crash a message is here or there.

At most once (the default, as in RabbitMQ): what the targets refuse, and what finds no exchange or no queue, is dropped.
At least once (`x-dead-letter-strategy`): it stays where it died and is offered again every second. A message for
several queues goes to all of them or, while one has no room, to none: otherwise some would get it with each offer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.backing.outcomes import DEAD_LETTERED
from penstock.broker.moves import Moves
from penstock.broker.x_death import dead_letter_envelope, is_cycle, routing_keys_for
from penstock.fields import Table
from penstock.message import Envelope
from penstock.queues.dead_letters import Dead, DeadLetters, Grave, outcome_of_dropped
from penstock.queues.queue import Queue
from penstock.wire.property_edits import headers_of, without_headers

if TYPE_CHECKING:
    from penstock.broker.vhost import VHost


def hand_over_what_fits(queues: Sequence[Queue], envelope: Envelope, bodies: Sequence[bytes]) -> None:
    """Publish the same messages to all queues. What one of them refuses is lost to it."""
    for queue in queues:
        if not queue.deleted:
            _publish(queue, envelope, bodies)


def hand_over(queues: Sequence[Queue], envelope: Envelope, bodies: Sequence[bytes]) -> list[int]:
    """Publish each message to all queues, or to none while one has no room; the positions of the latter."""
    if any(queue.crashed for queue in queues):
        return list(range(len(bodies)))
    if not any(queue.takes_singly for queue in queues):
        hand_over_what_fits(queues, envelope, bodies)
        return []
    refused: list[int] = []
    for position, body in enumerate(bodies):
        if all(queue.intake is None or queue.intake.has_room(body) for queue in queues):
            hand_over_what_fits(queues, envelope, [body])
        else:
            refused.append(position)
    return refused


def _publish(queue: Queue, envelope: Envelope, bodies: Sequence[bytes]) -> None:
    if queue.takes_singly:
        for body in bodies:
            queue.publish(envelope, [body], None)
    else:
        queue.publish(envelope, bodies, None)


def same_envelopes(dead: Sequence[Dead]) -> list[Sequence[Dead]]:
    """Messages of one envelope that follow each other, together: they are moved as a run."""
    stretches: list[Sequence[Dead]] = []
    start = 0
    for index in range(1, len(dead) + 1):
        if index == len(dead) or dead[index][1][0] is not dead[start][1][0]:
            stretches.append(dead[start:index])
            start = index
    return stretches


class DeadLetterExchange(DeadLetters):
    """Where the dead of one queue go."""

    def __init__(
        self, vhost: VHost, exchange: str, routing_key: str | None, at_least_once: bool, own_headers: Sequence[str]
    ) -> None:
        """`own_headers` are those that the queue itself has written: they do not leave with the message."""
        self._vhost = vhost
        self._moves: Moves = vhost.moves
        self._exchange = exchange
        self._routing_key = routing_key
        self._at_least_once = at_least_once
        self._own_headers = own_headers

    def bury(self, grave: Grave, dead: Sequence[Dead], reason: str) -> None:
        self._moves.add(partial(self._carry, grave, dead, reason))

    def _carry(self, grave: Grave, dead: Sequence[Dead], reason: str) -> None:
        for stretch in same_envelopes(dead):
            kept, outcome = self._publish(grave.name, stretch, reason)
            grave.buried([seq_id for seq_id, _ in stretch if seq_id not in kept], outcome, reason)
            if kept:
                grave.unburied([each for each in stretch if each[0] in kept], reason)

    def _publish(self, queue_name: str, stretch: Sequence[Dead], reason: str) -> tuple[set[int], int]:
        """Publish messages of one envelope; numbers of those that stay where they are, and what the others came to."""
        envelope = stretch[0][1][0]
        if self._own_headers:
            envelope = without_headers(envelope, self._own_headers)
        now_s = self._vhost.clock.wall_ms() // 1000
        letter = dead_letter_envelope(envelope, queue_name, reason, now_s, self._exchange, self._routing_key)
        headers = headers_of(letter)
        queues, is_dropped = self._targets(envelope, headers)
        if not queues:
            stay = self._at_least_once and not is_dropped
            return {seq_id for seq_id, _ in stretch} if stay else set(), outcome_of_dropped(reason)
        bodies = [entry[1] for _, entry in stretch]
        if not self._at_least_once:
            hand_over_what_fits(queues, letter, bodies)
            return set(), DEAD_LETTERED
        refused = hand_over(queues, letter, bodies)
        return {stretch[position][0] for position in refused}, DEAD_LETTERED

    def _targets(self, envelope: Envelope, headers: Table) -> tuple[list[Queue], bool]:
        """The queues for a letter, and whether it goes to none because it has come round."""
        if self._exchange not in self._vhost.exchanges:
            return [], False
        found = self._vhost.route(self._exchange, routing_keys_for(envelope, self._routing_key), headers)
        queues = [queue for queue in found if not is_cycle(headers, queue.name)]
        return queues, len(queues) < len(found)
