"""Gives a queue that is in use other features: its arguments, or a policy that applies to it, have changed.

This happens between two messages. Nothing is lost, and what stays keeps its position. For each seam:

    dead letters   the object that leads to the exchange is told another one, so that messages which wait to be offered
                   again go there, too. When there is no exchange any more, these are offered once more to the old one.
    returns        other limits count at the next return, by the counts that there are; messages that wait for a retry
                   in the companion queue come when they are due.
    selection      the new order takes over what the old one has shelved. Deliveries that are not settled yet bind no
                   group; where they come back, they take the place that the new order gives them.
    intake         time to live counts for messages that come from now on. Limits of length make room at once, in
                   slices. The keys of a deduplication that goes on are kept; those of one that ends are forgotten.
    lifetime       the time begins anew.
    activity       consumers change their standing, and keep their deliveries.
    queue mode     the backing is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.definitions.arguments import LAZY
from penstock.broker.definitions.feature_arguments import Features, read_features
from penstock.broker.features.dead_lettering import DeadLetterExchange
from penstock.broker.features.deduplication import DedupGate
from penstock.broker.features.queue_features import (
    make_dead_letters,
    make_intake,
    make_lifetime,
    make_order,
    make_retry,
    make_returns,
    needs_returns,
    own_headers,
)
from penstock.broker.vhost.companions import DEDUP
from penstock.queues.consumers.single_active import SingleActive
from penstock.queues.intake.intake import Intake
from penstock.queues.selection.fifo_order import FifoOrder
from penstock.queues.selection.shelf_selection import ShelfSelection

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost
    from penstock.fields import Table
    from penstock.queues.leaving.expiry import ExpirySchedule
    from penstock.queues.queue import Queue

NO_RETRY = "disabled"


def re_equip(vhost: VHost, queue: Queue, before: Table, expiries: ExpirySchedule, has_moved: bool = False) -> None:
    """Have the queue's `effective_arguments` take effect; `before` are those that it went by until now.

    `has_moved`: it has another backing, too, and what knows messages by their numbers is made anew.
    """
    if queue.deleted or queue.crashed:
        return
    old, new = read_features(before), read_features(queue.effective_arguments)
    if has_moved or before.get("x-queue-mode") != queue.effective_arguments.get("x-queue-mode"):
        set_mode(queue)
    if old == new and not has_moved:
        return
    _change_dead_letters(vhost, queue, new)
    _change_returns(vhost, queue, new, expiries)
    if old.single_active != new.single_active:
        _change_activity(queue, new)
    if has_moved or _orders(old) != _orders(new):
        _change_selection(queue, new)
    if old.expires_ms != new.expires_ms:
        _change_lifetime(vhost, queue, new, expiries)
    if has_moved or _intakes(old) != _intakes(new):
        _change_intake(vhost, queue, new, expiries)
    queue.expiry.arm()
    queue.consumers.notify_available(queue.available_count())


def set_mode(queue: Queue) -> None:
    queue.backing.set_queue_mode(queue.effective_arguments.get("x-queue-mode") == LAZY)


def _orders(features: Features) -> tuple[object, ...]:
    return (
        features.group_header,
        features.group_type,
        features.last_value_header,
        features.sort_header,
        features.expire_anywhere,
    )


def _intakes(features: Features) -> tuple[object, ...]:
    return (
        features.message_ttl_ms,
        features.length_max,
        features.length_bytes_max,
        features.overflow,
        features.hold_on_publish,
        features.deduplication_header,
        features.cache_size,
        features.cache_ttl_ms,
    )


def _change_dead_letters(vhost: VHost, queue: Queue, new: Features) -> None:
    present = queue.dead_letters
    exchange = new.dead_letter_exchange
    if exchange is None:
        if isinstance(present, DeadLetterExchange):
            # What waits for a target is offered once more, and dropped if it finds none.
            present.at_least_once = False
            queue.leaving.offer_again()
        queue.dead_letters = None
    elif isinstance(present, DeadLetterExchange):
        present.change(exchange, new.dead_letter_routing_key, new.at_least_once, own_headers(new))
        queue.leaving.offer_again()
    else:
        queue.dead_letters = make_dead_letters(vhost, new, exchange)


def _change_returns(vhost: VHost, queue: Queue, new: Features, expiries: ExpirySchedule) -> None:
    if needs_returns(queue, new):
        if queue.returns is None:
            queue.returns = make_returns(vhost, queue, new, expiries)
        else:
            queue.returns.change(new.delivery_limit, make_retry(vhost, queue, new), new.retry_type)
    elif queue.returns is not None:
        # As long as some are put off it stays, and gives them all back.
        queue.returns.change(-1, None, NO_RETRY)
        if queue.returns.is_idle():
            queue.returns.stop()
            queue.returns = None


def _change_activity(queue: Queue, new: Features) -> None:
    if new.single_active:
        queue.activity = SingleActive(queue.own_consumers())
        queue.activity.adopt()
    elif queue.activity is not None:
        queue.activity.release()
        queue.activity = None


def _change_selection(queue: Queue, new: Features) -> None:
    present = queue.selection
    order = make_order(new)
    if order is None:
        if present is None and not queue.is_choosy:
            return
        order = FifoOrder()
    selection = ShelfSelection(queue.leaving, queue.own_backing(), order, new.expire_anywhere, queue.has_priorities)
    queue.selection = selection
    if isinstance(present, ShelfSelection):
        selection.adopt(present)
    else:
        selection.published(-1, queue.backing.depth())
    if not selection.is_needed() and not queue.is_choosy:
        queue.selection = None


def _change_lifetime(vhost: VHost, queue: Queue, new: Features, expiries: ExpirySchedule) -> None:
    if queue.lifetime is not None:
        queue.lifetime.stop()
    queue.lifetime = make_lifetime(vhost, queue, new, expiries) if new.expires_ms > 0 else None


def _change_intake(vhost: VHost, queue: Queue, new: Features, expiries: ExpirySchedule) -> None:
    present = queue.intake
    seen: DedupGate | None = None
    if present is not None:
        for gate in present.gates:
            if isinstance(gate, DedupGate) and new.deduplication_header:
                seen = gate
                gate.change(new.deduplication_header, new.cache_size, new.cache_ttl_ms)
            else:
                gate.stop()
        if present.overflow is not None:
            present.overflow.stop()
    queue.congestion = None
    # It may have been told to keep little in memory while it was long.
    set_mode(queue)
    intake = make_intake(vhost, queue, new, expiries, seen)
    if intake is None and queue.marks is not None:
        intake = Intake(queue, -1, None)
    if intake is not None:
        intake.publishers = queue.marks
    queue.intake = intake
    if not new.deduplication_header:
        vhost.companions.drop(DEDUP, queue.name)
    if intake is not None:
        # Messages that are there count, too.
        intake.came_back()
