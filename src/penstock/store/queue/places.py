"""Where a message is: the few numbers that the index, the queues, the checkpoint and recovery agree on.

A message is in RAM only, in the journal, in its queue's own store, or in the vhost's shared store. A `Slot` says which,
and where there. It is made when a message is paged out or moves home, is written into the queue index or the
checkpoint, and dies when the message's segment of the index is removed.

What the three numbers `segment`, `pos`, `entry` of a slot mean:

    JOURNAL      number of the journal segment, position of the batch in it, number of the entry in the batch
    QUEUE_STORE  number of the queue store's file, position of the record in it, bytes of the record
    MSG_STORE    upper half and lower half of the address in the shared store, 0

Invariants
  1. These numbers are on disk. They never get another meaning; new ones may be added.
  2. A slot on disk never says MEMORY: what is only in RAM has no place.
  3. `segment`, `pos`, `entry` and `size_bytes` fit into 32 bits without a sign.
"""

from __future__ import annotations

from errno import ENOENT
from typing import Final

MEMORY: Final = 0
JOURNAL: Final = 1
QUEUE_STORE: Final = 2
MSG_STORE: Final = 3

# Flags of a slot.
PERSISTENT: Final = 1
DELIVERED: Final = 2

# (place_kind, flags, size_bytes, expiry_ms, segment, pos, entry). The size is the payload's, the expiry -1 for never.
Slot = tuple[int, int, int, int, int, int, int]


def is_damage(error: OSError) -> bool:
    """Return whether an error of a read says that the bytes are gone. All others may pass, and cost no message."""
    return error.errno == ENOENT


class StoreError(Exception):
    """Bytes on the disk are not what they have to be. The text names the file; the owner decides what it costs."""


class UnknownVersion(StoreError):
    """A file is whole, but of a format that this version of penstock does not read. The text says what to do."""


def address_of(slot: Slot) -> int:
    """Return the address in the shared store that a MSG_STORE slot holds."""
    assert slot[0] == MSG_STORE
    return slot[4] << 32 | slot[5]


def shared_slot(flags: int, size_bytes: int, expiry_ms: int, address: int) -> Slot:
    assert address >= 0
    return (MSG_STORE, flags, size_bytes, expiry_ms, address >> 32, address & 0xFFFFFFFF, 0)
