"""The broker, or the folder, that a backup is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a backup begins."""

    # 0: there is none, and the journal is there from its first segment on.
    checkpoint: int
    # Everything that the checkpoint contains was journaled below.
    lsn: int
    log_id: str
    version: str
    online: bool
    # For people.
    notes: tuple[str, ...] = ()


class Source(ABC):
    """From `begin` to `end` no file goes that the checkpoint names, and none that the journal behind it refers to."""

    @abstractmethod
    def begin(self) -> Beginning:
        """Have files kept; raises BackupError."""

    @abstractmethod
    def renew(self) -> int:
        """Have them kept on; return up to which LSN the journal is durable, which is all that happened before.

        Raises BackupError when they were not kept.
        """

    @abstractmethod
    def end(self) -> None:
        """Everything is copied. Raises BackupError when files were not kept all the time."""

    @abstractmethod
    def give_up(self) -> None:
        """The backup has failed: files need not be kept. Raises nothing."""
