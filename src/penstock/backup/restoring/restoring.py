"""Makes a data folder of a backup, as it was at a chosen moment.

The folder is marked (`restoring`) before anything else is written, and no broker starts with the mark. Then the files
are copied and compared with their checksums, the journal is cut behind the chosen batch, the log gets an id of its own,
everything that waits is read once, and the mark goes.

Invariants
  1. Only an empty folder is written to.
  2. With the mark gone, everything is durable. A crash before leaves the mark, and a folder that `serve` refuses.
  3. The journal ends with a batch of the original. No batch is taken in part.
  4. The log id is a new one: LSNs behind the end will be given to other events than in the original, so a reader of
     history must not take one log for the other. Cursors of readers are not restored for the same reason.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.backup.backup_error import BackupError
from penstock.backup.batch_ends import BatchEnd, batch_ends
from penstock.backup.progress import Progress
from penstock.backup.restoring.chain import Chain
from penstock.backup.restoring.plan import Moment, Plan, make_plan
from penstock.backup.restoring.verifying import checked_chunks
from penstock.backup.stored_path import journal_path
from penstock.disk.files import Files, FolderLocked, write_all, write_file
from penstock.journal.format.layout import FIRST_BATCH_AT
from penstock.store.inspect.fsck import ERROR, check_contents
from penstock.store.node.node_store import LOCK_PATH
from penstock.store.node.options import StoreOptions
from penstock.store.recovery.recovery import (
    FORMAT_PATH,
    FORMAT_TEXT,
    FORMAT_VERSION,
    RESTORING_PATH,
    journal_segments,
    make_folder,
    recover,
)
from penstock.store.retention.reader_cursors import make_log_id
from penstock.store.shared.handles import HandleCache


@dataclass(frozen=True, slots=True)
class Restored:
    lsn: int
    wall_us: int
    files: int
    size_bytes: int
    messages: int
    # What is damaged and was accepted.
    findings: list[str]


class Restoring:
    def __init__(self, chain: Chain, files: Files, where: str, progress: Progress | None = None) -> None:
        self._chain = chain
        self._files = files
        self._where = where
        self._progress = progress or Progress()

    def run(self, moment: Moment, accepts_damage: bool = False) -> Restored:
        """Restore; raises BackupError. Damage is found out before the mark goes; it must be accepted, or stays."""
        plan = make_plan(self._chain, moment)
        if plan.backup.data_format not in [f"penstock {version}" for version in range(1, FORMAT_VERSION + 1)]:
            raise BackupError(
                f"the backup has data format {plan.backup.data_format!a}, and this penstock reads"
                f" {FORMAT_TEXT.decode().strip()!r} and older: use version {plan.backup.penstock_version!a}, or a later"
                " one"
            )
        for file in plan.files:
            # Before anything is written.
            archive = self._chain.archive(file.backup_id)
            if archive.size(file.path) != file.size:
                raise BackupError(f"{file.path} in {archive.where} is missing, or has another size: use another copy")
        try:
            return self._run(plan, accepts_damage)
        except OSError as error:
            raise BackupError(f"{self._where} cannot be written: {error.strerror or error}") from error

    def _run(self, plan: Plan, accepts_damage: bool) -> Restored:
        if set(self._files.list_dir("")) - {LOCK_PATH}:
            raise BackupError(f"{self._where} is not empty: give a folder that does not exist yet, or an empty one")
        try:
            lock = self._files.lock(LOCK_PATH)
        except FolderLocked as error:
            raise BackupError(f"{self._where} is in use: {error}") from error
        try:
            write_file(self._files, RESTORING_PATH, f"from backup {plan.backup.id}\n".encode())
            self._copy(plan)
            self._progress.begin("journal")
            end = self._cut(plan)
            self._progress.begin("folder")
            make_log_id(self._files, secrets.randbits)
            # An older one is raised by the first start, which says so.
            write_file(self._files, FORMAT_PATH, plan.backup.data_format.encode() + b"\n")
            make_folder(self._files)
            self._progress.begin("checking")
            messages, findings = self._check(end)
            if findings and not accepts_damage:
                raise BackupError(
                    f"{len(findings)} errors would be in the restored broker, the first: {findings[0]}. Restore to the"
                    " end of a backup, or accept what is lost with --accept-damage; remove the folder first"
                )
            self._progress.begin("done")
            self._files.unlink(RESTORING_PATH)
            self._files.sync_dir("")
        finally:
            lock.release()
        size = sum(file.size for file in plan.files)
        return Restored(end.lsn, end.wall_us, len(plan.files), size, messages, findings)

    def _copy(self, plan: Plan) -> None:
        self._progress.begin("copying")
        self._progress.expect(sum(file.size for file in plan.files))
        folders = {""}
        for file in plan.files:
            folder = file.path.rpartition("/")[0]
            if folder not in folders:
                self._files.make_dir(folder)
                while folder:
                    folders.add(folder)
                    folder = folder.rpartition("/")[0]
            self._write(file.path, checked_chunks(self._chain.archive(file.backup_id), file))
        for folder in sorted(folders, reverse=True):
            self._files.sync_dir(folder)

    def _write(self, path: str, chunks: Iterable[bytes]) -> None:
        target = self._files.create(path)
        try:
            end = 0
            for chunk in chunks:
                end = write_all(target, [chunk], end)
                self._progress.advance(len(chunk))
            target.fdatasync()
        finally:
            target.close()

    # --- the end of the journal -------------------------------------------------------------------------

    def _cut(self, plan: Plan) -> BatchEnd:
        """Take away the batches behind the moment; return the last one that stays."""
        numbers = journal_segments(self._files)
        end, doomed = self._find_end(plan, numbers)
        for number in doomed:
            self._files.unlink(journal_path(number))
        if end.segment in numbers:
            file = self._files.open(journal_path(end.segment))
            try:
                if file.size() > end.pos:
                    file.truncate(end.pos)
                    file.fdatasync()
            finally:
                file.close()
        if numbers:
            self._files.sync_dir("journal")
        return end

    def _find_end(self, plan: Plan, numbers: list[int]) -> tuple[BatchEnd, list[int]]:
        """Return the last batch that stays, and the segments behind it."""
        backup, moment = plan.backup, plan.moment
        if moment.lsn is None and moment.wall_us is None:
            return BatchEnd(-1, 0, backup.last_lsn, backup.last_us, 0), []
        end = BatchEnd(-1, 0, backup.first_lsn, backup.first_us, 0)
        is_over = False
        for index, number in enumerate(numbers):
            for each in batch_ends(self._files, number):
                if each.lsn > backup.first_lsn and _is_behind(each, moment):
                    is_over = True
                    break
                end = each
            if is_over and end.segment == number:
                return end, numbers[index + 1 :]
            if is_over and index == 0:
                # Replay begins there, and a start looks for it.
                return BatchEnd(number, FIRST_BATCH_AT, end.lsn, end.wall_us, 0), numbers[1:]
            if is_over:
                return end, numbers[index:]
        return end, []

    # --- the check ----------------------------------------------------------------------------------------

    def _check(self, end: BatchEnd) -> tuple[int, list[str]]:
        """Read everything that waits; return how many messages, and what is wrong."""
        report = check_contents(self._files)
        errors = [f"{each.path}: {each.text}".removeprefix(": ") for each in report.findings if each.severity == ERROR]
        if not errors:
            recovered = recover(self._files, HandleCache(self._files), StoreOptions().index_slots)
            if recovered.end.next_lsn < end.lsn:
                # A start takes a last batch whose large messages are missing for one that was never durable.
                errors.append(
                    f"large messages that were published up to LSN {end.lsn} were removed before the next backup was"
                    f" made; a start would go back to LSN {recovered.end.next_lsn}"
                )
        return report.counts.get("waiting messages", 0), errors


def _is_behind(end: BatchEnd, moment: Moment) -> bool:
    if moment.lsn is not None:
        return end.lsn > moment.lsn
    assert moment.wall_us is not None
    return end.wall_us > moment.wall_us
