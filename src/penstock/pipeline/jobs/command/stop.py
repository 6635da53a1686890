"""How jobs that go on are ended."""

from __future__ import annotations

import os
import signal


class Stop:
    """Becomes set when the job is to end."""

    def __init__(self, parent: int | None = None) -> None:
        self.asked = False
        # The process that started this one, if its end is ours.
        self._parent = parent
        self.listen()

    def listen(self) -> None:
        """From now on signals ask. To be called again when Spark has started: it takes SIGINT for itself."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True

    def __call__(self) -> bool:
        return self.asked or (self._parent is not None and os.getppid() != self._parent)
