"""The settings of a broker with the place that each of them is from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.config import SETTINGS, Config
from penstock.settings.values import to_json, to_text

DEFAULT = "default"


@dataclass
class Resolved:
    """What was found in all sources together."""

    values: dict[str, Any] = field(default_factory=dict)
    # Where a value is from: a flag, a variable, a file; nothing for a default.
    sources: dict[str, str] = field(default_factory=dict)
    # How strongly the source counts; only to settle which of two related settings does.
    ranks: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def add(self, values: dict[str, Any], source: str | dict[str, str], rank: int) -> None:
        """Take values from a source that counts more than all before it."""
        for name, value in values.items():
            self.values[name] = value
            self.sources[name] = source if isinstance(source, str) else source[name]
            self.ranks[name] = rank

    def source(self, name: str) -> str:
        return self.sources.get(name, DEFAULT)

    def config(self) -> Config:
        """Return what the values come to. Raises StartupError when they do not go together."""
        return Config(**self.values)

    def lines(self, config: Config) -> list[str]:
        """Return `name = value` with its source, for people; secrets are masked."""
        width = max(len(name) for name in SETTINGS)
        shown = {row.name: to_text(row, getattr(config, row.name)) for row in SETTINGS.values()}
        return [f"{name:{width}} = {value}  ({self.source(name)})" for name, value in shown.items()]

    def as_json(self, config: Config) -> dict[str, Any]:
        """Return the same for programs."""
        return {
            "settings": {
                row.name: {
                    "value": to_json(row, getattr(config, row.name)),
                    "unit": row.unit or None,
                    "source": self.source(row.name),
                }
                for row in SETTINGS.values()
            },
            "files": self.files,
            "warnings": self.warnings,
        }
