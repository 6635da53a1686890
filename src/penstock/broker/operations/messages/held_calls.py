"""Messages that are held: listed by due time, cancelled, put off, released now. Calls for console and command line.

A held message is in a companion queue (`amq.held-queue.NAME`, `amq.held-exchange.NAME`). The calls take that name, or
that of the queue or exchange it belongs to. An edit of a held message is `message_edits.edit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.broker.operations.call_errors import BadRequest, NoSuchQueue
from penstock.broker.operations.messages.message_edits import Changes, Edited, edit
from penstock.broker.operations.messages.message_moves import Outcome, checked_ids, delete, note_others, sync_soon
from penstock.broker.operations.messages.message_search import Matcher, Query
from penstock.broker.operations.messages.message_view import BODY_BYTES_SHOWN, MessageView, view
from penstock.broker.operations.messages.message_walk import HELD, LOOKS_MAX, Seen, read_pending
from penstock.broker.vhost.companions import HELD_FOR_EXCHANGE, HELD_FOR_QUEUE, companion_kind, companion_owner
from penstock.queues.delayed.held_selection import HeldSelection
from penstock.queues.leaving.dead_letters import EXPIRED
from penstock.queues.queue import Queue
from penstock.queues.taking import take

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost


@dataclass(slots=True)
class HeldQueue:
    """One place where messages are held."""

    name: str
    # queue or exchange, and its name.
    held_for: str
    owner: str
    count: int
    size_bytes: int
    # None: nothing is held, or due times are still being read after a start.
    next_due_ms: int | None


@dataclass(slots=True)
class HeldPage:
    """Held messages in the order in which they are due."""

    messages: list[MessageView] = field(default_factory=list)
    # Where the next page begins; None: this was the last one.
    next_due_ms: int | None = None
    next_seq_id: int | None = None
    # After a start, due times are read in slices: until that is done, some messages are not listed.
    is_complete: bool = True


def held(vhost: VHost) -> list[HeldQueue]:
    """Where messages are held in a vhost."""
    found: list[HeldQueue] = []
    for queue in vhost.companions.queues.values():
        selection = queue.selection
        if not isinstance(selection, HeldSelection) or queue.crashed:
            continue
        upcoming = [] if selection.is_filling else selection.upcoming(1, 0, 0)
        found.append(
            HeldQueue(
                queue.name,
                "queue" if companion_kind(queue.arguments) == HELD_FOR_QUEUE else "exchange",
                companion_owner(queue.arguments),
                queue.ready_count(),
                queue.ready_bytes(),
                upcoming[0][0] if upcoming else None,
            )
        )
    return found


def list_held(
    vhost: VHost,
    name: str,
    from_due_ms: int = 0,
    from_seq_id: int = 0,
    count: int = 50,
    query: Query | None = None,
    body_bytes_max: int = BODY_BYTES_SHOWN,
) -> HeldPage:
    """Held messages from a due time on; with a query those that it matches, among the next ones."""
    if not 1 <= count <= LOOKS_MAX:
        raise BadRequest(f"count is {count}; ask for 1 to {LOOKS_MAX} messages at a time")
    queue, selection = find_held(vhost, name)
    matcher = None if query is None else Matcher(query)
    looks = count if matcher is None else LOOKS_MAX
    upcoming = selection.upcoming(looks, max(0, from_due_ms), max(0, from_seq_id))
    page = HeldPage(is_complete=not selection.is_filling)
    for due_ms, seq_id in upcoming:
        if len(page.messages) >= count:
            break
        page.next_due_ms, page.next_seq_id = due_ms, seq_id + 1
        run = queue.backing.browse(seq_id, 1, 0)
        if run is not None and run.first_seq_id == seq_id:
            seen = Seen(seq_id, run.entries[0], HELD, run.redelivered)
            if matcher is None or matcher.matches(queue, seen):
                page.messages.append(view(queue, seen, body_bytes_max))
    if page.next_due_ms is not None and not selection.upcoming(1, page.next_due_ms, page.next_seq_id or 0):
        page.next_due_ms = page.next_seq_id = None
    return page


def cancel(vhost: VHost, name: str, seq_ids: Sequence[int]) -> Outcome:
    """They will never be delivered."""
    return delete(vhost, find_held(vhost, name)[0].name, seq_ids)


def reschedule(vhost: VHost, name: str, seq_id: int, due_ms: int) -> Edited:
    """Another due time; the message has another number then."""
    return edit(vhost, find_held(vhost, name)[0].name, seq_id, Changes(due_ms=due_ms))


def release_now(vhost: VHost, name: str, seq_ids: Sequence[int]) -> Outcome:
    """Have messages delivered now, by the way on which they would go when they are due."""
    queue, _ = find_held(vhost, name)
    chosen = checked_ids(seq_ids)
    outcome = Outcome()
    taken = take(queue, chosen)
    queue.leaving.dead_letter(taken, EXPIRED)
    stay = {seq_id for seq_id, _ in read_pending(queue.backing, taken)}
    # What a queue has refused is offered again by itself, every second.
    outcome.refused = [seq_id for seq_id in taken if seq_id in stay]
    outcome.done = [seq_id for seq_id in taken if seq_id not in stay]
    note_others(queue, chosen, outcome)
    sync_soon(vhost)
    return outcome


def find_held(vhost: VHost, name: str) -> tuple[Queue, HeldSelection]:
    """By the name of the companion, or of the queue or exchange that it belongs to."""
    companions = vhost.companions
    for queue in (
        companions.queues.get(name),
        companions.find(HELD_FOR_QUEUE, name),
        companions.find(HELD_FOR_EXCHANGE, name),
    ):
        if queue is not None and isinstance(queue.selection, HeldSelection) and not queue.crashed:
            return queue, queue.selection
    raise NoSuchQueue(f"nothing is held under '{name}' in vhost '{vhost.name}'; `held` lists where messages are held")
