"""A mutant: a bug that is put into the source on purpose, and the tests that must notice it.

The list is `mutants.toml`, one table for each:

    [name_of_the_bug]
    promise = "what is promised, in words"
    file = "src/penstock/..."
    old = '''text that occurs once in the file'''
    new = '''what stands there instead'''
    killers = ["tests/....py::test_name", ...]

A killer is a test function; without parameters in its id all of its rows run, until one fails.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("mutants.toml")


class CannotApply(Exception):
    """The source has changed, and the text that the mutant replaces is not there once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug."""

    name: str
    promise: str
    file: str
    old: str
    new: str
    killers: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """Return the source with the bug in it. Raises CannotApply."""
        count = text.count(self.old)
        if count != 1:
            raise CannotApply(f"{self.name}: the text to replace occurs {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def load() -> list[Mutant]:
    """Return all mutants, in the order of the list."""
    with LIST.open("rb") as file:
        tables = tomllib.load(file)
    return [
        Mutant(name, each["promise"], each["file"], each["old"], each["new"], tuple(each["killers"]))
        for name, each in tables.items()
    ]
