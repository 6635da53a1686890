"""Small programs and files that are made for this user in a folder that only this user can change.

The folder is XDG_CACHE_HOME/penstock, or one below the temporary folder where there is no home to write to. What is in
it will be run, so a folder that others made is refused.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from penstock.errors import StartupError


def own_folder() -> Path:
    """This user's folder for what can be made again; below the temporary one where there is no home to write to."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(base) if base else Path.home() / ".cache"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return private_folder(folder / "penstock")
    except OSError:
        return private_folder(Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}")


def private_folder(folder: Path) -> Path:
    """Return a folder that only this user can change. What is in it will be run: one that others made is refused."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StartupError(f"{folder} is not a folder of this user; remove it, or set XDG_CACHE_HOME to another place")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(0o700)
    return folder


def own_script(target: Path, script: str) -> None:
    """Make the script, which this user can run, if it is not there."""
    if is_script(target, script):
        return
    # Beside it and then renamed: others see the whole script or none.
    handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    with os.fdopen(handle, "w") as file:
        file.write(script)
        os.fchmod(file.fileno(), stat.S_IRWXU)
    Path(beside).replace(target)


def is_script(target: Path, script: str) -> bool:
    try:
        return target.read_text() == script and os.access(target, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False


def short_hash(text: str) -> str:
    """For names: what differs has another one."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
