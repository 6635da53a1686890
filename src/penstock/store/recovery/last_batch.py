"""Decides whether the last batch of the journal is there with everything that it refers to.

Large bodies are in the shared store, and a batch that names them is durable when both are synced. A crash before that
may leave the batch whole and the bodies not. Then no publisher was told that the batch is durable, and taking only a
part of it would tear a transaction: it counts as torn, like a batch that misses bytes of its own.

Invariants
  1. Only a batch that no later one, and no checkpoint, proves to be durable is judged. What is missing in others is
     damage, and is reported message by message.
  2. A body that the batch itself settles again is not looked for: it was perhaps never written.
  3. Every byte of the others is compared with its checksum, where they were put or where compaction has copied them to:
     the batch may be durable for long, with nothing behind it.
"""

from __future__ import annotations

from typing import final

from penstock.disk.files import Files
from penstock.journal.format import rows
from penstock.journal.format.layout import REFERENCE_BODY
from penstock.journal.reading.replay import BatchView
from penstock.store.node.queue_names import parse_label
from penstock.store.recovery.replaying import Replaying
from penstock.store.shared.body_map import LOWER_HALF, StoreFile
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.records import BadRecord, decode_record
from penstock.store.shared.store_files import StoreFolder


@final
class LastBatch:
    def __init__(self, files: Files, handles: HandleCache, replaying: Replaying) -> None:
        self._files = files
        self._handles = handles
        self._replaying = replaying
        # By vhost.
        self._folders: dict[str, StoreFolder] = {}
        self._copied: dict[str, dict[int, list[tuple[StoreFile, int]]]] = {}

    def is_whole(self, batch: BatchView) -> bool:
        """Return whether all large bodies are there that the batch refers to and does not settle."""
        if batch.next_lsn <= self._replaying.known_lsn:
            return True
        gone = self._settled(batch)
        for row in batch.rows:
            if row[rows.ROW_KIND] != rows.PUBLISHED or not row[rows.ROW_FLAGS] & rows.REFERENCE:
                continue
            number, seq_id, entry = row[rows.ROW_QUEUE], row[rows.ROW_SEQ], row[rows.ROW_ENTRY]
            vhost_id = self._vhost_id(batch, number)
            for position in range(row[rows.ROW_COUNT]):
                address = REFERENCE_BODY.unpack(batch.body(entry + position))[0]
                is_gone = any([start <= seq_id + position < end for start, end in gone.get(number, [])])
                if vhost_id and not is_gone and not self._is_there(vhost_id, address):
                    return False
        return True

    def _settled(self, batch: BatchView) -> dict[int, list[tuple[int, int]]]:
        """By queue number the seq_ids that are gone again, from … up to."""
        gone: dict[int, list[tuple[int, int]]] = {}
        for row in batch.rows:
            if row[rows.ROW_KIND] in rows.GONE_KINDS:
                start = row[rows.ROW_SEQ]
                gone.setdefault(row[rows.ROW_QUEUE], []).append((start, start + row[rows.ROW_COUNT]))
            elif row[rows.ROW_KIND] == rows.FORGET:
                gone.setdefault(row[rows.ROW_QUEUE], []).append((0, 1 << 62))
        return gone

    def _vhost_id(self, batch: BatchView, number: int) -> str:
        """Whose store is meant; empty when the queue has no name."""
        name = self._replaying.names.name(number)
        for row in batch.rows:
            if row[rows.ROW_KIND] == rows.NAME and row[rows.ROW_ARG] == rows.NAME_QUEUE and row[rows.ROW_SEQ] == number:
                name = parse_label(batch.body(row[rows.ROW_ENTRY]))
        return "" if name is None else name.vhost_id

    def _is_there(self, vhost_id: str, address: int) -> bool:
        folder = self._folders.get(vhost_id)
        if folder is None:
            path = f"vhosts/{vhost_id}/shared/persistent"
            folder = self._folders[vhost_id] = StoreFolder(self._files, path, self._handles, True)
        if self._is_at(folder, StoreFile(address >> 32, False), address & LOWER_HALF, address):
            return True
        for file, offset in self._copies(vhost_id, folder).get(address, []):
            if self._is_at(folder, file, offset, address):
                return True
        return False

    def _is_at(self, folder: StoreFolder, file: StoreFile, offset: int, address: int) -> bool:
        try:
            size = folder.record_at(file, offset)[1]
            return decode_record(folder.read(file, size, offset), 0).address == address
        except BadRecord:
            return False

    def _copies(self, vhost_id: str, folder: StoreFolder) -> dict[int, list[tuple[StoreFile, int]]]:
        """Where compaction has copied bodies to, by address; read when the first body is not where it was put."""
        copies = self._copied.get(vhost_id)
        if copies is None:
            copies = self._copied[vhost_id] = {}
            for file in folder.compacted():
                for address, offset in folder.table(file, folder.size(file)):
                    copies.setdefault(address, []).append((file, offset))
        return copies

    def close(self) -> None:
        for folder in self._folders.values():
            folder.close()
