"""Patterns that names are matched with: regular expressions, found anywhere in the name unless they are anchored."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.access.pattern import Pattern
from penstock.broker.access.pattern_syntax import BadPattern
from penstock.broker.operations.call_errors import BadRequest


def check_pattern(pattern: str) -> None:
    try:
        Pattern(pattern)
    except BadPattern as error:
        raise BadRequest(f"pattern should be regular expression but is invalid: {error}") from None


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a name matches."""
    return Pattern(pattern).matches
