"""What the shared store knows in RAM: which bodies are wanted, how often, and in which file each of them is.

One entry per wanted body, made when the body is put or found at start, gone with its last reference. The entry's key is
the address; its value is one packed int, references << 32 | bytes of the record. Where a record is follows from its
address, unless compaction moved it: then `moved` has the new place, packed like an address. A body costs about 110
bytes of RAM, one that was moved about 75 more, whatever its size (measured with 300,000 on CPython 3.11).

Invariants
  1. An address is never given twice: numbers of files only grow, and a file is only ever appended to.
  2. `moved` has only addresses that are in `live`.
  3. A file's `live_count` and `live_bytes` are those of the entries of `live` that are in this file.
  4. Every entry of `live` is in exactly one file, and that file's `addresses` name it. They name dead ones too.
  5. A file that may have become worth compacting or removing is in `suspects`.

A crash takes all of it; recovery counts the references again and start() finds the files.
"""

from __future__ import annotations

from array import array
from typing import Final, final

# Before the first record of a file.
FILE_HEAD_BYTES: Final = 64
# The lower half of an address: the offset in the file. Also the lower half of an entry: the bytes of the record.
LOWER_HALF: Final = 0xFFFFFFFF
ONE_REFERENCE: Final = 1 << 32


@final
class StoreFile:
    """One file of the store, as RAM sees it."""

    __slots__ = (
        "addresses",
        "compacted",
        "damaged",
        "data_bytes",
        "leaving",
        "live_bytes",
        "live_count",
        "number",
        "on_disk",
        "sealed",
        "unwritten",
    )

    def __init__(self, number: int, compacted: bool) -> None:
        self.number = number
        # Written by compaction: its records have addresses of other files, and it ends with a table of them.
        self.compacted = compacted
        # Bytes of all records and of the holes between them; the next record comes behind them.
        self.data_bytes = 0
        self.live_bytes = 0
        self.live_count = 0
        # Records that are still in the write buffer.
        self.unwritten = 0
        self.on_disk = False
        # Nothing is put here any more.
        self.sealed = False
        # Nothing in it is wanted; it goes when the journal has forgotten it too.
        self.leaving = False
        # A wanted record in it was found damaged. The file stays as it is until the next start, so that an operator can
        # look at the bytes.
        self.damaged = False
        self.addresses: array[int] = array("q")

    def end(self) -> int:
        return FILE_HEAD_BYTES + self.data_bytes

    def can_be_cleared(self) -> bool:
        """Return whether the file can go: nothing in it is wanted, nothing is still to come, and it is not damaged."""
        return self.sealed and self.live_count == 0 and not self.damaged

    def is_settled(self) -> bool:
        """Return whether the file is whole on disk."""
        return self.sealed and self.on_disk and self.unwritten == 0

    def is_mostly_dead(self, dead_share: float) -> bool:
        return self.data_bytes - self.live_bytes > dead_share * self.data_bytes


@final
class BodyMap:
    __slots__ = ("files", "live", "live_bytes", "moved", "newest_on_disk", "next_number", "suspects")

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.moved: dict[int, int] = {}
        self.files: dict[int, StoreFile] = {}
        self.suspects: set[int] = set()
        self.live_bytes = 0
        self.next_number = 1
        self.newest_on_disk = 0

    def new_file(self, compacted: bool) -> StoreFile:
        """Return a new file, with a number that was never used."""
        file = StoreFile(self.next_number, compacted)
        self.next_number += 1
        self.files[file.number] = file
        return file

    def append(self, file: StoreFile, size_bytes: int) -> int:
        """Room for one more record, with one reference; its address."""
        assert not file.compacted and file.end() + size_bytes <= LOWER_HALF
        address = file.number << 32 | file.end()
        file.data_bytes += size_bytes
        self.enter(file, address, file.end() - size_bytes, size_bytes, 1)
        return address

    def enter(self, file: StoreFile, address: int, offset: int, size_bytes: int, references: int) -> None:
        """A wanted record is in this file."""
        assert references > 0 and address not in self.live
        self.live[address] = references << 32 | size_bytes
        place = file.number << 32 | offset
        if place != address:
            self.moved[address] = place
        file.addresses.append(address)
        file.live_count += 1
        file.live_bytes += size_bytes
        self.live_bytes += size_bytes

    def move(self, address: int, file: StoreFile, offset: int) -> None:
        """A wanted record has a copy in another file, which now counts."""
        size = self.live[address] & LOWER_HALF
        self._leave(address, size)
        self.moved[address] = file.number << 32 | offset
        file.addresses.append(address)
        file.live_count += 1
        file.live_bytes += size

    def release(self, address: int) -> bool:
        """One reference fewer; True when it was the last one."""
        entry = self.live[address]
        if entry >= 2 * ONE_REFERENCE:
            self.live[address] = entry - ONE_REFERENCE
            return False
        size = entry & LOWER_HALF
        self._leave(address, size)
        del self.live[address]
        self.moved.pop(address, None)
        self.live_bytes -= size
        return True

    def place(self, address: int) -> int:
        """File and offset of a wanted record, packed like an address."""
        return self.moved.get(address, address)

    def file_of(self, address: int) -> StoreFile:
        return self.files[self.moved.get(address, address) >> 32]

    def wanted_in(self, file: StoreFile) -> list[int]:
        """Return the wanted records of a file, in the order in which they came."""
        number = file.number
        live = self.live
        moved = self.moved
        return [a for a in file.addresses if a in live and moved.get(a, a) >> 32 == number]

    def disk_bytes(self) -> int:
        """Return bytes of the files, as far as records fill them."""
        return sum([file.end() for file in self.files.values() if file.on_disk])

    def _leave(self, address: int, size_bytes: int) -> None:
        file = self.file_of(address)
        file.live_count -= 1
        file.live_bytes -= size_bytes
        self.suspects.add(file.number)

    def check_invariants(self) -> None:
        assert self.moved.keys() <= self.live.keys(), "2: a moved address is not live"
        count = 0
        for file in self.files.values():
            wanted = self.wanted_in(file)
            assert len(set(wanted)) == len(wanted), "4: an address is named twice by its file"
            sizes = [self.live[address] & LOWER_HALF for address in wanted]
            assert file.live_count == len(wanted) and file.live_bytes == sum(sizes), "3: live records of a file"
            count += len(wanted)
        assert count == len(self.live), "4: an address is in no file"
        assert self.live_bytes == sum([entry & LOWER_HALF for entry in self.live.values()]), "live bytes"
        assert all([number < self.next_number for number in self.files]), "1: a number will be given again"
