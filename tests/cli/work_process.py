"""`penstock work` as a process of its own, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.process import environment
from tests.interop.deadline import wait_until

EXIT_S = 60.0
ROOT = Path(__file__).parents[2]


class WorkProcess:
    """One worker; what it prints goes to files, so that it never waits for the test."""

    def __init__(self, folder: Path, url: str, *arguments: str) -> None:
        number = len(list(folder.glob("work-*.out")))
        self._out = folder / f"work-{number}.out"
        self._err = folder / f"work-{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "work", "--json", *arguments],
                stdout=out,
                stderr=err,
                cwd=ROOT,
                env=environment(PENSTOCK_URL=url),
            )

    @property
    def log(self) -> str:
        return self._err.read_text()

    @property
    def reports(self) -> list[dict[str, Any]]:
        """Its lines so far."""
        return [json.loads(line) for line in self._out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_for_reports(self, count: int) -> list[dict[str, Any]]:
        wait_until(
            lambda: len(self.reports) >= count or self.process.poll() is not None,
            f"{count} jobs; the log: {self.log}",
            timeout_s=EXIT_S,
        )
        assert len(self.reports) >= count, self.log
        return self.reports

    def wait_until_it_ends(self) -> int:
        return self.process.wait(EXIT_S)

    def stop(self) -> int:
        """With two signals: it does not wait for its jobs. Signals that come too soon after each other are one."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            wait_until(lambda: "stopping" in self.log or self.process.poll() is not None, "it was told to stop")
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(EXIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(EXIT_S)
        return self.process.returncode


def is_alive(pid: int) -> bool:
    """Whether the process is there, and no zombie. Only where /proc tells."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def open_gate(gate: str) -> None:
    """Let the jobs go on that wait at this FIFO."""
    os.close(os.open(gate, os.O_WRONLY))
