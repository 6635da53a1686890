"""What is to be reached, as data. The runner prints target, measured value and whether it was met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benches.cases import MEMORY_LIMIT_BYTES, MEMORY_SLACK, PLAIN
from benches.summary import BEFORE, PENSTOCK, RABBITMQ, Summary

MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Target:
    case: str
    metric: str
    bound: float
    at_least: bool
    to: str | None
    """The broker by whose figure penstock's is divided, or None: the bound is on penstock's own figure."""
    text: str
    against: str | None = None
    """The case of that broker, where it is another one."""

    def measured(self, summary: Summary) -> float | None:
        if self.to is not None:
            return summary.ratio(self.case, self.metric, self.against, self.to)
        return summary.median(PENSTOCK, self.case, self.metric)

    def met(self, summary: Summary) -> bool | None:
        """None where it was not measured."""
        value = self.measured(summary)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


def rate(case: str, bound: float) -> Target:
    return Target(case, "consumed_per_s", bound, True, RABBITMQ, "consumed messages a second")


def cpu(case: str) -> Target:
    return Target(case, "cpu_us_per_msg", 0.25, False, RABBITMQ, "CPU time per message")


def latency(case: str) -> Target:
    return Target(case, "e2e_p99_ms", 1.0, False, RABBITMQ, "end-to-end latency, p99")


def memory(case: str) -> tuple[Target, Target]:
    bound = MEMORY_LIMIT_BYTES * MEMORY_SLACK / MIB
    return (
        Target(case, "held_back", 1.0, True, None, "publisher held back, or memory within the limit (1 = always)"),
        Target(case, "rss_peak_mib", bound, False, None, f"peak RSS, MiB (limit {MEMORY_LIMIT_BYTES // MIB})"),
    )


def confirmed(case: str, bound: float) -> Target:
    return Target(case, "confirmed_per_s", bound, True, RABBITMQ, "confirmed messages a second")


def backlog(case: str, against: str | None = None) -> tuple[Target, Target]:
    beside = f" (RabbitMQ: `{against}`)" if against else ""
    return (
        Target(case, "published_per_s", 2.0, True, RABBITMQ, f"published and confirmed a second{beside}", against),
        Target(case, "drained_per_s", 2.0, True, RABBITMQ, f"drained a second{beside}", against),
    )


def rate_of(case: str, metric: str, text: str) -> Target:
    return Target(case, metric, 1.0, True, RABBITMQ, text)


def no_slower(case: str) -> tuple[Target, Target]:
    """Both were measured in turn; what is left between equal ones is less than this on a quiet machine."""
    metric = "confirmed_per_s" if case.startswith("persistent") else "consumed_per_s"
    return (
        Target(case, metric, 0.95, True, BEFORE, "messages a second"),
        Target(case, "cpu_us_per_msg", 1.05, False, BEFORE, "CPU time per message"),
    )


def real(case: str, metric: str, bound: float, cpu_bound: float) -> tuple[Target, Target]:
    """Of compiled modules."""
    return (
        Target(case, metric, bound, True, RABBITMQ, "messages a second"),
        Target(case, "cpu_us_per_msg", cpu_bound, False, RABBITMQ, "CPU time per message"),
    )


def quiet(case: str) -> tuple[Target, ...]:
    """Many connections with little traffic each."""
    return (
        Target(case, "e2e_p50_ms", 0.9, False, RABBITMQ, "end-to-end latency, p50"),
        latency(case),
        Target(case, "e2e_p99.9_ms", 1.0, False, RABBITMQ, "end-to-end latency, p99.9"),
        Target(case, "cpu_us_per_msg", 0.35, False, RABBITMQ, "CPU time per message"),
    )


TARGETS: Final = (
    *real("celery", "consumed_per_s", 3.5, 0.2),
    *real("celery-confirm", "confirmed_per_s", 4.0, 0.18),
    *real("rpc-1", "consumed_per_s", 1.5, 0.6),
    *real("rpc-16", "consumed_per_s", 2.5, 0.4),
    *quiet("many-connections"),
    *quiet("many-connections-2000"),
    *real("auto-ack-varied", "consumed_per_s", 5.0, 0.12),
    *real("persistent-varied", "confirmed_per_s", 8.0, 0.12),
    *real("topic", "consumed_per_s", 5.0, 0.12),
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
    Target("spawn", "rss_idle_mib", 60.0, False, None, "idle RSS, MiB"),
    Target("spawn", "start_s", 0.5, False, None, "start to accepting, seconds"),
    confirmed("persistent-100", 4.0),
    confirmed("persistent-1k", 3.0),
    confirmed("persistent-fanout", 3.0),
    Target("persistent-window-1", "share_of_disk", 0.7, True, None, "share of the disk's own write + fdatasync rate"),
    *backlog("backlog"),
    *backlog("backlog-deep", against="backlog"),
    Target("backlog-deep", "rss_peak_mib", 250.0, False, None, "peak RSS, MiB, all the time"),
    Target("restart", "ready_stopped_s", 2.0, False, None, "ready after a clean stop, seconds"),
    Target("restart", "ready_killed_s", 5.0, False, None, "ready after kill -9, seconds"),
    rate_of("ttl", "expired_per_s", "expired messages a second"),
    rate_of("dead-letter-expired", "dead_letters_per_s", "dead letters a second"),
    rate_of("dead-letter-rejected", "dead_letters_per_s", "dead letters a second"),
    rate_of("priority", "published_per_s", "published and confirmed a second"),
    rate_of("priority", "drained_per_s", "drained a second"),
    Target("grouped", "drained_per_s", 0.5, True, PENSTOCK, "drained a second", "plain"),
    Target("grouped", "rss_peak_mib", 150.0, False, None, "peak RSS, MiB, all the time"),
    Target("last-value", "cpu_us_per_msg_in", 15.0, False, None, "CPU time per message published, µs"),
    Target("delayed", "rss_peak_mib", 200.0, False, None, "peak RSS, MiB, all the time"),
    Target("delayed", "late_p99_ms", 100.0, False, None, "late by, p99, ms, when 10,000 a second fall due"),
    Target("delayed", "cpu_us_per_msg", 30.0, False, None, "CPU time per message, µs"),
    Target("delayed", "cpu_us_per_msg", 1.5, False, PENSTOCK, "CPU time per message", "delayed-tenth"),
    *(target for case in PLAIN for target in no_slower(case)),
)
