"""A standalone cluster of Spark, from what pip has installed: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from penstock.pipeline.java import java_home
from tests.interop.deadline import wait_until

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
# Java and Spark take their time on a machine that does other things.
START_S = 180.0
STOP_S = 60.0
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# For the driver and for one executor on each worker: as small as Spark takes them.
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": OPTIONS,
    "spark.driver.extraJavaOptions": OPTIONS,
    "spark.sql.shuffle.partitions": "2",
}


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": java_home(),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
    }


def spark_tool(name: str) -> str:
    """`spark-class` and `spark-submit` of the installation."""
    return str(Path(pyspark.__file__).parent / "bin" / name)


class Daemon:
    """A master or a worker; what it says goes to a file in its folder."""

    def __init__(self, folder: Path, main: str, *arguments: str) -> None:
        folder.mkdir()
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [spark_tool("spark-class"), main, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, pattern: str) -> str:
        """The first group of the pattern, once it is in the log."""

        def found() -> str | None:
            text = self._log.read_text()
            assert self._process.poll() is None, text
            match = re.search(pattern, text)
            return match[1] if match else None

        return str(wait_until(found, f"{pattern} in {self._log}", timeout_s=START_S))

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[str]:
    """The URL of the master, once all workers have registered."""
    folder.mkdir()
    with ExitStack() as running:
        master = Daemon(folder / "master", MASTER, "--port", "0")
        running.callback(master.stop)
        url = master.wait_for(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        for number in range(workers):
            home = folder / f"worker-{number}"
            limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            worker = Daemon(home, WORKER, "--port", "0", *limits, url)
            running.callback(worker.stop)
            worker.wait_for(r"(Successfully registered with master)")
        yield url
