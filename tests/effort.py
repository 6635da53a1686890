"""How hard tests with random input search: a little in `make check`, as written in `make test`, or for long.

HYPOTHESIS_PROFILE is `quick` in `make check`; `deep` searches much longer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "")
Case = TypeVar("Case")
DEEP = PROFILE == "deep"
# One example of so many is tried in a quick run.
QUICK_PART = 8


def some(cases: Sequence[Case]) -> Sequence[Case]:
    """All of them; in a quick run one of so many, the first among them."""
    return cases[::QUICK_PART] if PROFILE == "quick" else cases


def step(length: int) -> int:
    """How far the tried places are from each other."""
    return length * QUICK_PART if PROFILE == "quick" else length


def examples(count: int, deep: int = 0) -> int:
    """How many of `count` examples are tried; `deep`, if there is such a number, in a deep run."""
    if PROFILE == "quick":
        return max(count // QUICK_PART, 3)
    return deep if DEEP and deep else count
