"""Writes a backup as one tar file: plain tar, which every tar can list and read.

The file has another name, with `.part` behind it, until it is complete and synced. A crash leaves that one.
"""

from __future__ import annotations

import tarfile
import time
from collections.abc import Iterable

from penstock.backup.archive.archive import FILES_FOLDER
from penstock.backup.archive.sink import Sink
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import MANIFEST_NAME
from penstock.disk.files import Files, write_all

_MODE = 0o600
DRAFT_ENDING = ".part"


class TarSink(Sink):
    def __init__(self, files: Files, name: str, where: str) -> None:
        """`files` is the folder that the file is to be in; raises BackupError when there is a file of that name."""
        self.where = where
        self._files = files
        self._name = name
        self._draft = name + DRAFT_ENDING
        if files.exists(name):
            raise BackupError(f"{where} exists already: give another name, or remove it")
        files.unlink(self._draft)
        self._file = files.create(self._draft)
        self._end = 0

    def add(self, path: str, size: int, chunks: Iterable[bytes]) -> None:
        self._add(f"{FILES_FOLDER}/{path}", size, chunks)

    def _add(self, name: str, size: int, chunks: Iterable[bytes]) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = size, _MODE, int(time.time())
        self._write(member.tobuf(tarfile.GNU_FORMAT))
        start = self._end
        for chunk in chunks:
            self._write(chunk)
        assert self._end - start == size, name
        self._write(bytes(-size % tarfile.BLOCKSIZE))

    def commit(self, manifest: bytes) -> None:
        self._add(MANIFEST_NAME, len(manifest), [manifest])
        self._write(bytes(2 * tarfile.BLOCKSIZE))
        self._file.fdatasync()
        self._file.close()
        self._files.rename(self._draft, self._name)
        self._files.sync_dir("")

    def abandon(self) -> None:
        self._file.close()
        try:
            self._files.unlink(self._draft)
        except OSError:
            # Its name says that it is not complete.
            return

    def _write(self, data: bytes) -> None:
        if data:
            self._end = write_all(self._file, [data], self._end)
