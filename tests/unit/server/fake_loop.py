"""An event loop that the test turns by hand, with a time of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Timer:
    """What call_soon and call_later give back."""

    def __init__(self, when_s: float, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.when_s = when_s
        self.call = call
        self.arguments = arguments
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop(asyncio.AbstractEventLoop):
    """Runs what is due when it is told to, and nothing in between."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ready: list[Timer] = []
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        timer = Timer(self.now_s, callback, args)
        self.ready.append(timer)
        return timer

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        timer = Timer(self.now_s + delay, callback, args)
        self.timers.append(timer)
        return timer

    def live_timers(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled]

    def turn(self) -> int:
        """Run what is ready now, but not what becomes ready by that; return how many calls."""
        ready, self.ready = self.ready, []
        for timer in ready:
            if not timer.cancelled:
                timer.call(*timer.arguments)
        return len(ready)

    def run(self, turns_max: int = 1000) -> None:
        """Turn until nothing is ready."""
        for _ in range(turns_max):
            if not self.turn():
                return
        raise AssertionError(f"not quiet after {turns_max} turns")

    def pass_s(self, seconds: float) -> None:
        """Let time pass, and run what comes due in its order."""
        until = self.now_s + seconds
        self.run()
        while True:
            due = [timer for timer in self.live_timers() if timer.when_s <= until]
            if not due:
                break
            timer = min(due, key=lambda candidate: candidate.when_s)
            self.timers.remove(timer)
            self.now_s = max(self.now_s, timer.when_s)
            timer.call(*timer.arguments)
            self.run()
        self.now_s = until
