"""Who reads large bodies.

To read 64 MiB takes longer than a turn of the loop may. So the store hands the read to a `BodyReader`, and is called
back; who has none reads on the spot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from penstock.disk.files import File

# Receives the bytes and their CRC, which goes on from the one that was given; or None when they could not be read.
BodyRead = Callable[[bytes | None, int], None]


class BodyReader(ABC):
    """Reads files somewhere else."""

    @abstractmethod
    def submit(self, file: File, size: int, offset: int, crc: int, done: BodyRead) -> None:
        """Read bytes of a file, and close it. `done` is called once, later, on the thread that called this."""

    @abstractmethod
    def close(self) -> None:
        """Stop. What is under way is not answered any more."""
