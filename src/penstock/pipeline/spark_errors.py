"""Errors of Spark in one line for people.

What goes wrong in a worker comes as an error of the JVM that has Python's traceback in it, in which the text of our own
error is the last line. Everything else is cut down to what Spark says itself.
"""

from __future__ import annotations

import re
import socket
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock.errors import StartupError

# Errors whose text is for people, as a traceback shows them.
OURS: Final = re.compile(
    r"^(?:[\w.]+\.)?(?:HistoryError|SegmentGone|LakeError|OptionError|SelectionError|SinkError|StartupError)"
    r": (?P<text>.+)$",
    re.MULTILINE,
)
# "java.lang.IllegalStateException: text" and the like.
JAVA: Final = re.compile(
    r"^(?:: |Caused by: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error)(?:: (?P<text>.+))?$", re.MULTILINE
)
LINE_MAX: Final = 500
CONNECT_S: Final = 5.0


# What PySpark and the bridge to its JVM raise.
SPARK_ERRORS: Final = (PySparkException, Py4JError)


def in_words(error: BaseException) -> str:
    """What it says, in one line."""
    text = str(error).strip()
    ours = OURS.findall(text)
    if ours:
        return str(ours[-1])[:LINE_MAX]
    lines = text.splitlines() or [type(error).__name__]
    java = [found for found in JAVA.findall(text) if found]
    # Spark's own errors begin with a condition in brackets, and are complete; of others the innermost cause counts.
    line = lines[0] if not java or lines[0].startswith("[") else java[-1]
    return str(line)[:LINE_MAX]


def check_master(master: str) -> None:
    """StartupError when no standalone master listens: Spark itself gives up after minutes. Others are not asked."""
    if not master.startswith("spark://"):
        return
    refused: OSError | None = None
    for place in master.removeprefix("spark://").split(","):
        host, colon, port = place.rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise StartupError(f"--master {master} is not spark://HOST:PORT, or several HOST:PORT with commas between")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
                return
        except OSError as error:
            refused = error
    raise StartupError(f"no Spark master answers at {master}: {refused}. Is it running, and is this its port?")
