"""Where the brokers' data goes: a folder on a disk. A sync to a file system in memory is no sync."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

IN_MEMORY: Final = ("tmpfs", "ramfs", "devtmpfs")
# Kept on disk by all distributions, also where /tmp is not.
ON_DISK: Final = Path("/var/tmp")


def file_system(folder: Path) -> str:
    """The kind of file system that the folder is on, as /proc/mounts names it."""
    found, found_at = "unknown", ""
    resolved = str(folder.resolve())
    for line in Path("/proc/mounts").read_text().splitlines():
        _, at, kind, *_ = line.split()
        inside = resolved == at or resolved.startswith(at.rstrip("/") + "/")
        # The last of the longest is what one sees: it hides the others.
        if inside and len(at) >= len(found_at):
            found, found_at = kind, at
    return found


def disk_folder() -> Path:
    """The temporary folder (TMPDIR says which), unless that is in memory."""
    usual = Path(tempfile.gettempdir())
    return ON_DISK if file_system(usual) in IN_MEMORY else usual
