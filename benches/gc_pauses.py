"""How long the garbage collector stops a broker: with 10,000 connections, and with 1,000,000 waiting messages.

    python -m benches.gc_pauses                 both builds of penstock; about two minutes
    python -m benches.gc_pauses serve ...       what it starts: `penstock serve` that keeps count of its collections

Prints the longest collection of each kind, in milliseconds of CPU time: what other processes took of the machine
meanwhile does not count. The last look at the broker is when it has been idle for a while, since it collects then, too.
"""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar, Final

from benches.brokers import Penstock
from benches.load import BINARY, build
from benches.revision import compiled_penstock

MESSAGES: Final = 1_000_000
# Half of them publish. Their descriptors are those of two processes: each has as many.
CONNECTIONS: Final = 10_000
# Two of the collector's looks at an idle broker.
IDLE_S: Final = 21.0
ANSWER_S: Final = 10.0

BACKLOG: Final = (
    f"--count {MESSAGES} --seconds 60 --publish-only --no-drain --durable --persistent --confirm 1000"
    " --size-spread 40 --unique-ids"
)
TRANSIENT: Final = "--seconds 3 --rate 5000 --auto-ack --unique-ids"
CONNECTED: Final = (
    f"--producers {CONNECTIONS // 2} --consumers {CONNECTIONS // 2} --queues {CONNECTIONS // 2}"
    " --auto-ack --rate 3000 --seconds 4"
)
# What is measured, and the loads that lead to it, one after the other.
ACTS: Final = (
    ("1,000,000 messages come, and wait while others pass", (("waiting", BACKLOG), ("passing", TRANSIENT))),
    ("10,000 connections open, send and close", (("connected", CONNECTED),)),
)


class Collections:
    """The longest collection of each generation, and how many there were."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begun_s = 0.0
        self._found: dict[int, tuple[int, float]] = {}

    def start(self) -> None:
        gc.callbacks.append(self._collected)
        signal.signal(signal.SIGUSR1, self._write)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun_s = time.thread_time()
            return
        count, longest_s = self._found.get(info["generation"], (0, 0.0))
        self._found[info["generation"]] = (count + 1, max(longest_s, time.thread_time() - self._begun_s))

    def _write(self, _number: int, _frame: object) -> None:
        unfinished = self._file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._found))
        unfinished.rename(self._file)
        self._found = {}


def counted(kind: type[Penstock]) -> type[Penstock]:
    class Counted(kind):  # type: ignore[misc, valid-type]
        program: ClassVar[tuple[str, ...]] = ("-m", "benches.gc_pauses")

    return Counted


def collections_of(broker: Penstock) -> dict[str, list[float]]:
    """Ask the broker for its collections since the last time: by generation, their number and the longest."""
    file = broker.folder / "collections"
    file.unlink(missing_ok=True)
    assert broker.pid
    subprocess.run(["kill", "-USR1", str(broker.pid)], check=True)
    until_s = time.monotonic() + ANSWER_S
    while not file.exists() and time.monotonic() < until_s:
        time.sleep(0.05)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def measure(name: str, kind: type[Penstock]) -> None:
    for title, loads in ACTS:
        with counted(kind)(None, None) as broker:
            broker.start()
            collections_of(broker)
            for prefix, load in loads:
                command = [str(BINARY), "--port", str(broker.port), "--prefix", prefix, *load.split()]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            time.sleep(IDLE_S)
            for generation, (count, longest_s) in sorted(collections_of(broker).items()):
                print(
                    f"{name}: {title}: generation {generation}: {count}, longest {longest_s * 1000:.2f} ms", flush=True
                )


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        folder = Path(sys.argv[sys.argv.index("--data-dir") + 1]).parent
        Collections(folder / "collections").start()
        from penstock.cli.main import main as penstock

        penstock(sys.argv[1:], prog_name="penstock")
        return
    build()
    measure("compiled", compiled_penstock())  # type: ignore[arg-type]
    measure("interpreted", Penstock)


if __name__ == "__main__":
    main()
