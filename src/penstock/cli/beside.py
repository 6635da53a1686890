"""The pipeline beside a broker: `penstock serve --pipeline` runs `penstock pipeline run` as a child process.

It is a process of its own, so that neither Spark's memory nor its Python competes with the broker's loop. When it ends
by itself, that is reported, and it is started again after a while. When the broker ends, the child ends, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Final

log = logging.getLogger("penstock.pipeline")

# Between two attempts.
AGAIN_S: Final = 30.0
# Spark needs some seconds to end a batch.
STOP_S: Final = 30.0
KILLED_S: Final = 5.0
# A line of a JVM in trouble can be long; the rest of it is not worth memory.
LINE_BYTES_MAX: Final = 64 * 1024
# Below the broker's own priority: archiving can wait, deliveries cannot.
NICE: Final = 10


class PipelineBeside:
    """Keeps the child running until it is told to stop."""

    def __init__(self, data_dir: str, lake: str) -> None:
        self._lake = Path(lake).absolute()
        self._command = [
            *(sys.executable, "-m", "penstock", "pipeline", "run"),
            *("--source", data_dir, "--lake", str(self._lake)),
            *("--with-parent", str(os.getpid())),
        ]
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        log.info("archiving to the lake %s", self._lake)
        log.info("report, written about every minute once there is something to tell: %s", self.report)
        self._task = asyncio.get_running_loop().create_task(self._keep_running())

    @property
    def report(self) -> str:
        """The page's URL."""
        return (self._lake / "report.html").as_uri()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        process = self._process
        if process is None or process.returncode is not None:
            return
        # The child may have ended a moment ago, and the broker has to go on.
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            # Its output is read on: a full pipe would hold it up.
            await asyncio.wait_for(process.communicate(), STOP_S)
        except TimeoutError:
            log.warning("the pipeline did not stop within %.0f s and is killed; it goes on where it was", STOP_S)
            # All of its group: a JVM that hangs outlives the Python that has started it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # Not for ever: a process outside the group could still have the pipe.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.communicate(), KILLED_S)

    async def _keep_running(self) -> None:
        while True:
            try:
                await self._run_once()
            except OSError as error:
                log.warning("the pipeline could not be started: %s", error)
            await asyncio.sleep(AGAIN_S)

    async def _run_once(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command, stdout=PIPE, stderr=asyncio.subprocess.STDOUT, limit=LINE_BYTES_MAX, preexec_fn=be_nice
        )
        self._process = process
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                # Longer than the limit; what was read of it is gone.
                continue
            if not line:
                break
            log.info("%s", shown(line))
        code = await process.wait()
        log.warning("the pipeline has ended with exit code %d; it is started again in %.0f s", code, AGAIN_S)


def shown(line: bytes) -> str:
    """A line of the child: names of clients may be in it, and none of them may steer the terminal that shows it."""
    text = line.decode("utf-8", "replace").rstrip()
    return "".join([each if each.isprintable() or each == "\t" else ascii(each)[1:-1] for each in text])


def be_nice() -> None:
    """In the child, before it is another program."""
    os.setpgid(0, 0)
    os.nice(NICE)
