"""A JVM of Spark that outlives the jobs that use it: `python -m tests.pipeline.exactly_once.jvm`.

Most of the work of a small job is the start of its JVM. A job that finds the address of one in its environment, as
under spark-submit, starts none. Such a job is killed with every Python process that Spark has started for it; its JVM
is left with what a dead job leaves there, and `clear` removes that.

The process answers each line of its standard input with a line, and ends with its input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pipeline.conftest import SETTINGS
from tests.tidy_rules import ROOT

MASTER = "local[1]"
CLEAR_S = 60.0
END_S = 60.0


@dataclass
class SharedJvm:
    """The process, as a test sees it."""

    process: subprocess.Popen[str]
    # For a job: where the JVM is.
    variables: dict[str, str]

    def clear(self) -> None:
        """Stop what a job that was killed has left in the JVM."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("clear\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "cleared\n"

    @property
    def processes(self) -> list[int]:
        """Those that stay when a job is killed."""
        return [self.process.pid, int(self.variables["PENSTOCK_TEST_JVM"])]


@contextmanager
def shared_jvm(variables: dict[str, str], log: Path) -> Iterator[SharedJvm]:
    """A JVM whose Python processes have these variables. All of them are in one session (see `Popen`)."""
    with log.open("wb") as target:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.exactly_once.jvm"],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=target,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield SharedJvm(process, json.loads(line))
        process.stdin.close()
        assert process.wait(END_S) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def main() -> None:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    from penstock.pipeline.class_archive import archive_options
    from penstock.pipeline.session import prepare_environment, settings

    prepare_environment(MASTER)
    chosen = {**settings(MASTER), **SETTINGS}
    chosen["spark.driver.defaultJavaOptions"] += f" {archive_options(os.environ['JAVA_HOME'])}"
    # What the JVM prints is none of our answers.
    gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(list(chosen.items())), {"stdout": sys.stderr})
    address = gateway.java_parameters
    variables = {
        "PYSPARK_GATEWAY_PORT": str(address.port),
        "PYSPARK_GATEWAY_SECRET": address.auth_token,
        "PENSTOCK_TEST_JVM": str(gateway.proc.pid),
    }
    say(json.dumps(variables))
    for _ in sys.stdin:
        clear(gateway.jvm)
        say("cleared")
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def clear(java: Any) -> None:
    """End the context of the job before, and wait until its stream does nothing more."""
    session = java.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
    if session.isDefined():
        session.get().sparkContext().stop()
    deadline = time.monotonic() + CLEAR_S
    while any(thread.getName().startswith("stream execution thread") for thread in threads(java)):
        assert time.monotonic() < deadline, "a stream of a job that is dead goes on"
        time.sleep(0.02)


def threads(java: Any) -> Any:
    return java.java.lang.Thread.getAllStackTraces().keySet()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
