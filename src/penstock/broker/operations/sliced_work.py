"""Work of an operation over many turns of the loop, a few milliseconds in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.operations.call_errors import CallError
from penstock.broker.operations.later import Later
from penstock.queues.delayed.next_turn import NextTurn

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

SLICE_S: Final = 0.004
# Steps between two looks at the clock.
STEPS_AT_ONCE: Final = 8


class SlicedWork:
    def __init__(self, broker: Broker, steps: Iterator[None], result: Callable[[], Any]) -> None:
        """`steps` is gone through to its end; then the operation is answered with what `result` returns."""
        self.later = Later()
        self._clock = broker.clock
        self._steps = steps
        self._result = result
        self._next = NextTurn(self._go_on, broker.expiries)
        self._go_on(broker.clock.wall_ms())

    def _go_on(self, now_ms: int) -> None:
        end_s = self._clock.monotonic_s() + SLICE_S
        try:
            while self._clock.monotonic_s() < end_s:
                for _ in range(STEPS_AT_ONCE):
                    next(self._steps)
        except StopIteration:
            self.later.finish(self._result())
        except CallError as error:
            self.later.fail(error)
        else:
            self._next.soon(now_ms)
