"""Looking at the messages of a queue, and stopping and starting it: calls for the console and the command line.

`message_search` finds messages, `message_moves` and `message_edits` change them, `held_calls` is about held ones,
`redrive` about dead letters. They are synchronous, run on the broker's thread, and are bounded: whatever a queue holds,
one call looks at some thousand messages and says where to go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.broker.operations.call_errors import BadRequest, find_queue
from penstock.broker.operations.messages.message_view import BODY_BYTES_SHOWN, MessageView, view
from penstock.broker.operations.messages.message_walk import LOOKS_MAX, Walk
from penstock.broker.vhost.companions import companion_kind

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost


@dataclass(slots=True)
class Page:
    """Messages of a queue, in the order of their numbers."""

    messages: list[MessageView] = field(default_factory=list)
    # Where the next page begins; None: this was the last one.
    next_seq_id: int | None = None


@dataclass(slots=True)
class QueueState:
    queue: str
    paused: bool
    # Whether it will be so after a restart.
    lasts: bool


def peek(
    vhost: VHost,
    queue_name: str,
    from_seq_id: int = 0,
    count: int = 50,
    body_bytes_max: int = BODY_BYTES_SHOWN,
    with_unacked: bool = False,
) -> Page:
    """Return messages from a number on. Neither order nor flags nor counters change."""
    if not 1 <= count <= LOOKS_MAX:
        raise BadRequest(f"count is {count}; ask for 1 to {LOOKS_MAX} messages at a time")
    queue = find_queue(vhost, queue_name)
    walk = Walk(queue, from_seq_id, count, with_unacked)
    messages = [view(queue, seen, body_bytes_max) for seen in walk.messages()]
    return Page(messages, walk.next_seq_id)


def pause(vhost: VHost, queue_name: str) -> QueueState:
    """Hand out nothing from now on, also after a restart. Messages are still taken in."""
    return _set_paused(vhost, queue_name, True)


def resume(vhost: VHost, queue_name: str) -> QueueState:
    return _set_paused(vhost, queue_name, False)


def _set_paused(vhost: VHost, queue_name: str, is_paused: bool) -> QueueState:
    queue = find_queue(vhost, queue_name)
    if companion_kind(queue.arguments):
        raise BadRequest(f"'{queue_name}' is a companion; pause the queue that it belongs to")
    if queue.paused != is_paused:
        if is_paused:
            queue.pause()
        else:
            queue.resume()
        if queue.durable and vhost.log is not None:
            vhost.log.queue_declared(vhost.name, queue)
    return QueueState(queue_name, is_paused, queue.durable and vhost.log is not None)
