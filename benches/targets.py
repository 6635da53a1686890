"""What is to be reached, as data. The runner prints target, measured value and whether it was met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benches.cases import MEMORY_LIMIT_BYTES, MEMORY_SLACK
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
    against: str | None = None
    """RabbitMQ's case of the ratio, where that is another one."""

    def measured(self, summary: Summary) -> float | None:
        if self.relative:
            return summary.ratio(self.case, self.metric, self.against)
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
    bound = MEMORY_LIMIT_BYTES * MEMORY_SLACK / MIB
    return (
        Target(case, "held_back", 1.0, True, False, "publisher held back, or memory within the limit (1 = always)"),
        Target(case, "rss_peak_mib", bound, False, False, f"peak RSS, MiB (limit {MEMORY_LIMIT_BYTES // MIB})"),
    )


def confirmed(case: str, bound: float) -> Target:
    return Target(case, "confirmed_per_s", bound, True, True, "confirmed messages a second")


def backlog(case: str, against: str | None = None) -> tuple[Target, Target]:
    beside = f" (RabbitMQ: `{against}`)" if against else ""
    return (
        Target(case, "published_per_s", 2.0, True, True, f"published and confirmed a second{beside}", against),
        Target(case, "drained_per_s", 2.0, True, True, f"drained a second{beside}", against),
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
    confirmed("persistent-100", 4.0),
    confirmed("persistent-1k", 3.0),
    confirmed("persistent-fanout", 3.0),
    Target("persistent-window-1", "share_of_disk", 0.7, True, False, "share of the disk's own write + fdatasync rate"),
    *backlog("backlog"),
    *backlog("backlog-deep", against="backlog"),
    Target("backlog-deep", "rss_peak_mib", 250.0, False, False, "peak RSS, MiB, all the time"),
    Target("restart", "ready_stopped_s", 2.0, False, False, "ready after a clean stop, seconds"),
    Target("restart", "ready_killed_s", 5.0, False, False, "ready after kill -9, seconds"),
)
