"""Messages that wait for their time in a companion queue: why they are held, and where they go when they are due.

    x-delay              (header, milliseconds) on an x-delayed-message exchange
    x-not-valid-before   (header, timestamp or milliseconds since the epoch) on a queue with x-hold-on-publish
    x-delayed-retry-*    (queue arguments) after a nack

Companions are queues of this node: going there is one batch of the journal, and `handovers` says when a message leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.backing.backing_queue import DOUBTFUL, NOT_DELIVERED, WAS_DELIVERED
from penstock.backing.outcomes import DROPPED, MOVED
from penstock.broker.features.x_death import items_in, routing_keys_for
from penstock.broker.vhost.carrier import Carrier
from penstock.broker.vhost.handovers import Errand, same_routes
from penstock.clock import Clock
from penstock.fields import Field
from penstock.limits import TABLE_ITEMS_MAX
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, MessageProps, unlike
from penstock.queues.intake.intake import Hold
from penstock.queues.leaving.dead_letters import Dead, DeadLetterSource
from penstock.queues.leaving.returns import Counting, Retry
from penstock.queues.queue import Queue
from penstock.wire.property_edits import (
    HeaderReader,
    header_of,
    headers_of,
    with_changed_header,
    with_headers,
    without_headers,
)

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost

DELAY_HEADER: Final = "x-delay"
NOT_BEFORE_HEADER: Final = "x-not-valid-before"
DELAYS: Final = HeaderReader(DELAY_HEADER)
COUNT_HEADER: Final = "x-delivery-count"
COUNT_OCTETS: Final = COUNT_HEADER.encode()
DUE_MS_MAX: Final = (1 << 63) - 1
# Counts above this are not told from each other.
COUNT_MAX: Final = 1 << 31

# When a message is due, by what it says and by the clock; -1 when it does not wait.
DueRule = Callable[[Envelope, int], int]


def delay_ms_of(field: Field | None) -> int:
    """What an x-delay header asks for. What is no number, or not above 0, asks for nothing: 0."""
    value = None if field is None else field[1]
    if isinstance(value, bytes) and value.isdigit() and len(value) <= len(str(DUE_MS_MAX)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        return 0
    return int(min(value, DUE_MS_MAX))


def delay_due_ms(envelope: Envelope, now_ms: int) -> int:
    """By x-delay; never -1: what does not wait is routed in the next turn, whatever its expiration is."""
    return min(now_ms + delay_ms_of(header_of(envelope, DELAY_HEADER)), DUE_MS_MAX)


def delays_of(entries: Sequence[Entry]) -> list[int]:
    """Return for how long each message is to wait, by x-delay; 0 for those that are not."""
    delays_ms: list[int] = []
    for entry in entries:
        delay_ms = DELAYS.read_whole(entry[0])
        delays_ms.append(min(delay_ms, DUE_MS_MAX) if delay_ms >= 0 else delay_ms_of(DELAYS.read(entry[0])))
    return delays_ms


def hold_run(
    companion: Queue, entries: Sequence[Entry], delays_ms: Sequence[int], confirm: ConfirmToken | None
) -> None:
    """Have messages with envelopes of their own wait, each for as long as it is to."""
    now_ms = companion.wall_ms()
    held: list[Entry] = []
    for (envelope, body, _), delay_ms in zip(entries, delays_ms, strict=True):
        props = MessageProps(min(now_ms + delay_ms, DUE_MS_MAX))
        if COUNT_OCTETS in envelope.properties:
            envelope = without_headers(envelope, (COUNT_HEADER,))
        held.append((envelope, body, props))
    companion.hold(unlike(held, is_timed=True), confirm, -1)


def undelayed(envelope: Envelope) -> Envelope:
    """A message that has waited: its x-delay is negative, as RabbitMQ's plugin has it, and delays it no second time."""
    return with_changed_header(envelope, DELAYS, _negated)


def _negated(field: Field) -> Field | None:
    delay_ms = delay_ms_of(field)
    return ("l", -delay_ms) if delay_ms else None


def not_before_due_ms(envelope: Envelope, now_ms: int) -> int:
    """By x-not-valid-before."""
    field = header_of(envelope, NOT_BEFORE_HEADER)
    if field is None or isinstance(field[1], bool) or not isinstance(field[1], int):
        return -1
    due_ms = field[1] * 1000 if field[0] == "T" else field[1]
    return min(due_ms, DUE_MS_MAX) if due_ms > now_ms else -1


class HoldBack(Hold):
    """Sends what is not due yet to the companion."""

    def __init__(self, due_rule: DueRule, companion: Callable[[], Queue], clock: Clock) -> None:
        self._due_rule = due_rule
        self._companion = companion
        self._clock = clock

    def holds(self, incoming: Incoming, confirm: ConfirmToken | None, delivered: int) -> bool:
        assert incoming.entries is None
        due_ms = self._due_rule(incoming.envelope, self._clock.wall_ms())
        if due_ms < 0:
            return False
        # A count that a client has written is not one of ours, and would be taken for one when the message comes back.
        envelope = without_headers(incoming.envelope, (COUNT_HEADER,))
        self._companion().hold(Incoming(envelope, incoming.bodies), confirm, due_ms, delivered)
        return True


class ReleaseToQueue(Carrier):
    """What is due goes to the queue that it was held back from."""

    def __init__(self, vhost: VHost, queue_name: str) -> None:
        super().__init__(vhost)
        self._queue_name = queue_name

    def carry_alike(self, source: DeadLetterSource, stretch: Sequence[Dead], reason: str) -> None:
        queue = self._vhost.queues.get(self._queue_name)
        if queue is None:
            source.handed_over([seq_id for seq_id, _ in stretch], DROPPED, "")
            return
        envelope = stretch[0][1][0]
        delivered = NOT_DELIVERED if header_of(envelope, COUNT_HEADER) is None else WAS_DELIVERED
        errand = Errand(self, envelope, [queue], MOVED, "", passes_gates=True, delivered=delivered)
        self._vhost.handovers.hand_over(source, stretch, errand)


class ReleaseToExchange(Carrier):
    """What is due is routed by the exchange that has held it back. What a queue refuses is offered again."""

    def __init__(self, vhost: VHost, exchange_name: str) -> None:
        super().__init__(vhost)
        self._exchange_name = exchange_name

    def _carry(self, source: DeadLetterSource, dead: Sequence[Dead], reason: str) -> None:
        for stretch in same_routes(dead):
            if not self._carry_together(source, stretch):
                super()._carry(source, stretch, reason)

    def _carry_together(self, source: DeadLetterSource, stretch: Sequence[Dead]) -> bool:
        """Route messages of one routing key once, and move them as a run; False when that cannot be."""
        vhost = self._vhost
        envelope = stretch[0][1][0]
        if len(stretch) == 1 or vhost.due_needs_headers(self._exchange_name) or _has_copies(stretch):
            return False
        queues = vhost.route_now(self._exchange_name, [envelope.routing_key], None)
        if not queues:
            source.handed_over([seq_id for seq_id, _ in stretch], DROPPED, "")
            return True
        return vhost.handovers.hand_over_run(source, stretch, undelayed, queues)

    def carry_alike(self, source: DeadLetterSource, stretch: Sequence[Dead], reason: str) -> None:
        envelope = undelayed(stretch[0][1][0])
        queues = self._vhost.route_now(self._exchange_name, routing_keys_for(envelope, None), headers_of(envelope))
        if queues:
            self._vhost.handovers.hand_over(source, stretch, Errand(self, envelope, queues, MOVED, ""))
        else:
            source.handed_over([seq_id for seq_id, _ in stretch], DROPPED, "")


def _has_copies(dead: Sequence[Dead]) -> bool:
    """Return whether a message may have more routing keys than its own: CC, or BCC."""
    return any(b"CC" in entry[0].properties for _, entry in dead)


class CountHeader(Counting):
    """x-delivery-count, as quorum queues write it."""

    def count_of(self, envelope: Envelope) -> int:
        field = header_of(envelope, COUNT_HEADER)
        value = 0 if field is None else field[1]
        # A client may have written anything into the header, and the next count must fit.
        return min(value, COUNT_MAX) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

    def stamped(self, envelope: Envelope, count: int) -> Envelope:
        headers = headers_of(envelope)
        headers.pop(COUNT_HEADER, None)
        # A message with thousands of headers loses some, where otherwise it could not be read again.
        items = items_in(("F", headers))
        while items > TABLE_ITEMS_MAX:
            items -= items_in(headers.popitem()[1])
        headers[COUNT_HEADER] = ("l", count)
        return with_headers(envelope, dict(sorted(headers.items())))


class WaitForRetry(Retry):
    """The next try comes later: after min, 2 min, 3 min … at most max."""

    def __init__(
        self, queue: Queue, companion: Callable[[], Queue], counting: Counting, min_ms: int, max_ms: int
    ) -> None:
        self._queue = queue
        self._companion = companion
        self._counting = counting
        self._min_ms = min_ms
        self._max_ms = max_ms

    def is_open(self) -> bool:
        return not self._companion().crashed

    def wait(self, dead: Sequence[Dead], counts: Sequence[int]) -> None:
        now_ms = self._queue.wall_ms()
        companion = self._companion()
        seq_ids = [seq_id for seq_id, _ in dead]
        doubtful = set(self._queue.backing.doubtful(seq_ids))
        for (seq_id, (envelope, body, _)), count in zip(dead, counts, strict=True):
            due_ms = now_ms + min(self._min_ms * count, self._max_ms)
            delivered = DOUBTFUL if seq_id in doubtful else NOT_DELIVERED
            counted = Incoming(self._counting.stamped(envelope, count), [body])
            companion.hold(counted, None, due_ms, delivered)
        self._queue.leaving.forget(seq_ids, MOVED)
