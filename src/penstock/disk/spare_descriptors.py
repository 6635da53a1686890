"""Descriptors that a store keeps for the moment in which the process has no other left.

Connections, readers and libraries open files without asking. When the system refuses the store another descriptor,
one of these is closed and the call is made again: a journal segment, a file of large bodies or the sync of a folder
does not wait for a client to leave. They are taken again as soon as the system gives some.
"""

from __future__ import annotations

import errno
import os


class SpareDescriptors:
    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: list[int] = []
        self.restore()

    @property
    def is_short(self) -> bool:
        """Whether some were needed and could not be taken again."""
        return len(self._kept) < self._count

    def restore(self) -> None:
        """Take again what was given up, as far as the system lets us."""
        while len(self._kept) < self._count:
            try:
                self._kept.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                return

    def give_up(self, error: OSError, count: int = 1) -> bool:
        """Close some if the error says that there are no descriptors; True when the call can be made again."""
        if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._kept:
            return False
        for _ in range(min(count, len(self._kept))):
            os.close(self._kept.pop())
        return True

    def close(self) -> None:
        """Give all of them back."""
        self._count = 0
        while self._kept:
            os.close(self._kept.pop())
