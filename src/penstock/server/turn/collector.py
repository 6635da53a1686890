"""When the garbage collector of the server process may work, and on how much; see docs/decisions/0003.

What dies in the broker is freed by reference counting: queues, channels and connections break their cycles themselves.
The collector is left for what others make (tracebacks, libraries), and must not cost a turn:

- new objects are looked at once, YOUNG_OBJECTS at a time, whenever so many have been made;
- what has survived that is looked at once more when the broker is idle, and never again after that (`gc.freeze`). If it
  has become too much for one turn, it is put aside without a look: it is a backlog of messages.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

# Objects that are looked at together: less than half a millisecond. A connection that opens makes objects with many
# neighbours: 10,000 of those took up to 2.8 ms.
YOUNG_OBJECTS: Final = 4_000
# More than this is not looked at in one go, even in an idle broker: a message may come meanwhile, and waits.
IDLE_OBJECTS_MAX: Final = 12_000
# How often the broker is asked whether it is idle.
CHECK_S: Final = 10.0
# So many turns between two looks are those of timers and heartbeats.
IDLE_TURNS_MAX: Final = 20
# A generation that is never due by itself.
NEVER: Final = 1_000_000


class Collector:
    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Callable[[], int], check_s: float = CHECK_S) -> None:
        """`turns` counts what the broker has done so far."""
        self._loop = loop
        self._turns = turns
        self._check_s = check_s
        self._turns_before = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """What exists now lives until the end, and is not looked at again."""
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, NEVER, NEVER)
        self._turns_before = self._turns()
        self._timer = self._loop.call_later(self._check_s, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        turns = self._turns()
        if turns - self._turns_before <= IDLE_TURNS_MAX:
            young, passes, _ = gc.get_count()
            if young + passes * YOUNG_OBJECTS <= IDLE_OBJECTS_MAX:
                gc.collect()
            gc.freeze()
        self._turns_before = turns
        self._timer = self._loop.call_later(self._check_s, self._check)
