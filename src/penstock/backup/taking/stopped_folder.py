"""The data folder of a broker that does not run. Its lock is held meanwhile, so that none is started."""

from __future__ import annotations

import penstock
from penstock.backup.backup_error import BackupError
from penstock.backup.taking.source import Beginning, Source
from penstock.disk.files import Files, FolderLock, FolderLocked
from penstock.errors import StartupError
from penstock.store.node.node_store import LOCK_PATH
from penstock.store.node.options import StoreOptions
from penstock.store.queue.places import StoreError
from penstock.store.recovery import recovery
from penstock.store.retention.reader_cursors import log_id
from penstock.store.shared.handles import HandleCache


class StoppedFolder(Source):
    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock: FolderLock | None = None
        self._end_lsn = 0

    def begin(self) -> Beginning:
        try:
            self._lock = self._files.lock(LOCK_PATH)
        except FolderLocked as error:
            raise BackupError(
                f"the data folder is in use, and its broker does not answer on its control socket: {error}. Stop it, or"
                " wait until it has started"
            ) from error
        try:
            recovery.check_format(self._files)
            recovered = recovery.recover(self._files, HandleCache(self._files), StoreOptions().index_slots)
        except (StartupError, StoreError) as error:
            self.give_up()
            raise BackupError(f"a broker would not start with this folder: {error}") from error
        self._end_lsn = recovered.end.next_lsn
        checkpoint = recovered.kept[-1].number if recovered.kept else 0
        # What the definitions in the checkpoint have of later changes is not known, so there is one point only.
        return Beginning(
            checkpoint,
            self._end_lsn,
            log_id(self._files),
            penstock.__version__,
            False,
            tuple(f"the folder is damaged: {line}" for line in recovered.report),
        )

    def renew(self) -> int:
        return self._end_lsn

    def end(self) -> None:
        self.give_up()

    def give_up(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
