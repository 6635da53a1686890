"""`penstock` with a store of tiny limits: `python -m tests.crash.small_store serve ...`.

Segments, index files and shared files are left after some hundred messages, queues page almost everything, and a
checkpoint is always under way: so a kill hits all of that, which with the real limits it hits once in hours.
"""

from __future__ import annotations

from penstock import limits
from penstock.cli.main import main
from penstock.journal.options import JournalOptions
from penstock.server.sync import open_store
from penstock.store.node.options import StoreOptions
from penstock.store.shared.message_store import MessageStoreOptions

KIB = 1024


def small_options(journal: JournalOptions, **_: object) -> StoreOptions:
    """In the place of those that the server asks for."""
    journal.segment_bytes = 2048 * KIB
    journal.batch_bytes_max = 256 * KIB
    journal.cache_bytes = 256 * KIB
    return StoreOptions(
        journal,
        MessageStoreOptions(file_bytes=1024 * KIB, own_file_bytes=200_000, buffer_bytes=64 * KIB),
        index_slots=256,
        ram_cap=64,
        ram_slack=128,
        checkpoint_bytes=2048 * KIB,
        checkpoint_s=0.2,
        retention_bytes=4096 * KIB,
        retention_s=2.0,
        reserve_bytes=1024 * KIB,
        handles_max=24,
    )


if __name__ == "__main__":
    # The server's room is not compiled, and takes its options from here.
    limits.STOP_SYNC_S = 1.0  # type: ignore[misc]
    open_store.StoreOptions = small_options  # type: ignore[assignment,misc]
    main()
