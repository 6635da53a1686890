"""What takes back the changes of an import that could not be finished."""

from __future__ import annotations

from collections.abc import Callable


class Undo:
    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def add(self, step: Callable[[], object]) -> None:
        """`step` takes back the change that was just made."""
        self._steps.append(step)

    def __len__(self) -> int:
        return len(self._steps)

    def run(self) -> None:
        """Take everything back, the last change first."""
        while self._steps:
            self._steps.pop()()
