"""Dead letters: from a queue to its dead-letter exchange.

Messages are published as RabbitMQ does it: with x-death, to the exchange by the queue's key or by their own, not to a
queue from which they would come round for ever, never returned. `handovers` says when they leave their queue.

At most once (the default, as in RabbitMQ): what has no room in a target, and what finds no exchange or no queue, is
dropped. At least once (`x-dead-letter-strategy`): it stays where it died and is offered again every second. A message
for several queues goes to all of them or, while one has no room, to none: otherwise some would get it with each offer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.backing.outcomes import DEAD_LETTERED
from penstock.broker.features.x_death import dead_letter_envelope, is_cycle, routing_keys_for
from penstock.broker.vhost.carrier import Carrier
from penstock.broker.vhost.handovers import DROP, KEEP, Errand
from penstock.fields import Table
from penstock.message import Envelope
from penstock.queues.leaving.dead_letters import Dead, DeadLetterSource, outcome_of_dropped
from penstock.queues.queue import Queue
from penstock.wire.property_edits import headers_of, without_headers

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost


class DeadLetterExchange(Carrier):
    """Where the dead of one queue go."""

    def __init__(
        self, vhost: VHost, exchange: str, routing_key: str | None, at_least_once: bool, own_headers: Sequence[str]
    ) -> None:
        """`own_headers` are those that the queue itself has written: they do not leave with the message."""
        super().__init__(vhost)
        self._exchange = exchange
        self._routing_key = routing_key
        self.at_least_once = at_least_once
        self._own_headers = own_headers

    def change(self, exchange: str, routing_key: str | None, at_least_once: bool, own_headers: Sequence[str]) -> None:
        """Lead elsewhere from now on. What is on its way, or waits to be offered again, goes by it too."""
        self._exchange = exchange
        self._routing_key = routing_key
        self.at_least_once = at_least_once
        self._own_headers = own_headers

    def carry_alike(self, source: DeadLetterSource, stretch: Sequence[Dead], reason: str) -> None:
        envelope = stretch[0][1][0]
        if self._own_headers:
            envelope = without_headers(envelope, self._own_headers)
        now_s = self._vhost.clock.date_ms() // 1000
        letter = dead_letter_envelope(envelope, source.name, reason, now_s, self._exchange, self._routing_key)
        queues, is_dropped = self._targets(envelope, headers_of(letter))
        if queues:
            when_full = KEEP if self.at_least_once else DROP
            self._vhost.handovers.hand_over(
                source, stretch, Errand(self, letter, queues, DEAD_LETTERED, reason, when_full)
            )
        elif self.at_least_once and not is_dropped:
            source.refused(stretch, reason, self)
        else:
            source.handed_over([seq_id for seq_id, _ in stretch], outcome_of_dropped(reason), reason)

    def _targets(self, envelope: Envelope, headers: Table) -> tuple[list[Queue], bool]:
        """Return the queues for a letter, and whether it goes to none because it has come round."""
        if self._exchange not in self._vhost.exchanges:
            return [], False
        found = self._vhost.route(self._exchange, routing_keys_for(envelope, self._routing_key), headers)
        queues = [queue for queue in found if not is_cycle(headers, queue.name)]
        return queues, len(queues) < len(found)
