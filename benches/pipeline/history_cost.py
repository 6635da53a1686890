"""What history costs the broker: its persistent rate as it is, and with nothing kept that no message needs."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from benches.brokers import Penstock, penstock_environment
from benches.cases import PERSISTENT
from benches.load import build, run_load

WITHOUT: Final = ("--history-limit", "0", "--history-hours", "0", "--readers-limit", "0")
# Small enough that the journal rolls, and what is kept or removed makes a difference, within a repeat.
SECONDS: Final = 3.0


class WithoutHistory(Penstock):
    """The same broker, told to keep nothing."""

    name = "penstock-without-history"

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, *self.program, "serve", "--host", "127.0.0.1", "--port", str(self.port), *WITHOUT]
        return subprocess.Popen(
            [*command, "--data-dir", str(self.folder / "data")],
            env=penstock_environment(self.source),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


@dataclass
class HistoryCost:
    with_history: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)

    def ratio(self) -> float:
        """Rate with history ÷ rate without."""
        return statistics.median(self.with_history) / statistics.median(self.without)

    def messages_per_s(self) -> float:
        return statistics.median(self.with_history)


def measure_history_cost(repeats: int, say: Callable[[str], None], nice: int | None = None) -> HistoryCost:
    build()
    cost = HistoryCost()
    with Penstock(nice=nice) as ours, WithoutHistory(nice=nice) as bare:
        ours.start()
        bare.start()
        for repeat in range(repeats + 1):
            say(f"history, {repeat + 1} of {repeats + 1}")
            order = ((ours, cost.with_history), (bare, cost.without))
            for broker, rates in order if repeat % 2 == 0 else order[::-1]:
                arguments = ["--prefix", "bench-history", *PERSISTENT.split()]
                _, counts = run_load(broker.pid, broker.port, SECONDS, arguments, nice)
                if repeat:
                    rates.append(counts["confirmed"] / max(counts["publish_s"], counts["consume_s"]))
    return cost
