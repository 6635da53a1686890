"""Which build of penstock the tests run on: its source as it is, or its hot path compiled (`make test-compiled`)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

import pytest

from penstock import limits
from penstock.cli.main import BUILD

IS_COMPILED: Final = BUILD == "compiled"


def interpreted_only(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(IS_COMPILED, reason=f"not on compiled modules: {reason}")


def is_compiled(target: object) -> bool:
    """Return whether what a test would change there is compiled in, so that the change would count for nothing."""
    if target is limits:
        return IS_COMPILED
    module = target if isinstance(target, ModuleType) else sys.modules.get(getattr(target, "__module__", ""))
    if module is None or not module.__name__.startswith("penstock."):
        return False
    return not str(module.__file__).endswith(".py")


class HonestMonkeyPatch(pytest.MonkeyPatch):
    """Skips a test that would change a compiled module: it runs on the interpreted one."""

    def setattr(self, target: object, *arguments: object, **options: bool) -> None:  # type: ignore[override]
        if not isinstance(target, str) and is_compiled(target):
            pytest.skip("not on compiled modules: the test changes a constant or a function that is compiled in")
        super().setattr(target, *arguments, **options)  # type: ignore[arg-type]
