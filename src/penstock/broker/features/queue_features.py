"""From the arguments of a declaration to the objects at a queue's seams. A plain queue gets none."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from penstock.broker.definitions.feature_arguments import Features, read_features
from penstock.broker.features.dead_lettering import DeadLetterExchange
from penstock.broker.features.deduplication import DedupGate
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
from penstock.limits import SHELF_KEY_CHARS_MAX
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
from penstock.selectors.field_values import plain_value
from penstock.wire.property_edits import HeaderReader

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost
    from penstock.message import Envelope
    from penstock.queues.leaving.expiry import ExpirySchedule

QUORUM: Final[Field] = ("S", b"quorum")


def equip(vhost: VHost, queue: Queue, expiries: ExpirySchedule) -> None:
    """Give a queue that was just opened what its arguments ask for."""
    if not queue.arguments:
        return
    features = read_features(queue.arguments)
    if features.dead_letter_exchange is not None:
        queue.dead_letters = DeadLetterExchange(
            vhost,
            features.dead_letter_exchange,
            features.dead_letter_routing_key,
            features.at_least_once,
            (COUNT_HEADER,) if features.retry_min_ms > 0 else (),
        )
    if features.single_active:
        queue.activity = SingleActive(queue.own_consumers())
    if features.expires_ms > 0:
        queue.lifetime = Lifetime(
            features.expires_ms,
            lambda: queue.consumer_count() > 0,
            partial(vhost.queue_expired, queue),
            expiries,
            vhost.clock,
        )
    _set_returns(vhost, queue, features, expiries)
    _set_selection(queue, features)
    _set_intake(vhost, queue, features, expiries)


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


def _set_returns(vhost: VHost, queue: Queue, features: Features, expiries: ExpirySchedule) -> None:
    is_delayed = features.retry_min_ms > 0 and features.retry_type != RETRY_DISABLED
    if features.delivery_limit < 0 and not is_delayed and queue.arguments.get("x-queue-type") != QUORUM:
        return
    counting = CountHeader()
    retry: WaitForRetry | None = None
    if is_delayed:
        retry = WaitForRetry(
            queue, partial(_held, vhost, queue), counting, features.retry_min_ms, features.retry_max_ms
        )
    queue.returns = Returns(
        queue.leaving,
        queue.own_backing(),
        counting,
        features.delivery_limit,
        retry,
        features.retry_type,
        queue.requeue,
        expiries,
    )


def _held(vhost: VHost, queue: Queue) -> Queue:
    return vhost.companions.get(companions.HELD_FOR_QUEUE, queue.name, queue.durable)


def _set_selection(queue: Queue, features: Features) -> None:
    order = _order(features)
    if order is not None:
        queue.selection = ShelfSelection(
            queue.leaving, queue.own_backing(), order, features.expire_anywhere, queue.has_priorities
        )


def _order(features: Features) -> Order | None:
    if features.group_header:
        key = partial(_header_value, HeaderReader(features.group_header))
        return SharedGroupOrder(key) if features.group_type == "shared" else StandardGroupOrder(key)
    if features.last_value_header:
        return LastValueOrder(partial(_header_value, HeaderReader(features.last_value_header)))
    if features.sort_header:
        return SortedOrder(partial(_header_value, HeaderReader(features.sort_header)))
    return FifoOrder() if features.expire_anywhere else None


def _header_value(reader: HeaderReader, envelope: Envelope) -> str | int | float | None:
    field = reader.read(envelope)
    value = None if field is None else plain_value(field)
    if isinstance(value, str) and len(value) > SHELF_KEY_CHARS_MAX:
        # The key stays in memory when the message does not. Sorted, it still stands where its beginning belongs.
        digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{value[: SHELF_KEY_CHARS_MAX - len(digest)]}{digest}"
    return value


def _set_intake(vhost: VHost, queue: Queue, features: Features, expiries: ExpirySchedule) -> None:
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
        return
    intake = Intake(queue, features.message_ttl_ms, overflow)
    if refusal is not None:
        intake.gates.append(refusal)
    if features.deduplication_header:
        window = vhost.companions.get(companions.DEDUP, queue.name, queue.durable)
        intake.gates.append(
            DedupGate(
                vhost, window, features.deduplication_header, features.cache_size, features.cache_ttl_ms, expiries
            )
        )
    if features.hold_on_publish:
        intake.hold = HoldBack(not_before_due_ms, partial(_held, vhost, queue), vhost.clock)
    queue.intake = intake
