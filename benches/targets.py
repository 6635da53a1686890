"""What the first release is to reach, as data. The runner prints target, measured value and whether it was met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benches.cases import MEMORY_LIMIT_BYTES
from benches.summary import Summary

MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Target:
    case: str
    metric: str
    bound: float
    at_least: bool
    relative: bool
    """Whether the bound is on penstock / RabbitMQ, or on penstock's own figure."""
    text: str

    def measured(self, summary: Summary) -> float | None:
        if self.relative:
            return summary.ratio(self.case, self.metric)
        return summary.median("penstock", self.case, self.metric)

    def met(self, summary: Summary) -> bool | None:
        """None where it was not measured."""
        value = self.measured(summary)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


def rate(case: str, bound: float) -> Target:
    return Target(case, "consumed_per_s", bound, True, True, "consumed messages a second")


def cpu(case: str) -> Target:
    return Target(case, "cpu_us_per_msg", 0.25, False, True, "CPU time per message")


def latency(case: str) -> Target:
    return Target(case, "e2e_p99_ms", 1.0, False, True, "end-to-end latency, p99")


def memory(case: str) -> tuple[Target, Target]:
    # The limit counts messages; the interpreter itself and the allocator's slack come on top.
    bound = MEMORY_LIMIT_BYTES * 1.5 / MIB
    return (
        Target(case, "held_back", 1.0, True, False, "publisher held back (1 = in every repeat)"),
        Target(case, "rss_peak_mib", bound, False, False, f"peak RSS, MiB (limit {MEMORY_LIMIT_BYTES // MIB})"),
    )


TARGETS: Final = (
    rate("auto-ack", 2.5),
    rate("ack-100", 2.5),
    rate("ack-1", 2.5),
    rate("ten-queues", 2.0),
    cpu("auto-ack"),
    cpu("ack-100"),
    cpu("ack-1"),
    cpu("ten-queues"),
    latency("latency-auto-ack"),
    latency("latency-ack-10"),
    *memory("flood"),
    *memory("slow-consumer"),
    Target("spawn", "rss_idle_mib", 60.0, False, False, "idle RSS, MiB"),
    Target("spawn", "start_s", 0.5, False, False, "start to accepting, seconds"),
)
