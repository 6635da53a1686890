"""The files of a data folder, for looking only: opened without the right to write, so that a reader needs none."""

from __future__ import annotations

import os
import sys

from penstock.disk.os_files import OsFiles


class ReadFiles(OsFiles):
    def _open(self, path: str, flags: int) -> int:
        if flags:
            raise PermissionError(f"{path} would be made, and this folder is for reading")
        if sys.platform == "win32":
            flags |= os.O_BINARY
        return os.open(self._full(path), os.O_RDONLY | flags)

    def stamp(self, path: str) -> tuple[int, int, int]:
        """What is another whenever a file is another one, or was changed in place."""
        found = os.stat(self._full(path))
        return found.st_ino, found.st_size, found.st_mtime_ns
