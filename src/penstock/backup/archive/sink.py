"""Where a backup is written to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable


class Sink(ABC):
    # For messages, and for the path to the backup that this one adds to.
    where: str

    @abstractmethod
    def add(self, path: str, size: int, chunks: Iterable[bytes]) -> None:
        """Write a file of exactly this size. It is durable after `commit`."""

    @abstractmethod
    def commit(self, manifest: bytes) -> None:
        """Write the manifest: from now on there is a backup, and it is durable."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written, as far as that can be done."""
