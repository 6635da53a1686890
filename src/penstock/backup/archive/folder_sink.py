"""Writes a backup into a folder of its own.

A crash leaves files without a manifest, which no command takes for a backup.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.backup.archive.archive import FILES_FOLDER
from penstock.backup.archive.sink import Sink
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import MANIFEST_NAME
from penstock.disk.files import Files, write_all, write_file


class FolderSink(Sink):
    def __init__(self, files: Files, where: str) -> None:
        """Take an empty folder, or make one; raises BackupError when there is something in it."""
        self.where = where
        self._files = files
        if files.list_dir(""):
            raise BackupError(f"{where} is not empty: give a folder that does not exist yet, or an empty one")
        files.make_dir(FILES_FOLDER)
        self._folders = {"", FILES_FOLDER}

    def add(self, path: str, size: int, chunks: Iterable[bytes]) -> None:
        full = f"{FILES_FOLDER}/{path}"
        self._make_folder(full.rpartition("/")[0])
        file = self._files.create(full)
        try:
            end = 0
            for chunk in chunks:
                end = write_all(file, [chunk], end)
            assert end == size, path
            file.fdatasync()
        finally:
            file.close()

    def _make_folder(self, folder: str) -> None:
        if folder not in self._folders:
            self._files.make_dir(folder)
            while folder:
                self._folders.add(folder)
                folder = folder.rpartition("/")[0]

    def commit(self, manifest: bytes) -> None:
        for folder in sorted(self._folders, reverse=True):
            self._files.sync_dir(folder)
        write_file(self._files, MANIFEST_NAME, manifest)

    def abandon(self) -> None:
        try:
            self._files.remove_dir(FILES_FOLDER)
        except OSError:
            # Without a manifest it is not a backup.
            return
