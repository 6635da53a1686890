"""Fetching from a queue that holds messages of the broker's last run.

While messages are published, the queue notes whether they expire and in what order, and fetches one at a time where it
must. It knows nothing of recovered ones, and cannot ask without reading all of them; so what was fetched is looked at
instead. From the first message that has expired, the run goes back. There the expired one comes to the head, where it
is dropped like any other (RabbitMQ's rule), before the next fetch.

Invariants
  1. No message that has expired is in the run that is returned, provided that the head had not.
  2. What goes back keeps its position. It is marked redelivered, although it was not delivered: allowed, and rare.
     History says the same of it.
"""

from __future__ import annotations

from penstock.backing.backing_queue import BackingQueue
from penstock.backing.outcomes import FETCHED, REASON_NONE, THE_QUEUE
from penstock.message import Run


def fetch_unexpired(
    backing: BackingQueue, count_max: int, bytes_max: int, ack_required: bool, now_ms: int, actor: int
) -> Run | None:
    """Like `BackingQueue.fetch`, up to a message that has expired. The head must not have."""
    # Messages without acknowledgement are the queue's until it is known how far the run goes.
    run = backing.fetch(count_max, bytes_max, True, actor if ack_required else THE_QUEUE)
    if run is None:
        return None
    entries = run.entries
    first = run.first_seq_id
    for index in range(1, len(entries)):
        props = entries[index][2]
        if props is not None and 0 <= props.expiry_ms <= now_ms:
            backing.requeue(range(first + index, first + len(entries)), failed=False)
            run = Run(first, entries[:index], run.redelivered)
            break
    if not ack_required:
        backing.ack(range(first, first + len(run.entries)), FETCHED, REASON_NONE, actor)
    return run
