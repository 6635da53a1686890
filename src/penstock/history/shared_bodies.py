"""Large bodies, read out of the shared stores of the vhosts (docs/formats/message-store.md).

A body is looked for where its address says, and then in the files that compaction wrote, whose tables never change. It
counts if its record has this address, this size, and all its checksums right: nothing else is ever answered. No file
stays open, since an open file keeps the bytes of what the broker removes.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.disk.files import Files
from penstock.store.shared.body_map import LOWER_HALF, StoreFile
from penstock.store.shared.handles import HandleCache
from penstock.store.shared.records import BadRecord, decode_record
from penstock.store.shared.store_files import StoreFolder

# As the broker makes them; what a damaged name says never becomes a path.
_VHOST_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
_OPEN_MAX: Final = 4
# An address is two halves of 32 bits, without a sign.
ADDRESS_MAX: Final = 2**63 - 1


class SharedBodies:
    def __init__(self, files: Files) -> None:
        self._handles = HandleCache(files, _OPEN_MAX)
        self._files = files
        self._folders: dict[str, StoreFolder] = {}
        # By vhost and number of a compacted file: offsets by address.
        self._tables: dict[tuple[str, int], dict[int, int]] = {}

    def read(self, vhost_id: str, address: int, size: int) -> bytes | None:
        """Return the payload; None when it is not there any more, or damaged."""
        if not _VHOST_ID.fullmatch(vhost_id) or not 0 <= address <= ADDRESS_MAX:
            return None
        folder = self._folders.get(vhost_id)
        if folder is None:
            path = f"vhosts/{vhost_id}/shared/persistent"
            folder = self._folders[vhost_id] = StoreFolder(self._files, path, self._handles, True)
        try:
            body = self._read_at(folder, StoreFile(address >> 32, False), address & LOWER_HALF, address)
            if body is None:
                body = self._read_copy(vhost_id, folder, address)
        finally:
            folder.close()
        return body if body is not None and len(body) == size else None

    def _read_copy(self, vhost_id: str, folder: StoreFolder, address: int) -> bytes | None:
        files = sorted(folder.compacted(), key=_number_of, reverse=True)
        present = {file.number for file in files}
        gone = [key for key in self._tables if key[0] == vhost_id and key[1] not in present]
        for key in gone:
            del self._tables[key]
        # The newest first: a copy may have been copied again.
        for file in files:
            table = self._tables.get((vhost_id, file.number))
            if table is None:
                try:
                    table = dict(folder.table(file, folder.size(file)))
                except FileNotFoundError:
                    continue
                self._tables[vhost_id, file.number] = table
            if address in table:
                body = self._read_at(folder, file, table[address], address)
                if body is not None:
                    return body
        return None

    def _read_at(self, folder: StoreFolder, file: StoreFile, offset: int, address: int) -> bytes | None:
        try:
            known_as, size = folder.record_at(file, offset)
            if known_as != address:
                return None
            record = decode_record(folder.read(file, size, offset), 0)
        except BadRecord:
            return None
        # The last octet is the end of a frame, not the publisher's.
        return record.body[:-1] if record.address == address else None


def _number_of(file: StoreFile) -> int:
    return file.number
