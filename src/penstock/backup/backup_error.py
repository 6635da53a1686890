"""Why a backup cannot be made, read or restored: one line that says what to do."""

from __future__ import annotations


class BackupError(Exception):
    """The text is for people."""
