"""What a JVM says by itself when it starts: warnings that tell a user of ours nothing. They go to the log instead."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("penstock.spark")

# Of Java ("WARNING: Using incubator modules"), of a library of sketches ("Warning: Java versions > Java 11 …"), of
# Spark before it has read how to log, and of its own log.
WARNINGS = re.compile(
    rb"WARNING: |Warning: Java |OpenJDK .* warning: |Picked up (_JAVA_OPTIONS|JAVA_TOOL_OPTIONS)"
    rb"|Using Spark's default log4j profile|Setting default log level to"
    rb"|To adjust logging level use|\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN "
)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Have the standard error of this process, and of what it starts meanwhile, without such warnings.

    What was started goes on writing there for as long as it lives.
    """
    logging.captureWarnings(True)
    sys.stderr.flush()
    reading, writing = os.pipe()
    real = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_sort, args=(reading, real), name="penstock-java-said", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)
        logging.captureWarnings(False)


def _sort(reading: int, real: int) -> None:
    with os.fdopen(reading, "rb") as said:
        for line in said:
            if WARNINGS.match(line):
                log.info("%s", ascii(line.decode("utf-8", "replace").rstrip())[1:-1])
            else:
                os.write(real, line)
