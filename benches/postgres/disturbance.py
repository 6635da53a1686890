"""How much of the machine others used while something ran: neither this process, nor its server, nor its children."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from benches.procstat import machine_busy_s, sample, tree_pids


@dataclass(frozen=True)
class Reading:
    at_s: float
    busy_s: float
    steal_s: float
    own_s: float


def read() -> Reading:
    """Everything that this process has started hangs below it, the server's processes too."""
    busy_s, steal_s = machine_busy_s()
    return Reading(time.monotonic(), busy_s, steal_s, sample(tree_pids(os.getpid())).cpu_s)


def foreign_share(before: Reading, after: Reading, cores: int) -> float:
    foreign_s = max(0.0, after.busy_s - before.busy_s - (after.own_s - before.own_s))
    return (foreign_s + after.steal_s - before.steal_s) / ((after.at_s - before.at_s) * cores)
