"""Spark in a process of its own: to be killed, or with settings that the shared session has not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start(module: str, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """`python -m module …` as the leader of a session; what it says goes to the file."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as target:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the driver, its JVM and the workers, which are in groups of their own but in the same session."""
    deadline = time.monotonic() + 60
    while found := members(process.pid):
        assert time.monotonic() < deadline, f"processes {found} do not end"
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.poll()
        time.sleep(0.05)
    process.wait()


def members(session: int) -> list[int]:
    """The processes of a session that are not dead yet."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name, in brackets, may have blanks in it.
            state, _, _, of_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of_session) == session and state != "Z":
            found.append(int(entry.name))
    return found
