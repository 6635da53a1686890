"""A backup, for reading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

# Where the files of the data folder are in a backup.
FILES_FOLDER: Final = "files"
CHUNK_BYTES: Final = 1 << 20


class Archive(ABC):
    # For messages, and for looking for the backup that this one adds to.
    where: str

    @abstractmethod
    def manifest_bytes(self) -> bytes:
        """Return the manifest as it was written; raises BackupError when there is none."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the size of a file; -1 when it is not there."""

    @abstractmethod
    def read(self, path: str) -> Iterator[bytes]:
        """Give the bytes of a file, in chunks; raises BackupError when it cannot be read."""

    @abstractmethod
    def paths(self) -> list[str]:
        """Return what files there are, whatever the manifest says."""

    @abstractmethod
    def close(self) -> None:
        """Give handles back."""


def no_manifest(where: str) -> str:
    return (
        f"{where} has no manifest: it is not a backup, or one that was never completed. Make another with"
        " `penstock backup`, and remove this one"
    )
