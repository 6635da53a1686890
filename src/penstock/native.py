"""What the compiler is told about a class, in words that mean nothing to the interpreter (docs/decisions/0018).

mypyc knows the two decorators by where they come from, `mypy_extensions`. A running broker does not need that package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr, trait
else:
    Class = TypeVar("Class", bound=type)

    def trait(cls: Class) -> Class:
        """Mark a class that others have beside their base."""
        return cls

    def mypyc_attr(**attributes: bool) -> Callable[[Class], Class]:
        """Say what a compiled class allows besides, such as subclasses that are not compiled (`tests` has many)."""
        return lambda cls: cls


__all__ = ["mypyc_attr", "trait"]
