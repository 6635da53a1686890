"""What the machine offers a broker: how much memory it has, and where it keeps the data of users."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock import limits

# Where Linux tells a container how much memory it may use: cgroup v2, then v1.
CONTAINER_LIMIT_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def default_memory_bytes(container_limit_files: Iterable[str] = CONTAINER_LIMIT_FILES) -> int:
    """A share of the memory of the machine, or of the container; 1 GiB where the system does not say what it has."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1024**3
    for path in container_limit_files:
        total = min(total, _limit_in(path) or total)
    return int(total * limits.MEMORY_SHARE)


def _limit_in(path: str) -> int:
    """0 when there is no such file or no limit in it ("max")."""
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def default_data_dir(env: Mapping[str, str], platform: str = sys.platform) -> str:
    """Return the folder that this system gives a user's programs for their data."""
    home = Path(env.get("HOME") or Path.home())
    if platform == "win32":
        base = Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    return str(base / "penstock")
