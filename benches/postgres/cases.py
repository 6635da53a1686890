"""What is measured, as data. Bodies have 100 bytes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Kind(enum.Enum):
    PHASES = "put, reserve, finalize"
    FLOW = "flow"
    WAKEUP = "wake-up"
    PINNED = "pinned horizon"


@dataclass(frozen=True)
class Case:
    name: str
    kind: Kind
    title: str
    batch: int = 1


@dataclass(frozen=True)
class Plan:
    """How much of it."""

    rows: int
    repeats: int
    seconds: float
    flow_s: float
    wakeups: int
    pinned_s: float
    pinned_per_s: float


CASES: Final = (
    Case("one", Kind.PHASES, "one by one"),
    Case("batch-100", Kind.PHASES, "batches of 100", 100),
    Case("batch-1000", Kind.PHASES, "batches of 1000", 1000),
    Case("flow-1", Kind.FLOW, "one by one"),
    Case("flow-100", Kind.FLOW, "batches of 100", 100),
    Case("wake-up", Kind.WAKEUP, "an idle consumer is woken"),
    Case("pinned", Kind.PINNED, "an old transaction is open"),
)
BY_NAME: Final = {case.name: case for case in CASES}
ROWS: Final = 1_000_000
WHOLE: Final = Plan(rows=ROWS, repeats=3, seconds=2.0, flow_s=4.0, wakeups=100, pinned_s=30.0, pinned_per_s=800.0)
QUICK: Final = Plan(rows=ROWS // 20, repeats=1, seconds=0.7, flow_s=2.0, wakeups=20, pinned_s=6.0, pinned_per_s=800.0)

# What the seed's description says of itself, on a machine of its time: milliseconds per call, and puts a second.
SEED: Final = {"put_p50_ms": 0.27, "reserve_p50_ms": 0.69, "finalize_p50_ms": 0.36, "put_per_s": 2000.0}
