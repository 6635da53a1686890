"""Waiting for a condition with a deadline, the only way interop tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# It only bounds a failure: a busy machine may need most of it.
DEADLINE_S = 60.0


def wait_until(
    condition: Callable[[], Any],
    what: str,
    step: Callable[[], Any] | None = None,
    timeout_s: float = DEADLINE_S,
) -> Any:
    """Return the first truthy value of `condition`; fail with `what` when the deadline passes.

    `step` is run between two looks (for example a client's event loop); without it the wait is a short nap.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        if step is None:
            time.sleep(0.01)
        else:
            step()
