"""The files of one queue's index or store: numbered, each for a fixed stretch of seq_ids.

What the index and the queue store have in common: names, the 64-byte head that says what a file is, which files have
bytes that are not synced, and giving handles back. A file is made when the first of its messages is written, and
removed when the last one is gone; a number may be used again after that. One object belongs to one queue and is the
owner of its handles.

A handle that is asked back is closed at once, or in the queue's context when a `post` was given (the queue's async
callback); a file that is being synced is closed when the sync is over. Files that were closed with bytes that are not
synced are opened again for the sync: what is synced is the file, not the handle.

A sync goes in steps: `begin_sync` decides which files it is about, `files_to_sync` hands some of them out, as often as
it takes, and each time the answer is `synced` or `sync_given_up`.

Invariants
  1. A file is in `_unsynced` from its first write until `begin_sync`, then in `_to_sync` until `files_to_sync` took it,
     then in `_syncing` until `synced`. A write in between puts it into `_unsynced` again, so it is synced again. What
     is given up goes back to `_to_sync`.
  2. A file in `_syncing` is not closed, also when it is removed.
  3. No file is held across the opening of another: the second may cost the first its handle.
  4. A head is believed only if its CRC is right, and used only if number, slots per file and queue fit. A file whose
     head is damaged, or is that of another file, is not read, and the next write begins it anew. So no file
     keeps a queue from going on: what stood in it has no slot or record any more, and is lost by name.

A crash may leave a file without a whole head, or with its name lost, if it was never synced. No checkpoint names such a
file; recovery removes the files that the checkpoint does not name.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from penstock.disk.checksum import crc32
from penstock.disk.files import File, Files, write_all
from penstock.store.queue.places import StoreError, UnknownVersion
from penstock.store.shared.handles import HandleCache, HandleOwner

FILE_HEAD_BYTES: Final = 64
VERSION: Final = 1
# magic, version, slots per file, first seq_id, CRC of the folder's path, nothing; then the CRC of these 60 bytes.
_HEAD: Final = Struct("<4sIIqI36x")
_CRC: Final = Struct("<I")

# Hands work to the queue's own context.
Post = Callable[[Callable[[], None]], None]


class BadFile(StoreError):
    """The head of a file is damaged, or is that of another file."""


def run_at_once(work: Callable[[], None]) -> None:
    """A `Post` for an owner that is always in its own context."""
    work()


class SegmentFiles(HandleOwner):
    """Numbered files in one folder, each for `slots` seq_ids."""

    def __init__(
        self, files: Files, folder: str, handles: HandleCache, magic: bytes, ending: str, slots: int, post: Post
    ) -> None:
        assert len(magic) == 4 and slots > 0
        self.folder = folder
        self.slots = slots
        # Tells the files of two queues apart, whatever their names.
        self._owner = crc32(folder.encode())
        self._files = files
        self._handles = handles
        self._magic = magic
        self._ending = ending
        self._post = post
        # Numbers of files whose head was checked or written by this object.
        self._known: set[int] = set()
        self._unsynced: set[int] = set()
        self._to_sync: set[int] = set()
        self._syncing: set[int] = set()
        # There are files whose names may not be durable.
        self._new_names = False
        # Folders that still have to be synced, and those that are being synced.
        self._folders_to_sync: list[str] = []
        self._folders_syncing: list[File] = []
        # The folder and those above it were synced once.
        self._folder_durable = False
        # Asked back, and not closed yet: the post has not come, or they are synced.
        self._wanted_back: set[str] = set()
        self._posted = False
        # Removed while they were synced.
        self._doomed: list[File] = []
        # Paths of files that were used, by number.
        self._paths: dict[int, str] = {}

    def path(self, number: int) -> str:
        path = self._paths.get(number)
        if path is None:
            path = self._paths[number] = f"{self.folder}/{number:08d}{self._ending}"
        return path

    def numbers(self) -> list[int]:
        listed = self._files.list_dir(self.folder)
        names = [name.removesuffix(self._ending) for name in listed if name.endswith(self._ending)]
        return sorted([int(name) for name in names if name.isdecimal()])

    def reader(self, number: int) -> File | None:
        """Return the file, checked; None when there is none, or when a crash left it without a head."""
        try:
            file = self._handles.open(self, self.path(number))
        except FileNotFoundError:
            return None
        if number not in self._known:
            head = file.pread(FILE_HEAD_BYTES, 0)
            if len(head) < FILE_HEAD_BYTES:
                return None
            self._check_head(number, head)
            self._known.add(number)
            # Its name may not be synced: the broker may have been killed after it made the file.
            self._new_names = True
        return file

    def writer(self, number: int) -> File:
        """Return the file, made when there is none; it counts as not synced from now on."""
        file = self.before_writing(number)
        if file is None:
            file = self._make(number)
        self._unsynced.add(number)
        return file

    def before_writing(self, number: int) -> File | None:
        """Return the file as the next writer finds it; None when a new one is to be begun."""
        try:
            return self.reader(number)
        except BadFile:
            return None

    def _make(self, number: int) -> File:
        self._new_names = True
        self._files.make_dir(self.folder)
        file = self._handles.open(self, self.path(number), create=True)
        if file.size():
            # Without its head the file could not be read.
            file.truncate(0)
        head = _HEAD.pack(self._magic, VERSION, self.slots, number * self.slots, self._owner)
        write_all(file, [head, _CRC.pack(crc32(head))], 0)
        self._known.add(number)
        return file

    def _check_head(self, number: int, head: bytes) -> None:
        path = self.path(number)
        magic, version, slots, first_seq_id, owner = _HEAD.unpack_from(head)
        if magic != self._magic or _CRC.unpack_from(head, FILE_HEAD_BYTES - 4)[0] != crc32(head[:-4]):
            raise BadFile(f"the head of {path} is damaged")
        if version != VERSION:
            raise UnknownVersion(
                f"{path} has format version {version}, and this penstock reads version {VERSION}: start the version of"
                " penstock that wrote it, or upgrade this one"
            )
        if slots != self.slots:
            raise BadFile(f"{path} was made for {slots} messages per file, and is opened for {self.slots}")
        if first_seq_id != number * slots:
            raise BadFile(f"{path} is the file of the messages from {first_seq_id} on, under another file's name")
        if owner != self._owner:
            raise BadFile(f"{path} is a file of another queue")

    def begin_sync(self) -> None:
        """From now on `files_to_sync` hands out what was written so far, and folders with names of new files."""
        self._to_sync |= self._unsynced
        self._unsynced.clear()
        if not self._new_names:
            return
        self._new_names = False
        self._folders_to_sync = [self.folder]
        if not self._folder_durable:
            # The folders above may be new as well, whoever made them; their names are in the folders above them.
            folder = self.folder
            while folder:
                folder = folder.rpartition("/")[0]
                self._folders_to_sync.append(folder)

    def files_to_sync(self, count_max: int) -> list[File]:
        """Return some of what has to be synced, folders first; nothing when there is no more.

        They stay open until `synced` or `sync_given_up`, one of which must follow. After an OSError nothing is handed
        out.
        """
        handed: list[File] = []
        try:
            while self._folders_to_sync and len(handed) < count_max:
                folder = self._files.open_folder(self._folders_to_sync[-1])
                self._folders_to_sync.pop()
                self._folders_syncing.append(folder)
                handed.append(folder)
            if self._to_sync and len(handed) < count_max:
                for number in sorted(self._to_sync)[: count_max - len(handed)]:
                    # Before the next one is opened, which may ask for this one back.
                    self._to_sync.discard(number)
                    self._syncing.add(number)
                    handed.append(self._handles.open(self, self.path(number)))
        except OSError:
            self.sync_given_up()
            raise
        return handed

    def synced(self) -> None:
        """What the last `files_to_sync` handed out is synced."""
        if self._folders_syncing and not self._folders_to_sync:
            self._folder_durable = True
        self._syncing.clear()
        self._close_synced()

    def sync_given_up(self) -> None:
        """What the last `files_to_sync` handed out will not be synced. It is handed out again another time."""
        self._to_sync |= self._syncing
        self._syncing.clear()
        self._folders_to_sync.extend([folder.path for folder in self._folders_syncing])
        self._close_synced()

    def _close_synced(self) -> None:
        for file in [*self._folders_syncing, *self._doomed]:
            file.close()
        self._folders_syncing.clear()
        self._doomed.clear()
        self._close_wanted()

    def handle_wanted_back(self, path: str) -> None:
        self._wanted_back.add(path)
        if not self._posted:
            self._posted = True
            self._post(self._close_posted)

    def _close_posted(self) -> None:
        self._posted = False
        self._close_wanted()

    def _close_wanted(self) -> None:
        in_use = {self.path(number) for number in self._syncing}
        for path in self._wanted_back - in_use:
            self._handles.close(self, path)
        self._wanted_back &= in_use

    def remove(self, number: int) -> None:
        """Remove a file; fine when there is none. The number may be used again."""
        self._close(number)
        self._known.discard(number)
        self._unsynced.discard(number)
        self._to_sync.discard(number)
        self._files.unlink(self.path(number))
        del self._paths[number]

    def remove_all(self) -> None:
        for number in sorted(self._syncing):
            self._close(number)
        self.close()
        self._unsynced.clear()
        self._to_sync.clear()
        self._folders_to_sync.clear()
        self._new_names = False
        self._folder_durable = False
        self._paths.clear()
        self._files.remove_dir(self.folder)

    def close(self) -> None:
        """Give every handle back, those that are synced when they are. Files may be opened again."""
        for path in self._handles.paths(self):
            self._wanted_back.add(path)
        self._close_wanted()
        self._known.clear()
        self._paths.clear()

    def _close(self, number: int) -> None:
        path = self.path(number)
        if number in self._syncing:
            file = self._handles.detach(self, path)
            if file is not None:
                self._doomed.append(file)
            self._syncing.discard(number)
        else:
            self._handles.close(self, path)
        self._wanted_back.discard(path)
