"""The settings of a running broker: read at its start, and again when it is told to."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.config import Config
from penstock.errors import StartupError
from penstock.settings.resolved import Resolved

log = logging.getLogger("penstock.settings")


class Settings:
    def __init__(self, read: Callable[[], Resolved]) -> None:
        self._read = read
        self._warnings: list[str] = []

    def first(self) -> Config:
        """Return what the sources say. Raises StartupError when that cannot be."""
        resolved = self._read()
        self._warnings = resolved.warnings
        return resolved.config()

    def again(self) -> Config | None:
        """Return what the sources say now; None, with a line in the log, when that cannot be."""
        try:
            config = self.first()
        except StartupError as error:
            log.error("the settings stay as they are: %s", error)
            return None
        self.log_warnings()
        return config

    def log_warnings(self) -> None:
        for warning in self._warnings:
            log.warning("%s", warning)
