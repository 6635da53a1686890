"""The files of a shared store: their names, what they begin and end with, and the handles.

`<number>.pms` is a file that bodies are put into, `<number>-c.pms` one that compaction wrote, `<number>-c.tmp` one that
compaction is writing. docs/formats/message-store.md has the layout. A file is made when the first bytes for it are
written, and removed when nothing in it is wanted. The handle of a file that is written, or not synced yet, belongs to
the store; for reading, handles come from the cache and may be asked back at any time.

Invariants
  1. Before a batch of the journal is called durable that refers to a record, the names of the record's file and of the
     folders above it are durable: `take_unsynced` hands out the folders with the file.
  2. The newest file of a persistent store keeps its name, cut to its head when nothing in it is wanted, so that after a
     restart no number is given again: old addresses in the journal's history never lead to another message.
  3. A handle that was given out to be synced stays open until the journal has said that it is durable.
  4. Records are found by an address, by the table of a compacted file, or by hopping from head to head. Nothing looks
     for something that is like a record: bodies may be.

A crash leaves drafts (`.tmp`), which start() removes, and files that were to be removed, in which it finds nothing that
is wanted. A damaged file head costs nothing: every record says for itself which one it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

from penstock.disk.checksum import crc32
from penstock.disk.files import File, Files, write_all
from penstock.store.queue.places import UnknownVersion, is_damage
from penstock.store.shared.body_map import FILE_HEAD_BYTES, StoreFile
from penstock.store.shared.handles import HandleCache, HandleOwner
from penstock.store.shared.records import RECORD_HEAD_BYTES, BadRecord, record_bytes

MAGIC: Final = b"PnMs"
VERSION: Final = 1
# magic, version, number, 1 when compacted, CRC of the folder's path, nothing; then the CRC of these 60 bytes.
_HEAD: Final = Struct("<4sIIII40x")
_CRC: Final = Struct("<I")
# Behind the records of a compacted file: addresses, offsets, then this: magic, how many, bytes of the records, CRC.
TABLE_MAGIC: Final = b"PnMt"
_TABLE_END: Final = Struct("<4sIII")
_TABLE_ENTRY_BYTES: Final = 12
# Where the address is in the head of a record.
_RECORD_ADDRESS: Final = Struct("<24xq")

# (address, offset in the file)
TableEntry = tuple[int, int]


def file_name(number: int, compacted: bool) -> str:
    return f"{number:08d}-c.pms" if compacted else f"{number:08d}.pms"


def file_head(number: int, compacted: bool, folder: str) -> bytes:
    """What a file of a folder begins with."""
    head = _HEAD.pack(MAGIC, VERSION, number, 1 if compacted else 0, crc32(folder.encode()))
    return head + _CRC.pack(crc32(head))


def encode_table(addresses: Sequence[int], offsets: Sequence[int], data_bytes: int) -> bytes:
    """What a compacted file ends with: where each record is, so that a start need not read them."""
    entries = Struct(f"<{len(addresses)}q{len(offsets)}I").pack(*addresses, *offsets)
    crc = crc32(_TABLE_END.pack(TABLE_MAGIC, len(addresses), data_bytes, 0), crc32(entries))
    return entries + _TABLE_END.pack(TABLE_MAGIC, len(addresses), data_bytes, crc)


class StoreFolder(HandleOwner):
    def __init__(self, files: Files, folder: str, handles: HandleCache, persistent: bool) -> None:
        self.files = files
        self.folder = folder
        self.persistent = persistent
        self._handles = handles
        self._is_made = False
        # Files that are written, or whose last bytes are not synced.
        self._writers: dict[int, tuple[StoreFile, File]] = {}
        # Numbers of the files with bytes that were not handed out for a sync.
        self._unsynced: set[int] = set()
        # Folders with names that are not synced, and those that were handed out for a sync.
        self._unsynced_folders: list[str] = []
        self._lent_folders: list[File] = []

    def path(self, file: StoreFile) -> str:
        return f"{self.folder}/{file_name(file.number, file.compacted)}"

    # --- writing ----------------------------------------------------------------------------------

    def writer(self, file: StoreFile) -> File:
        """Return the handle for putting records into a file, which is made when there is none."""
        writer = self._writers.get(file.number)
        if writer is not None:
            return writer[1]
        assert not file.on_disk, "only new files are written"
        handle = self.make(file, self.path(file))
        if self.persistent and self.folder not in self._unsynced_folders:
            self._unsynced_folders.append(self.folder)
        self._writers[file.number] = (file, handle)
        file.on_disk = True
        return handle

    def make(self, file: StoreFile, path: str) -> File:
        self._make_folder()
        # A failed attempt may have left one.
        self.files.unlink(path)
        handle = self.files.create(path)
        try:
            write_all(handle, [file_head(file.number, file.compacted, self.folder)], 0)
        except OSError:
            handle.close()
            self.files.unlink(path)
            raise
        return handle

    def written(self, file: StoreFile) -> None:
        """Records were written into this file."""
        if self.persistent:
            self._unsynced.add(file.number)
        else:
            self.close_writers(self.given_out())

    def take_unsynced(self) -> list[File]:
        """Return files with bytes that are not synced, and the folders with their names.

        The files stay open until `close_writers`, the folders until `close_folders`. After an OSError nothing is taken.
        """
        if not self._unsynced:
            return []
        folders: list[File] = []
        try:
            for path in self._unsynced_folders:
                folders.append(self.files.open_folder(path))
        except OSError:
            for folder in folders:
                folder.close()
            raise
        self._unsynced_folders.clear()
        self._lent_folders.extend(folders)
        taken = [self._writers[number][1] for number in sorted(self._unsynced)]
        self._unsynced.clear()
        return [*folders, *taken]

    def lent_folders(self) -> list[File]:
        """Folders that `take_unsynced` has handed out, and that are open."""
        return list(self._lent_folders)

    def close_folders(self, folders: Sequence[File]) -> None:
        """These folders are synced."""
        for folder in folders:
            folder.close()
        self._lent_folders = [folder for folder in self._lent_folders if folder not in folders]

    def given_out(self) -> list[int]:
        """Return files that are complete, and that `take_unsynced` has handed out if they must be synced at all."""
        return [n for n, writer in self._writers.items() if writer[0].is_settled() and n not in self._unsynced]

    def close_writers(self, numbers: Sequence[int]) -> None:
        """These files are synced, or need not be."""
        for number in numbers:
            writer = self._writers.pop(number, None)
            if writer is not None:
                writer[1].close()

    def _make_folder(self) -> None:
        if self._is_made:
            return
        self.files.make_dir(self.folder)
        if self.persistent:
            # All of them may be new, and a process that was killed may have made them without a sync.
            parts = self.folder.split("/")
            self._unsynced_folders.extend(["/".join(parts[:count]) for count in range(len(parts))])
        self._is_made = True

    # --- reading ----------------------------------------------------------------------------------

    def read(self, file: StoreFile, size_bytes: int, offset: int) -> bytes:
        """Return bytes of a file; fewer at its end. BadRecord when the file is gone.

        Other errors, as EIO or too many open files, say nothing about the record, and are raised as they are.
        """
        try:
            return self._reader(file).pread(size_bytes, offset)
        except OSError as error:
            if is_damage(error):
                raise BadRecord(f"cannot be read: {error}", offset) from error
            raise

    def size(self, file: StoreFile) -> int:
        return self._reader(file).size()

    def sync_names(self) -> None:
        """Make the names of all files durable, and of the folders above, here and now."""
        parts = self.folder.split("/")
        for count in range(len(parts) + 1):
            self.files.sync_dir("/".join(parts[:count]))

    def sync(self, file: StoreFile) -> None:
        """Make a file durable, here and now."""
        self._reader(file).fdatasync()

    def _reader(self, file: StoreFile) -> File:
        writer = self._writers.get(file.number)
        return writer[1] if writer is not None else self._handles.open(self, self.path(file))

    def record_at(self, file: StoreFile, offset: int) -> tuple[int, int]:
        """Return address and bytes of the record at an offset, from its head. Raises BadRecord."""
        head = self.read(file, RECORD_HEAD_BYTES, offset)
        size = record_bytes(head, 0)
        return int(_RECORD_ADDRESS.unpack_from(head)[0]), size

    def table(self, file: StoreFile, size_bytes: int) -> list[TableEntry]:
        """The records of a compacted file: from its table, or, when that is damaged, from the heads of the records."""
        at = size_bytes - _TABLE_END.size
        if at < FILE_HEAD_BYTES:
            return []
        try:
            _, count, data_bytes, crc = _TABLE_END.unpack(self.read(file, _TABLE_END.size, at))
            # The count is believed only if it fills the file; so nothing is read that is not there.
            if FILE_HEAD_BYTES + data_bytes + count * _TABLE_ENTRY_BYTES == at:
                entries = self.read(file, count * _TABLE_ENTRY_BYTES, FILE_HEAD_BYTES + data_bytes)
                if crc32(_TABLE_END.pack(TABLE_MAGIC, count, data_bytes, 0), crc32(entries)) == crc:
                    numbers = Struct(f"<{count}q{count}I").unpack(entries)
                    return list(zip(numbers[:count], numbers[count:], strict=True))
        except BadRecord:
            # The records may be readable all the same.
            return self._hop(file)
        return self._hop(file)

    def _hop(self, file: StoreFile) -> list[TableEntry]:
        found: list[TableEntry] = []
        offset = FILE_HEAD_BYTES
        while True:
            try:
                address, size = self.record_at(file, offset)
            except BadRecord:
                return found
            found.append((address, offset))
            offset += size

    # --- names ------------------------------------------------------------------------------------

    def found(self) -> list[StoreFile]:
        """Return the files that there are, by number. Drafts are removed."""
        found: list[StoreFile] = []
        for name in self.files.list_dir(self.folder):
            stem, _, ending = name.partition(".")
            number = stem.removesuffix("-c")
            if not number.isdecimal():
                continue
            if ending == "tmp":
                self.files.unlink(f"{self.folder}/{name}")
            elif ending == "pms":
                file = StoreFile(int(number), number != stem)
                file.on_disk = True
                file.sealed = True
                found.append(file)
        return sorted(found, key=_number_of)

    def compacted(self) -> list[StoreFile]:
        names = [name.removesuffix("-c.pms") for name in self.files.list_dir(self.folder) if name.endswith("-c.pms")]
        return [StoreFile(int(name), True) for name in names if name.isdecimal()]

    def is_ours(self, file: StoreFile) -> bool:
        """False for a file that says it is of another store: its addresses lead to other messages.

        Raises UnknownVersion for one that a later penstock wrote. A damaged head says nothing.
        """
        try:
            head = self.read(file, FILE_HEAD_BYTES, 0)
        except BadRecord:
            return True
        if len(head) < FILE_HEAD_BYTES or _CRC.unpack_from(head, FILE_HEAD_BYTES - 4)[0] != crc32(head[:-4]):
            return True
        _, version, _, _, owner = _HEAD.unpack_from(head)
        if version != VERSION:
            raise UnknownVersion(
                f"{self.path(file)} has format version {version}, and this penstock reads version {VERSION}: start the"
                " version of penstock that wrote it, or upgrade this one"
            )
        return bool(owner == crc32(self.folder.encode()))

    def remove(self, file: StoreFile) -> None:
        self._forget(file)
        self.files.unlink(self.path(file))
        file.on_disk = False

    def cut(self, file: StoreFile) -> None:
        """Give the room of the newest file back and keep its name (invariant 2)."""
        self._forget(file)
        self._reader(file).truncate(FILE_HEAD_BYTES)
        file.data_bytes = 0
        file.addresses = array("q")

    def wipe(self) -> None:
        self.close()
        self.files.remove_dir(self.folder)

    def close(self) -> None:
        """Give every handle back. What was not synced is not."""
        self.close_writers(list(self._writers))
        self.close_folders(self.lent_folders())
        self._unsynced.clear()
        self._handles.close_all(self)

    def handle_wanted_back(self, path: str) -> None:
        # Nothing here keeps a handle of the cache longer than one call.
        self._handles.close(self, path)

    def _forget(self, file: StoreFile) -> None:
        """Close a file that is not read, written or synced any more."""
        self._unsynced.discard(file.number)
        self.close_writers([file.number])
        self._handles.close(self, self.path(file))


def _number_of(file: StoreFile) -> int:
    return file.number
