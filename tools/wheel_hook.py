"""Puts the compiled modules into a wheel for this platform; `make wheel` switches this on (pyproject.toml)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

from compile import NotPossible, compiled, libraries


class CompiledModules(BuildHookInterface):  # type: ignore[type-arg,misc,unused-ignore]
    """The source stays beside them: for tracebacks, and for who ships it elsewhere."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        try:
            folder, _ = compiled()
        except NotPossible as error:
            sys.exit(f"no wheel for this platform: {error}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(path): place for path, place in libraries(folder)})
