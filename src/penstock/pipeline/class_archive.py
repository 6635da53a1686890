"""Spark's classes in one file that a JVM maps instead of reading them out of jars, so that Spark starts sooner.

The file is an archive as Java makes it (class data sharing), in this user's cache: one for each Java and Spark. A
session names it to its JVM, which compares it with itself and with each jar, and goes on without it when anything
differs. So a file that is out of date costs nothing but the time that it would have saved.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from penstock.errors import StartupError
from penstock.pipeline.own_scripts import own_folder, short_hash

# Without its own word about an archive that does not fit: the JVM would say it on the standard output.
SILENT: Final = "-Xlog:cds*=off"


def archive_path(home: str) -> Path:
    """Where the archive for the Java in this folder and the Spark of this Python is, if there is one."""
    import pyspark

    name = short_hash(f"{Path(home).resolve()}\0{pyspark.__file__}")
    return own_folder() / f"spark-classes-{name}.jsa"


def archive_options(home: str) -> str:
    """For the JVM of a session; nothing when there is no archive."""
    try:
        path = archive_path(home)
        is_there = path.is_file()
    except (OSError, StartupError):
        return ""
    return f"{quoted(f'-XX:SharedArchiveFile={path}')} {SILENT}" if is_there else ""


def quoted(option: str) -> str:
    """As Spark reads a list of options."""
    return option if option == shlex.quote(option) else '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'
