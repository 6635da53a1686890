"""Patterns that names are matched with: regular expressions, found anywhere in the name unless they are anchored.

`access.pattern` matches any of them in linear time, at some microseconds for each character. A vhost may have a hundred
thousand names to ask about; so patterns of the kind that people write, in which nothing is repeated but `.*`, go to
Python's own regular expressions: with two such repetitions and names of 255 bytes these take a millisecond at worst.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from penstock.broker.access.pattern import Pattern
from penstock.broker.access.pattern_syntax import BadPattern
from penstock.broker.operations.call_errors import BadRequest

SIMPLE: Final = re.compile(
    r"(?:[A-Za-z0-9_\-:/ ]|\\[.\-_]|\^|\$|\||\(\?!|\(\?:|\((?!\?)|\)(?![*+?{])|\.\*|\.(?![*+?{]))*"
)
REPETITIONS_MAX: Final = 2


def check_pattern(pattern: str) -> None:
    """Raise BadRequest for a pattern that is none, or has what cannot be matched in linear time."""
    try:
        Pattern(pattern)
    except BadPattern as error:
        raise BadRequest(f"pattern should be regular expression but is invalid: {error}") from None


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a name matches."""
    if SIMPLE.fullmatch(pattern) and pattern.count(".*") <= REPETITIONS_MAX:
        compiled = re.compile(pattern)
        return lambda name: compiled.search(name) is not None
    return Pattern(pattern).matches
