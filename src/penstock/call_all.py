"""Calling several functions of which none may keep the others from being called."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def call_all(functions: Sequence[Callable[[], None]]) -> None:
    """Call each function, whatever becomes of the others; then raise the first error, if there was one."""
    first: Exception | None = None
    for function in functions:
        try:
            function()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
