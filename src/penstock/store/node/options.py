"""The numbers that the store is tuned with, in one place, with their units.

`index_slots` may change between lives: each index file has its own number, and a queue's state has the one that its
live map counts in. A retention of 0 bytes or 0 seconds means that history goes as soon as nothing needs it and every
reader has read it. Tests use tiny numbers, so that every boundary is crossed.
"""

from __future__ import annotations

from typing import final

from penstock.journal.options import JournalOptions
from penstock.store.shared.message_store import MessageStoreOptions


@final
class StoreOptions:
    __slots__ = (
        "checkpoint_bytes",
        "checkpoint_files",
        "checkpoint_s",
        "embed_below",
        "handles_max",
        "index_slots",
        "journal",
        "message_store",
        "ram_cap",
        "ram_slack",
        "readers_bytes_max",
        "reserve_bytes",
        "retention_bytes",
        "retention_s",
        "slice_s",
    )

    def __init__(
        self,
        journal: JournalOptions | None = None,
        message_store: MessageStoreOptions | None = None,
        index_slots: int = 4096,
        embed_below: int = 4096,
        ram_cap: int = 2048,
        ram_slack: int = 8192,
        checkpoint_bytes: int = 512 << 20,
        checkpoint_s: float = 60.0,
        retention_bytes: int = 1 << 30,
        retention_s: float = 7 * 86_400.0,
        readers_bytes_max: int = 10 << 30,
        reserve_bytes: int = 128 << 20,
        handles_max: int = 512,
        slice_s: float = 0.002,
        checkpoint_files: int = 256,
    ) -> None:
        self.journal = JournalOptions() if journal is None else journal
        self.message_store = MessageStoreOptions() if message_store is None else message_store
        # Messages per index segment, and per file of a queue's store.
        self.index_slots = index_slots
        # Bodies of this size and above go to the shared store (RabbitMQ's queue_index_embed_msgs_below).
        self.embed_below = embed_below
        # Messages of one queue that stay in RAM when it pages; and how far above that eviction begins.
        self.ram_cap = ram_cap
        self.ram_slack = ram_slack
        # A checkpoint is due after so many bytes of journal, after so many files of queues were begun or given up, or
        # after so many seconds in which anything changed.
        self.checkpoint_bytes = checkpoint_bytes
        self.checkpoint_files = checkpoint_files
        self.checkpoint_s = checkpoint_s
        # History: journal segments that are no longer needed are kept up to this size and this age.
        self.retention_bytes = retention_bytes
        self.retention_s = retention_s
        # Beyond that, what named readers have not read is kept up to this size; 0 = readers hold nothing.
        self.readers_bytes_max = readers_bytes_max
        # Room that is set aside for a full disk: two segments, so that acks and deletes can still be written.
        self.reserve_bytes = reserve_bytes
        # Open files of all queues together.
        self.handles_max = handles_max
        # How long a slice of work in the background may hold up a turn.
        self.slice_s = slice_s
