"""Which of some numbers, from a page or an earlier search, are those of ready messages. Nothing is taken."""

from __future__ import annotations

from penstock import limits
from penstock.backing.backing_queue import BackingQueue


def first_ready(backing: BackingQueue) -> int:
    """Return the number at the head of the backing; -1 when nothing is ready there."""
    run = backing.browse(0, 1, 0)
    return -1 if run is None else run.first_seq_id


def ready_among(backing: BackingQueue, seq_ids: list[int]) -> list[int]:
    """Return those of the numbers, which are sorted, that are ready in the backing."""
    found: list[int] = []
    index = 0
    while index < len(seq_ids):
        stop = index + 1
        while stop < len(seq_ids) and seq_ids[stop] == seq_ids[stop - 1] + 1:
            stop += 1
        run = backing.browse(seq_ids[index], stop - index, limits.PULL_BYTES_MAX)
        if run is None:
            break
        last = run.first_seq_id + len(run.entries) - 1
        while index < len(seq_ids) and seq_ids[index] <= last:
            if seq_ids[index] >= run.first_seq_id:
                found.append(seq_ids[index])
            index += 1
    return found
