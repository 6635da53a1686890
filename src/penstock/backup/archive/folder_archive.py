"""A backup in a folder."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.backup.archive.archive import CHUNK_BYTES, FILES_FOLDER, Archive, no_manifest
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME
from penstock.disk.files import Files


class FolderArchive(Archive):
    def __init__(self, files: Files, where: str) -> None:
        self._files = files
        self.where = where

    def manifest_bytes(self) -> bytes:
        try:
            file = self._files.open(MANIFEST_NAME)
        except OSError as error:
            raise BackupError(no_manifest(self.where)) from error
        try:
            return file.pread(min(file.size(), MANIFEST_BYTES_MAX), 0)
        finally:
            file.close()

    def size(self, path: str) -> int:
        try:
            file = self._files.open(f"{FILES_FOLDER}/{path}")
        except OSError:
            return -1
        try:
            return file.size()
        finally:
            file.close()

    def read(self, path: str) -> Iterator[bytes]:
        try:
            file = self._files.open(f"{FILES_FOLDER}/{path}")
            try:
                offset = 0
                while chunk := file.pread(CHUNK_BYTES, offset):
                    offset += len(chunk)
                    yield chunk
            finally:
                file.close()
        except OSError as error:
            raise BackupError(f"{path} in {self.where} cannot be read: {error.strerror or error}") from error

    def paths(self) -> list[str]:
        found: list[str] = []
        self._walk("", found)
        return sorted(found)

    def _walk(self, folder: str, found: list[str]) -> None:
        for name in self._files.list_dir(f"{FILES_FOLDER}/{folder}".rstrip("/")):
            path = f"{folder}/{name}".lstrip("/")
            if "." in name:
                # Every file has an ending, and no folder has a dot in its name.
                found.append(path)
            else:
                self._walk(path, found)

    def close(self) -> None:
        return None
