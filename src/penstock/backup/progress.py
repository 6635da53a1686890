"""How far a command is, for people who wait."""

from __future__ import annotations

from collections.abc import Callable

# What is being done, bytes that are done, bytes in all as far as they are known.
Show = Callable[[str, int, int], None]


class Progress:
    def __init__(self, show: Show | None = None) -> None:
        self._show = show
        self.phase = ""
        self.done_bytes = 0
        self.total_bytes = 0

    def begin(self, phase: str) -> None:
        self.phase = phase
        self._tell()

    def expect(self, size: int) -> None:
        """There are so many bytes more."""
        self.total_bytes += size

    def advance(self, size: int) -> None:
        self.done_bytes += size
        self._tell()

    def _tell(self) -> None:
        if self._show is not None:
            self._show(self.phase, self.done_bytes, self.total_bytes)
