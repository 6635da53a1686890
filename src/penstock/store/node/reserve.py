"""Room on the disk that is kept for the moment when there is none.

The file `reserve` has the size that the settings say, and no content. When the journal finds the disk full, the file is
removed and the journal tries again, so that acks, deletes and the checkpoint that makes room can be written. It is made
again when twice as much is free as it needs, so that it does not come and go at the edge.

Invariants
  1. The file is whole or it is not there: one that could not be made is removed.
  2. Nothing is ever read from it, and it need not survive anything.
"""

from __future__ import annotations

from typing import Final, final

from penstock.clock import Clock
from penstock.disk.files import Files

PATH: Final = "reserve"
# On a small disk it is this part of what is free, and at least so much: some batches of acks.
_FREE_PART: Final = 8
_LEAST_BYTES: Final = 4 << 20
# The free space is asked for at most this often.
_CHECK_EVERY_S: Final = 5.0


@final
class Reserve:
    def __init__(self, files: Files, clock: Clock, size_bytes: int) -> None:
        self._files = files
        self._clock = clock
        self._size_bytes = size_bytes
        self._next_check_s = clock.monotonic_s()
        self.is_allocated = False

    def release(self) -> bool:
        """The disk is full: give the room up. True when there was some to give."""
        if not self.is_allocated:
            return False
        self.is_allocated = False
        self._next_check_s = self._clock.monotonic_s() + _CHECK_EVERY_S
        try:
            self._files.unlink(PATH)
        except OSError:
            return False
        return True

    def restore(self) -> None:
        """Set the room aside again when there is enough. Cheap to call at each turn."""
        if self.is_allocated or self._size_bytes == 0:
            return
        now = self._clock.monotonic_s()
        if now < self._next_check_s:
            return
        self._next_check_s = now + _CHECK_EVERY_S
        try:
            free = self._files.free_bytes()
            size = min(self._size_bytes, max(free // _FREE_PART, _LEAST_BYTES))
            if free < 2 * size and not self._files.exists(PATH):
                return
            file = self._files.open(PATH, create=True)
            try:
                file.reserve(size)
            finally:
                file.close()
        except OSError:
            self._give_back_part()
            return
        self.is_allocated = True

    def _give_back_part(self) -> None:
        try:
            self._files.unlink(PATH)
        except OSError:
            # It is tried again at the next check.
            return
