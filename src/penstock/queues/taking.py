"""Takes messages of a queue by number, past all consumers: for operators.

`take` makes ready messages pending. The caller settles each of them: `drop_taken` when it is elsewhere or deleted,
`Leaving.dead_letter` to have it moved on, `Leaving.give_back` when it stays after all. Messages that a consumer has
stay there, and neither deliveries nor acknowledgements are counted. A crash leaves taken messages that were not settled
ready, as all pending ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.backing.outcomes import MOVED, PURGED, THE_QUEUE
from penstock.queues.queue import Queue


def take(queue: Queue, seq_ids: Sequence[int]) -> list[int]:
    """Take ready messages; the numbers of those that could be had, in the order given."""
    if queue.deleted or queue.crashed or not seq_ids:
        return []
    if queue.selection is not None:
        taken = queue.selection.take(seq_ids)
    else:
        taken = [seq_id for seq_id, _ in queue.backing.fetch_at(seq_ids, THE_QUEUE)]
    # Another message may be at the head now, and may expire.
    queue.expiry.arm()
    return taken


def drop_taken(queue: Queue, seq_ids: Sequence[int], outcome: int = MOVED) -> None:
    """Remove messages that were taken; the outcome says what became of them."""
    if not queue.deleted and not queue.crashed:
        queue.backing.ack(seq_ids, outcome)
        if queue.selection is not None:
            queue.settled(seq_ids)


def purge_first(queue: Queue, count: int) -> int:
    """Drop the first ready messages; how many there were."""
    purged = 0
    if queue.selection is not None:
        purged = queue.backing.ack(queue.selection.take(queue.selection.first_shelved(count)), PURGED)
    if queue.selection is None or not queue.selection.leaves_ready():
        while purged < count and queue.backing.drop(False, PURGED) is not None:
            purged += 1
    queue.expiry.forget_if_empty()
    return purged
