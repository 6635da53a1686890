"""Names the known name that an unknown one is most like, for complaints about misspelt settings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Comparing is quadratic in the length; a name of a setting has at most about 30 characters.
NAME_CHARS_MAX = 100


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like this one; empty when none is like it."""
    found = difflib.get_close_matches(name[:NAME_CHARS_MAX].lower(), known, n=1, cutoff=0.6)
    return found[0] if found else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?", or nothing."""
    found = nearest(name, known)
    return f"; did you mean {found}?" if found else ""
