"""Whether the rows of a batch can be meant as they stand, although their checksum is right.

Neither rot nor a client can make such rows; a fault in a broker can, or a version that this one does not know. They are
reported like damage, so that a reader never stops at them.
"""

from __future__ import annotations

import numpy as np

from penstock.journal.format.layout import ALIGN_BYTES, HEADER_BYTES
from penstock.journal.format.rows import NAME, PUBLISHED
from penstock.pipeline.decode.group.entries import Entries
from penstock.pipeline.decode.group.group import Batch, Group, Ints, Lengths
from penstock.pipeline.decode.group.rows import Rows


def is_sane(group: Group, rows: Rows, entries: Entries) -> bool:
    """Return whether counts and lengths add up, and entries are inside their batch."""
    batches = group.batches
    props_len, body_len = entries.disk_lengths
    if (rows.count < 1).any() or (entries.count and min(props_len.min(), body_len.min()) < 0):
        return False
    row_counts = np.array([batch.rows for batch in batches])
    if not (
        _adds_up(rows.count, row_counts, [batch.next_lsn - batch.first_lsn for batch in batches])
        and _adds_up(props_len, entries.counts, [batch.props_bytes for batch in batches])
        and _adds_up(body_len, entries.counts, [batch.heap_bytes - batch.props_bytes for batch in batches])
    ):
        return False
    has_entry = (rows.kind == PUBLISHED) | (rows.kind == NAME)
    first, ends = rows.entry[has_entry], np.cumsum(entries.counts)[rows.batch[has_entry]]
    return bool((first >= 0).all() and (first + rows.count[has_entry] <= ends).all())


def alone(group: Group, number: int) -> Group:
    """One batch of a group as a group of its own."""
    batch = group.batches[number]
    single = Group(group.window, group.seed)
    single.batches.append(batch)
    single.events = batch.next_lsn - batch.first_lsn
    if number in group.bad_blocks:
        single.bad_blocks[0] = group.bad_blocks[number]
    return single


def stretch_of(batch: Batch) -> tuple[int, int]:
    """Position and bytes of a batch in its segment."""
    size = HEADER_BYTES + batch.heap_at + batch.heap_bytes - batch.meta_at
    size += -size % ALIGN_BYTES
    return batch.end - size, size


def _adds_up(values: Ints | Lengths, counts: Ints, totals: list[int]) -> bool:
    """Whether the first `counts[0]` values have the sum `totals[0]`, the next `counts[1]` the next, and so on."""
    wanted = np.array(totals)
    # A sum over nothing is not one that `reduceat` knows.
    has_some = counts > 0
    if wanted[~has_some].any():
        return False
    starts = (np.cumsum(counts) - counts)[has_some]
    return not len(starts) or bool((np.add.reduceat(values, starts, dtype=np.int64) == wanted[has_some]).all())
