"""`python -m benches.stalls.probe PORT`: asks for a queue every few milliseconds, in a process of its own.

A line on its input ends a measurement: it answers with the longest wait since the last, in seconds.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import Final

from benches.brokers import ROOT
from benches.stalls.client import Client, declare

EVERY_S: Final = 0.005
QUEUE: Final = "probe"


class Probe:
    """The process, as the bench sees it."""

    def __init__(self, port: int, nice: int | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benches.stalls.probe", str(port)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if nice is not None:
            os.setpriority(os.PRIO_PROCESS, self._process.pid, nice)
        self.read()

    def read(self) -> float:
        """The longest wait since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    client = Client(int(sys.argv[1]))
    client.send(declare(QUEUE, durable=False))
    longest = 0.0
    while True:
        started = time.monotonic()
        client.passive(QUEUE)
        wait = time.monotonic() - started
        longest = max(longest, wait)
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, EVERY_S - wait))
        if ready:
            if not sys.stdin.readline():
                return
            print(longest, flush=True)
            longest = 0.0


if __name__ == "__main__":
    main()
