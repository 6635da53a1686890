"""The Python of Spark's processes on this machine: this one, and pyspark as it is installed.

Spark puts an archive with the sources of pyspark in front of what its Python processes import. Modules in an archive
are never kept compiled, so each of these processes would compile pyspark again, and a small job has about ten of them.
The same sources are installed and compiled beside the archive, where the driver imports them from; so processes are
started through a script of a few lines that leaves the archive out.

Does nothing for workers on other machines, nor where pyspark is not what pip has installed for this Python.
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Final

from penstock.errors import StartupError
from penstock.pipeline.own_scripts import own_folder, own_script, short_hash

SCRIPT: Final = """#!/bin/sh
# Python for Spark's processes, without the archive of pyspark's sources: they are installed, and compiled.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        {archives}/*) ;;
        *) kept=$kept${{kept:+:}}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
exec {python} "$@"
"""


def worker_python() -> str:
    """Return the program that Spark starts as Python."""
    archives = installed_archives()
    if archives is None or os.name != "posix":
        return sys.executable
    script = SCRIPT.format(archives=shlex.quote(str(archives)), python=shlex.quote(sys.executable))
    try:
        target = own_folder() / f"python-{short_hash(script)}"
        own_script(target, script)
    except (OSError, StartupError):
        return sys.executable
    return str(target)


def installed_archives() -> Path | None:
    """Where the archives are, if pyspark itself is one of the packages that this Python has installed."""
    import pyspark

    package = Path(pyspark.__file__).parent
    archives = package / "python" / "lib"
    installed = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    return archives if package.parent in installed and archives.is_dir() else None
