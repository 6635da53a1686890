"""What is wrong with a selector: where, what was found there, and what was expected.

Invariants
1. The column counts characters from 1. The end of the text is the column after its last character.
2. The text quotes at most `SHOWN_CHARS_MAX` characters of the selector, and only printable ones.
"""

from __future__ import annotations

from penstock.selectors.bounds import SHOWN_CHARS_MAX


class SelectorError(ValueError):
    """The text is not a selector. `column` is where, `problem` what is there, `expected` what should be."""

    def __init__(self, column: int, problem: str, expected: str) -> None:
        super().__init__(f"column {column}: {problem}; expected {expected}")
        self.column = column
        self.problem = problem
        self.expected = expected


def shown(text: str) -> str:
    """Return a piece of the selector as an error quotes it."""
    head = text[:SHOWN_CHARS_MAX]
    plain = "".join([char if char.isprintable() and char.isascii() else "?" for char in head])
    return plain if len(text) == len(head) else plain + "..."
