"""A compiled selector: what the rest of the broker uses of this room. docs/selectors.md describes the language.

Invariants
1. `compile_selector` raises `SelectorError` and nothing else, whatever the text is.
2. `matches` never raises because of the values of a message, and is True only where the condition is true: false and
   unknown are both False.
3. A selector never changes; the same message gets the same answer at any time.
"""

from __future__ import annotations

from typing import final

from penstock.selectors.lexer import tokens_of
from penstock.selectors.nodes import Node
from penstock.selectors.parser import Parser
from penstock.selectors.selector_error import SelectorError
from penstock.selectors.values import Value, View

__all__ = ["Selector", "SelectorError", "Value", "View", "compile_selector"]


@final
class Selector:
    """`names`: the headers it looks at. Without any, a message's headers need not be decoded for it."""

    __slots__ = ("_root", "names", "needs_headers", "text")

    def __init__(self, text: str, root: Node, names: frozenset[str]) -> None:
        self.text = text
        self.names = names
        self.needs_headers = bool(names)
        self._root = root

    def matches(self, view: View) -> bool:
        return self._root.evaluate(view) is True


def compile_selector(text: str) -> Selector:
    """Return the selector that the text says. Raises SelectorError with what is wrong, where, and what was expected."""
    parser = Parser(tokens_of(text))
    root = parser.parse()
    return Selector(text, root, frozenset(parser.names))
