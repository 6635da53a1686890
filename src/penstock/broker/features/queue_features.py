"""From the arguments of a declaration to the objects at a queue's seams. A plain queue gets none."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.definitions.feature_arguments import Features, read_features
from penstock.broker.features.dead_lettering import DeadLetterExchange
from penstock.broker.features.deduplication import DedupGate
from penstock.broker.features.header_key import header_key
from penstock.broker.features.held_messages import (
    COUNT_HEADER,
    CountHeader,
    HoldBack,
    ReleaseToExchange,
    ReleaseToQueue,
    WaitForRetry,
    delay_due_ms,
    not_before_due_ms,
)
from penstock.broker.vhost import companions
from penstock.fields import Field
from penstock.queues.consumers.single_active import SingleActive
from penstock.queues.delayed.held_selection import HeldSelection
from penstock.queues.intake.intake import Intake, Overflow
from penstock.queues.intake.overflow import (
    DropHead,
    FlowToDisk,
    ProducerFlowControl,
    RefusePublish,
    RefusePublishDlx,
    Ring,
    RoomLimits,
)
from penstock.queues.leaving.lifetime import Lifetime
from penstock.queues.leaving.returns import RETRY_DISABLED, Returns
from penstock.queues.queue import Queue
from penstock.queues.selection.fifo_order import FifoOrder
from penstock.queues.selection.group_order import SharedGroupOrder, StandardGroupOrder
from penstock.queues.selection.last_value_order import LastValueOrder
from penstock.queues.selection.order import Order
from penstock.queues.selection.shelf_selection import ShelfSelection
from penstock.queues.selection.sorted_order import SortedOrder
from penstock.wire.property_edits import HeaderReader

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost
    from penstock.queues.leaving.expiry import ExpirySchedule

QUORUM: Final[Field] = ("S", b"quorum")


def equip(vhost: VHost, queue: Queue, expiries: ExpirySchedule) -> None:
    """Give a queue that was just opened what its arguments and policies ask for."""
    if not queue.effective_arguments:
        return
    features = read_features(queue.effective_arguments)
    if features.dead_letter_exchange is not None:
        queue.dead_letters = make_dead_letters(vhost, features, features.dead_letter_exchange)
    if features.single_active:
        queue.activity = SingleActive(queue.own_consumers())
    if features.expires_ms > 0:
        queue.lifetime = make_lifetime(vhost, queue, features, expiries)
    if needs_returns(queue, features):
        queue.returns = make_returns(vhost, queue, features, expiries)
    order = make_order(features)
    if order is not None:
        queue.selection = ShelfSelection(
            queue.leaving, queue.own_backing(), order, features.expire_anywhere, queue.has_priorities
        )
    queue.intake = make_intake(vhost, queue, features, expiries, None)


def make_dead_letters(vhost: VHost, features: Features, exchange: str) -> DeadLetterExchange:
    return DeadLetterExchange(
        vhost, exchange, features.dead_letter_routing_key, features.at_least_once, own_headers(features)
    )


def own_headers(features: Features) -> tuple[str, ...]:
    """Return the headers that the queue itself writes, and takes off again."""
    return (COUNT_HEADER,) if features.retry_min_ms > 0 else ()


def make_lifetime(vhost: VHost, queue: Queue, features: Features, expiries: ExpirySchedule) -> Lifetime:
    return Lifetime(
        features.expires_ms,
        lambda: queue.consumer_count() > 0,
        partial(vhost.queue_expired, queue),
        expiries,
        vhost.clock,
    )


def equip_companion(vhost: VHost, queue: Queue) -> None:
    """Give a companion queue its purpose."""
    kind = companions.companion_kind(queue.arguments)
    owner = companions.companion_owner(queue.arguments)
    if kind == companions.DEDUP:
        return
    queue.selection = HeldSelection(queue.leaving, queue.own_backing())
    if kind == companions.HELD_FOR_QUEUE:
        queue.dead_letters = ReleaseToQueue(vhost, owner)
        return
    queue.dead_letters = ReleaseToExchange(vhost, owner)
    queue.intake = Intake(queue, -1, None)
    queue.intake.hold = HoldBack(delay_due_ms, lambda: queue, vhost.clock)


def needs_returns(queue: Queue, features: Features) -> bool:
    """Return whether the queue counts deliveries."""
    return features.delivery_limit >= 0 or is_retried(features) or queue.arguments.get("x-queue-type") == QUORUM


def is_retried(features: Features) -> bool:
    """Return whether messages that come back wait for their next try."""
    return features.retry_min_ms > 0 and features.retry_type != RETRY_DISABLED


def make_retry(vhost: VHost, queue: Queue, features: Features) -> WaitForRetry | None:
    if not is_retried(features):
        return None
    return WaitForRetry(
        queue, partial(_held, vhost, queue), CountHeader(), features.retry_min_ms, features.retry_max_ms
    )


def make_returns(vhost: VHost, queue: Queue, features: Features, expiries: ExpirySchedule) -> Returns:
    return Returns(
        queue.leaving,
        queue.own_backing(),
        CountHeader(),
        features.delivery_limit,
        make_retry(vhost, queue, features),
        features.retry_type,
        queue.requeue,
        expiries,
    )


def _held(vhost: VHost, queue: Queue) -> Queue:
    return vhost.companions.get(companions.HELD_FOR_QUEUE, queue.name, queue.durable)


def make_order(features: Features) -> Order | None:
    """Return the order that the features ask for; None where messages are handed out as they came."""
    if features.group_header:
        key = partial(header_key, HeaderReader(features.group_header))
        return SharedGroupOrder(key) if features.group_type == "shared" else StandardGroupOrder(key)
    if features.last_value_header:
        return LastValueOrder(partial(header_key, HeaderReader(features.last_value_header)))
    if features.sort_header:
        return SortedOrder(partial(header_key, HeaderReader(features.sort_header)))
    return FifoOrder() if features.expire_anywhere else None


def make_intake(
    vhost: VHost, queue: Queue, features: Features, expiries: ExpirySchedule, seen: DedupGate | None
) -> Intake | None:
    """Return what stands before the queue; None where nothing does. `seen`: the deduplication that it has already."""
    room = RoomLimits(features.length_max, features.length_bytes_max)
    is_limited = room.count_max >= 0 or room.bytes_max >= 0
    overflow: Overflow | None = None
    refusal: RefusePublish | None = None
    if is_limited:
        if features.overflow == "reject-publish":
            refusal = RefusePublish(queue, room)
        elif features.overflow == "reject-publish-dlx":
            refusal = RefusePublishDlx(queue, room)
        elif features.overflow == "ring":
            overflow = Ring(queue, room, expiries)
        elif features.overflow == "producer-flow-control":
            overflow = ProducerFlowControl(queue, room)
        elif features.overflow == "flow-to-disk":
            overflow = FlowToDisk(queue, room)
        else:
            overflow = DropHead(queue, room, expiries)
    is_needed = (
        is_limited or features.message_ttl_ms >= 0 or features.hold_on_publish or features.deduplication_header != ""
    )
    if not is_needed:
        return None
    intake = Intake(queue, features.message_ttl_ms, overflow)
    if refusal is not None:
        intake.gates.append(refusal)
    if features.deduplication_header:
        intake.gates.append(seen or _make_dedup(vhost, queue, features, expiries))
    if features.hold_on_publish:
        intake.hold = HoldBack(not_before_due_ms, partial(_held, vhost, queue), vhost.clock)
    return intake


def _make_dedup(vhost: VHost, queue: Queue, features: Features, expiries: ExpirySchedule) -> DedupGate:
    window = vhost.companions.get(companions.DEDUP, queue.name, queue.durable)
    return DedupGate(vhost, window, features.deduplication_header, features.cache_size, features.cache_ttl_ms, expiries)
