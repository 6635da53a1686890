"""The result of an operation that takes more than one turn of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.operations.call_errors import CallError

Done = Callable[["Later"], None]
Progress = Callable[[dict[str, Any]], None]


class Later:
    """Finished or failed once; whoever asks before that is told then."""

    def __init__(self) -> None:
        self.is_done = False
        self.result: Any = None
        self.error: CallError | None = None
        self._done: list[Done] = []
        # How far it is, for people who wait; may be set by the caller.
        self.on_progress: Progress | None = None

    def when_done(self, done: Done) -> None:
        """Call `done` when there is a result or an error; at once if there is one already."""
        if self.is_done:
            done(self)
        else:
            self._done.append(done)

    def progress(self, **how_far: Any) -> None:
        if self.on_progress is not None:
            self.on_progress(how_far)

    def finish(self, result: Any) -> None:
        self.result = result
        self._end()

    def fail(self, error: CallError) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        assert not self.is_done
        self.is_done = True
        waiting, self._done = self._done, []
        for done in waiting:
            done(self)
