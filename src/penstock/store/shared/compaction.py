"""Gives the room of dead bodies back, a little at a time.

A file in which nothing is wanted is removed. Of a file that is mostly dead the wanted records are copied into a new
one, together with those of other such files, and the old files go. So a few bodies that are wanted for long never hold
the room of many that are not: the files take no more than wanted bytes / (1 - dead_share), and a file or two.

The steps of a copy: write a draft, slice by slice; end it with the table of its records; have it synced; rename it;
have the folder synced; let the map point to it; wait until the journal is durable up to here; remove the old files.

Invariants
  1. An old file is there until its copy is durable under its final name, and until the journal has made durable that
     what was not copied is gone. (The row that says so is gathered by the end of the turn in which a body is released.)
     Rows that name the copied bodies may be anywhere in the journal, synced or not: they hold addresses, and these
     stay valid.
  2. What is released while it is copied stays dead: the map decides when the copy takes over, not when it was begun.
  3. Reads go to the old file until the copy takes over.
  4. Every record is checked before it is copied. A file in which a wanted record was damaged is left as it is.
  5. A copy that fails is given up: the draft is removed, nothing else has changed, later calls try again.
  6. At most one draft, at most one sync of it, or of its name, under way.

A crash leaves a draft, which start() removes; or old and new files together, with the same bytes, and either will do;
or old files without a wanted record. No sync follows the removal of an old file: if it comes back, it is removed again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, final

from penstock.disk.files import File, write_all
from penstock.store.node.removal_hold import nothing_is_held
from penstock.store.shared.body_map import FILE_HEAD_BYTES, LOWER_HALF, BodyMap, StoreFile
from penstock.store.shared.records import BadRecord, decode_record
from penstock.store.shared.store_files import StoreFolder, encode_table

# Syncs the files in order, then calls back with None or what went wrong. It may do so before it returns.
SyncFiles = Callable[[list[File], Callable[[OSError | None], None]], None]
# Calls back once everything that the journal has gathered so far is durable (True) or never will be (False).
WhenDurable = Callable[[Callable[[bool], None]], None]

log: Final = logging.getLogger("penstock.store")

# After a failure so many calls are let pass, and each time twice as many up to the maximum: a full disk stays full for
# a while.
_PAUSE_CALLS: Final = 16
_PAUSE_CALLS_MAX: Final = 4096


@final
class Draft:
    """A copy that is being written."""

    __slots__ = ("addresses", "file", "handle", "offsets", "position", "sources", "todo")

    def __init__(self, file: StoreFile, handle: File, sources: list[StoreFile], todo: list[int]) -> None:
        self.file = file
        self.handle = handle
        self.sources = sources
        # What is to be copied, and how much of it was.
        self.todo = todo
        self.position = 0
        self.addresses: list[int] = []
        self.offsets: list[int] = []


class Compaction:
    def __init__(
        self,
        bodies: BodyMap,
        folder: StoreFolder,
        file_bytes: int,
        dead_share: float,
        sync: SyncFiles,
        when_durable: WhenDurable,
        is_held: Callable[[], bool] = nothing_is_held,
    ) -> None:
        """While `is_held` says so, no file goes."""
        self.done_count = 0
        self.failed_count = 0
        self.copied_bytes = 0
        self._bodies = bodies
        self._folder = folder
        self._file_bytes = file_bytes
        self._dead_share = dead_share
        self._sync = sync
        self._when_durable = when_durable
        self._is_held = is_held
        self._draft: Draft | None = None
        self._is_syncing = False
        self._pause = 0
        self._next_pause = _PAUSE_CALLS

    def step(self, bytes_max: int) -> bool:
        """Remove what is dead, copy about so many bytes; True if there is more to do now."""
        self._remove_dead()
        if self._is_syncing:
            return False
        if self._pause > 0:
            self._pause -= 1
            return False
        try:
            if self._draft is None and not self._begin():
                return False
            self._copy(bytes_max)
        except Exception as error:
            if not isinstance(error, OSError):
                log.error("a copy in %s is given up, and tried again later", self._folder.folder, exc_info=error)
            self._give_up()
        if self._is_syncing or self._pause > 0:
            return False
        return self._draft is not None or len(self._candidates()) > 0

    def abandon(self) -> None:
        """Drop a copy that is under way."""
        draft = self._draft
        if draft is not None:
            self._draft = None
            draft.handle.close()
            self._folder.files.unlink(self._draft_path(draft.file))

    # --- choosing ---------------------------------------------------------------------------------

    def _candidates(self) -> list[StoreFile]:
        """Return files to be copied, those with the least in them first. Suspects that are innocent are let go."""
        candidates: list[StoreFile] = []
        for number in sorted(self._bodies.suspects):
            file = self._bodies.files.get(number)
            if file is None:
                self._bodies.suspects.discard(number)
            elif file.is_settled() and file.live_count > 0:
                if not file.is_mostly_dead(self._dead_share):
                    self._bodies.suspects.discard(number)
                elif not file.damaged:
                    candidates.append(file)
        candidates.sort(key=_live_bytes_of)
        return candidates

    def _begin(self) -> bool:
        sources: list[StoreFile] = []
        size = FILE_HEAD_BYTES
        for file in self._candidates():
            size += file.live_bytes
            if sources and size > self._file_bytes:
                break
            sources.append(file)
        if not sources:
            return False
        todo: list[int] = []
        for source in sources:
            todo.extend(self._bodies.wanted_in(source))
        file = StoreFile(self._bodies.next_number, True)
        self._bodies.next_number += 1
        self._draft = Draft(file, self._folder.make(file, self._draft_path(file)), sources, todo)
        return True

    def _draft_path(self, file: StoreFile) -> str:
        return self._folder.path(file).removesuffix(".pms") + ".tmp"

    # --- copying ----------------------------------------------------------------------------------

    def _copy(self, bytes_max: int) -> None:
        draft = self._draft
        assert draft is not None
        start = draft.file.end()
        pieces: list[bytes] = []
        size = 0
        while draft.position < len(draft.todo) and (size < bytes_max or not pieces):
            address = draft.todo[draft.position]
            draft.position += 1
            if address not in self._bodies.live:
                continue
            record = self._read_checked(address)
            if record is None:
                self._give_up()
                return
            draft.addresses.append(address)
            draft.offsets.append(start + size)
            pieces.append(record)
            size += len(record)
        if pieces:
            write_all(draft.handle, pieces, start)
            draft.file.data_bytes += size
            self.copied_bytes += size
        if draft.position == len(draft.todo):
            self._end_draft(draft)

    def _read_checked(self, address: int) -> bytes | None:
        """Return the bytes of a wanted record; None when they are damaged, and then their file is marked."""
        place = self._bodies.place(address)
        file = self._bodies.files[place >> 32]
        size = self._bodies.live[address] & LOWER_HALF
        try:
            data = self._folder.read(file, size, place & LOWER_HALF)
            record = decode_record(data, 0)
            if record.address == address and record.size_bytes == size:
                return data
        except BadRecord:
            pass
        file.damaged = True
        return None

    def _end_draft(self, draft: Draft) -> None:
        if not draft.addresses:
            # Everything was released meanwhile.
            self.abandon()
            return
        table = encode_table(draft.addresses, draft.offsets, draft.file.data_bytes)
        write_all(draft.handle, [table], draft.file.end())
        if self._folder.persistent:
            self._is_syncing = True
            self._sync([draft.handle], self._on_synced)
        else:
            self._name(draft)
            self._take_over(draft)

    def _on_synced(self, error: OSError | None) -> None:
        self._is_syncing = False
        draft = self._draft
        if draft is None:
            return
        try:
            if error is not None:
                raise error
            self._name(draft)
            names = self._folder.files.open_folder(self._folder.folder)
        except OSError:
            self._give_up()
            return
        self._is_syncing = True
        self._sync([names], partial(self._on_named, draft, names))

    def _on_named(self, draft: Draft, names: File, error: OSError | None) -> None:
        names.close()
        self._is_syncing = False
        if self._draft is not draft:
            return
        if error is None:
            self._take_over(draft)
        else:
            self._give_up()

    def _name(self, draft: Draft) -> None:
        draft.handle.close()
        self._folder.files.rename(self._draft_path(draft.file), self._folder.path(draft.file))

    def _take_over(self, draft: Draft) -> None:
        """The copy is there to stay: let the map point to it."""
        file = draft.file
        self._draft = None
        file.on_disk = True
        file.sealed = True
        bodies = self._bodies
        bodies.files[file.number] = file
        bodies.newest_on_disk = max(bodies.newest_on_disk, file.number)
        for index in range(len(draft.addresses)):
            if draft.addresses[index] in bodies.live:
                bodies.move(draft.addresses[index], file, draft.offsets[index])
        bodies.suspects.add(file.number)
        self.done_count += 1
        self._next_pause = _PAUSE_CALLS
        self._remove_dead()

    def _give_up(self) -> None:
        """Leave everything as it was, and try again after a while."""
        self.failed_count += 1
        self._is_syncing = False
        self._pause = self._next_pause
        self._next_pause = min(2 * self._next_pause, _PAUSE_CALLS_MAX)
        draft = self._draft
        try:
            if draft is not None:
                # The rename may have happened.
                self._folder.files.unlink(self._folder.path(draft.file))
            self.abandon()
        except OSError:
            # The next start removes it.
            return

    # --- removing ---------------------------------------------------------------------------------

    def _remove_dead(self) -> None:
        leaving: list[StoreFile] = []
        for number in sorted(self._bodies.suspects):
            file = self._bodies.files.get(number)
            if file is None or file.leaving or not file.can_be_cleared() or self._is_cut(file):
                continue
            if file.on_disk:
                file.leaving = True
                leaving.append(file)
            else:
                # Everything in it was released before it was written.
                self._forget(file)
        if not leaving:
            return
        if self._folder.persistent:
            self._when_durable(Removal(self, leaving).run)
        else:
            self.remove_files(leaving)

    def _is_cut(self, file: StoreFile) -> bool:
        """The newest file has given its room back already, and only its name is still needed."""
        return self._is_newest(file) and file.data_bytes == 0

    def _is_newest(self, file: StoreFile) -> bool:
        return self._folder.persistent and file.number == self._bodies.newest_on_disk

    def remove_files(self, leaving: list[StoreFile]) -> None:
        """Remove files in which nothing is wanted any more."""
        for file in leaving:
            file.leaving = False
            if self._is_held() and self._folder.persistent:
                # It stays a suspect.
                continue
            try:
                if self._is_newest(file):
                    self._folder.cut(file)
                else:
                    self._folder.remove(file)
                    self._forget(file)
            except OSError:
                # It stays a suspect.
                self.failed_count += 1

    def _forget(self, file: StoreFile) -> None:
        self._bodies.files.pop(file.number, None)
        self._bodies.suspects.discard(file.number)


@final
class Removal:
    """Files that go when the journal is durable."""

    __slots__ = ("_compaction", "_leaving")

    def __init__(self, compaction: Compaction, leaving: list[StoreFile]) -> None:
        self._compaction = compaction
        self._leaving = leaving

    def run(self, is_durable: bool) -> None:
        if is_durable:
            self._compaction.remove_files(self._leaving)
        else:
            # A restart may ask for any of them. After a full disk the journal may still succeed: ask again.
            for file in self._leaving:
                file.leaving = False


def _live_bytes_of(file: StoreFile) -> int:
    return file.live_bytes
