"""Something that a test does on another thread while it looks on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.interop.deadline import wait_until


class Call:
    """A call on a thread of its own."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._outcome: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._function()
        except BaseException as error:
            self._error = error

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        """What it returned, or raised."""
        wait_until(self.is_over, "the other thread is done", timeout_s=60.0)
        if self._error is not None:
            raise self._error
        return self._outcome
