"""Makes a backup: copies the files of one checkpoint, and the journal behind it, while the broker goes on.

The copy is what a crash of the broker at the backup's last LSN could have left, and a start makes the broker of it that
a start after such a crash makes. That holds because of the order in which things are copied:

  1. the checkpoint, and then the files of queues that it names. They are copied while the broker writes to them. What
     the checkpoint counts on in them was synced before it was published and is not written again; the rest may be of
     any time, whole or torn, as after a crash.
  2. the last LSN is fixed, and the journal is copied up to there, from the first segment that the checkpoint needs.
     A file of a queue is never newer than the last LSN allows: it was copied before.
  3. the shared stores. Bodies are synced before the batch that refers to them is durable, so all that the journal
     refers to are there, and maybe more, to which nothing refers.
  4. the manifest, if no file was removed meanwhile.

A point between the first LSN and the last may be restored, too: what the files have from the time behind it is not
referred to. Slots of the index count for messages that the checkpoint has paged out, and these are older; seq_ids go on
behind the files that are there; records are found by reference only.

Invariants
  1. The manifest is written last, and only when the source has kept every file until the last one was copied.
  2. A file is copied up to the size that it had when it was opened. Its checksum is that of what was written.
  3. A file that the backup before it has with the same bytes is not written again. Files of the journal that were
     complete are not even read: a segment is never appended to after it was left.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final

from penstock.backup.archive.archive import CHUNK_BYTES
from penstock.backup.archive.sink import Sink
from penstock.backup.backup_error import BackupError
from penstock.backup.batch_ends import BatchEnd, batch_ends, first_lsn_of
from penstock.backup.manifest import BaseBackup, Manifest, StoredFile, StoredSegment
from penstock.backup.progress import Progress
from penstock.backup.stored_path import check_stored_path, is_stored_path, journal_path
from penstock.backup.taking.source import Beginning, Source
from penstock.disk.files import File, Files, read_file
from penstock.journal.format.layout import FIRST_BATCH_AT
from penstock.store.node.checkpoint import BadCheckpoint, Checkpoint, checkpoint_path, read_checkpoint
from penstock.store.node.queue_names import queue_folder
from penstock.store.queue.places import QUEUE_STORE, StoreError
from penstock.store.recovery.recovery import FORMAT_PATH, journal_segments
from penstock.store.shared.shared_stores import shared_folder

# The source hears of a backup this often; it keeps files for a minute.
RENEW_S: Final = 5.0
AUDIT_FOLDER: Final = "audit"


class Taking:
    def __init__(
        self,
        files: Files,
        source: Source,
        sink: Sink,
        base: Manifest | None = None,
        base_path: str = "",
        progress: Progress | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`base` is the backup that this one adds to; `base_path` leads there from where this one is."""
        self._files = files
        self._source = source
        self._sink = sink
        self._base = base
        self._base_path = base_path
        self._base_files = {} if base is None else base.by_path()
        # Journal segments that had been left when that one was made.
        self._complete = set() if base is None else {journal_path(segment.number) for segment in base.journal[:-1]}
        self._progress = progress or Progress()
        self._now_s = now_s
        self._renew_at_s = now_s() + RENEW_S
        self._id = secrets.token_hex(16)
        self._stored: list[StoredFile] = []
        # What was written here, of all that the backup names.
        self.copied_bytes = 0
        self.notes: list[str] = []

    def run(self) -> Manifest:
        """Make the backup; raises BackupError, and then nothing of it is left that looks like one."""
        try:
            beginning = self._source.begin()
        except BaseException:
            self._sink.abandon()
            raise
        self.notes.extend(beginning.notes)
        try:
            manifest = self._copy(beginning)
            self._source.end()
            self._progress.begin("manifest")
            self._sink.commit(manifest.encode())
        except OSError as error:
            self._give_up()
            raise BackupError(
                f"the backup is given up: {error.strerror or error} ({error.filename or 'a file'})"
            ) from error
        except BaseException:
            self._give_up()
            raise
        return manifest

    def _give_up(self) -> None:
        self._source.give_up()
        self._sink.abandon()

    # --- the parts ------------------------------------------------------------------------------------

    def _copy(self, beginning: Beginning) -> Manifest:
        base = self._base
        if base is not None and base.log_id != beginning.log_id:
            raise BackupError(
                "the backup that this one should add to is of another broker, or of this one before it was restored:"
                " make a full backup, without --incremental-from"
            )
        self._progress.begin("checkpoint")
        checkpoint = self._copy_checkpoint(beginning.checkpoint)
        self._progress.begin("queues")
        self._copy_all(self._queue_files(checkpoint))
        self._progress.begin("journal")
        # Before the question: what the journal has from then on may be left out.
        last_us = time.time_ns() // 1000
        last_lsn = self._source.renew()
        segments, first, last = self._copy_journal(checkpoint, beginning.lsn, last_lsn, beginning.online)
        self._progress.begin("large messages")
        self._copy_all(self._shared_files())
        self._progress.begin("audit log")
        audit = [f"{AUDIT_FOLDER}/{name}" for name in self._files.list_dir(AUDIT_FOLDER)]
        self._copy_all([path for path in audit if is_stored_path(path)])
        return Manifest(
            id=self._id,
            made_us=time.time_ns() // 1000,
            penstock_version=beginning.version,
            data_format=read_file(self._files, FORMAT_PATH).decode("ascii", "replace").strip(),
            log_id=beginning.log_id,
            online=beginning.online,
            checkpoint=beginning.checkpoint,
            first_lsn=first[0],
            last_lsn=last[0],
            first_us=first[1],
            last_us=max(last[1], last_us),
            base=None if base is None else BaseBackup(base.id, base.digest(), self._base_path),
            journal=segments,
            files=self._stored,
        )

    def _copy_checkpoint(self, number: int) -> Checkpoint | None:
        if number == 0:
            return None
        try:
            checkpoint = read_checkpoint(self._files, number)
        except (BadCheckpoint, StoreError) as error:
            raise BackupError(
                f"{checkpoint_path(number)} cannot be used: {error}. `penstock fsck` says more"
            ) from error
        self._copy_all([checkpoint_path(number)])
        return checkpoint

    def _queue_files(self, checkpoint: Checkpoint | None) -> list[str]:
        """Return the files of queues that the checkpoint names: what a start would keep."""
        paths: list[str] = []
        for state in [] if checkpoint is None else checkpoint.states:
            named = set(state.index_segments)
            named.update([run.segment for run in state.runs if run.kind == QUEUE_STORE])
            if not named:
                continue
            for kind in ("idx", "qs"):
                folder = f"{queue_folder(state.vhost_id, state.queue_id)}/{kind}"
                for name in self._files.list_dir(folder):
                    digits = name.partition(".")[0]
                    if digits.isdecimal() and int(digits) in named:
                        paths.append(f"{folder}/{name}")
        return paths

    def _shared_files(self) -> list[str]:
        paths: list[str] = []
        for vhost_id in self._files.list_dir("vhosts"):
            folder = shared_folder(vhost_id, True)
            paths.extend(f"{folder}/{name}" for name in self._files.list_dir(folder) if name.endswith(".pms"))
        return paths

    # --- the journal ----------------------------------------------------------------------------------

    def _copy_journal(
        self, checkpoint: Checkpoint | None, begin_lsn: int, last_lsn: int, is_online: bool
    ) -> tuple[list[StoredSegment], tuple[int, int], tuple[int, int]]:
        """Copy it up to an LSN; return what there is, and (LSN, wall clock) of the first and the last point."""
        numbers = self._wanted_segments(checkpoint)
        begins = [first_lsn_of(self._files, number) for number in numbers]
        while numbers and begins[-1] > last_lsn:
            numbers.pop()
            begins.pop()
        segments: list[StoredSegment] = []
        first = last = BatchEnd(0, 0, last_lsn, 0, 0)
        sizes: dict[str, int] = {}
        for index, number in enumerate(numbers):
            is_last = index == len(numbers) - 1
            end = None
            # Only where points of this backup can be; others are not walked over.
            if is_last or begins[index + 1] >= begin_lsn:
                for each in batch_ends(self._files, number):
                    if each.lsn > last_lsn:
                        break
                    end = each
                    if each.events and each.lsn >= begin_lsn and first.pos == 0:
                        first = each
            last = end or last
            if is_last:
                sizes[journal_path(number)] = self._head_bytes(number) if end is None else end.pos
            segments.append(StoredSegment(number, begins[index], last_lsn if is_last else begins[index + 1]))
        if last.pos and last.lsn != last_lsn and is_online:
            raise BackupError(
                f"the journal ends with LSN {last.lsn}, and not with {last_lsn}: `penstock fsck` says more"
            )
        self._copy_all([journal_path(number) for number in numbers], sizes)
        first_us = first.wall_us if first.pos else last.wall_us
        return segments, (min(first.lsn, last_lsn), first_us), (last_lsn, last.wall_us)

    def _wanted_segments(self, checkpoint: Checkpoint | None) -> list[int]:
        numbers = journal_segments(self._files)
        if checkpoint is None:
            return numbers
        first = min(checkpoint.header.replay_segment, checkpoint.header.needed_segment)
        if self._base is not None and self._base.journal:
            behind = self._base.journal[-1].number
            first = min(first, behind)
            if behind not in numbers:
                self.notes.append(
                    f"the journal between LSN {self._base.last_lsn} and the beginning of this backup is not there any"
                    " more: a moment between the two backups cannot be restored. Keep more history (--history-limit),"
                    " or make backups more often"
                )
        wanted = [number for number in numbers if number >= first]
        # Replay may begin in a segment that the next batch would have begun.
        return wanted or numbers[-1:]

    def _head_bytes(self, number: int) -> int:
        """Return the size of a segment that has no batch yet."""
        file = self._files.open(journal_path(number))
        try:
            return min(file.size(), FIRST_BATCH_AT)
        finally:
            file.close()

    # --- files ----------------------------------------------------------------------------------------

    def _copy_all(self, paths: list[str], sizes: dict[str, int] | None = None) -> None:
        """Copy files, each up to the size that is given, or that it has. Those that are not there are left out."""
        opened = sizes or {}
        for path in paths:
            self._progress.expect(self._size(path) if path not in opened else opened[path])
        for path in paths:
            try:
                file = self._files.open(path)
            except FileNotFoundError:
                continue
            try:
                self._copy_file(file, path, opened.get(path, file.size()))
            finally:
                file.close()

    def _copy_file(self, file: File, path: str, size: int) -> None:
        check_stored_path(path)
        known = self._base_files.get(path)
        if (
            known is not None
            and known.size == size
            and (path in self._complete or self._hash(file, size) == known.sha256)
        ):
            self._stored.append(known)
            self._progress.advance(size)
            return
        digest = sha256()

        def chunks() -> Iterator[bytes]:
            for chunk in self._read(file, path, size):
                digest.update(chunk)
                yield chunk
                self._progress.advance(len(chunk))

        self._sink.add(path, size, chunks())
        self.copied_bytes += size
        self._stored.append(StoredFile(path, size, digest.hexdigest(), self._id))

    def _hash(self, file: File, size: int) -> str:
        digest = sha256()
        for chunk in self._read(file, file.path, size):
            digest.update(chunk)
        return digest.hexdigest()

    def _read(self, file: File, path: str, size: int) -> Iterator[bytes]:
        offset = 0
        while offset < size:
            chunk = file.pread(min(CHUNK_BYTES, size - offset), offset)
            if not chunk:
                raise BackupError(f"{path} has become shorter while it was copied: run the backup again")
            offset += len(chunk)
            yield chunk
            if self._now_s() >= self._renew_at_s:
                self._source.renew()
                self._renew_at_s = self._now_s() + RENEW_S

    def _size(self, path: str) -> int:
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            return 0
        try:
            return file.size()
        finally:
            file.close()
