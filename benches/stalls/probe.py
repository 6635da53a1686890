"""`python -m benches.stalls.probe PORT`: asks for a queue every few milliseconds, in a process of its own.

A line on its input ends a measurement: it answers with the longest and the median wait since the last, in seconds.
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

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benches.stalls.probe", str(port)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.read()

    def read(self) -> tuple[float, float]:
        """The longest and the median wait since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        longest, median = self._process.stdout.readline().split()
        return float(longest), float(median)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    client = Client(int(sys.argv[1]))
    client.send(declare(QUEUE, durable=False))
    waits: list[float] = []
    while True:
        started = time.monotonic()
        client.passive(QUEUE)
        waits.append(time.monotonic() - started)
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, EVERY_S - waits[-1]))
        if ready:
            if not sys.stdin.readline():
                return
            waits.sort()
            print(waits[-1], waits[len(waits) // 2], flush=True)
            waits.clear()


if __name__ == "__main__":
    main()
