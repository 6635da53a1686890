"""One repeat of one case against one broker."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Final

from benches.brokers import Broker
from benches.cases import (
    BULK_BODY_BYTES,
    MEMORY_BODY_BYTES,
    MEMORY_LIMIT_BYTES,
    MEMORY_SLACK,
    WINDOW,
    Case,
    Kind,
)
from benches.load import disk_syncs_per_s, run_load, unaccounted
from benches.machine_rates import copied_bytes_per_s, loopback_bytes_per_s
from benches.procstat import Usage, sample, tree_pids
from benches.summary import Repeat

MIB: Final = 1024 * 1024
# A broker that has just answered still loads modules or runs timers; then it is at rest.
SETTLE_S: Final = 1.0
# A publisher that could not write for so long is held back; shorter gaps are what socket buffers do.
HELD_BACK_S: Final = 1.0
# A publisher at most so much faster than its slow consumer runs at the consumer's speed.
HELD_TO_CONSUMER: Final = 1.5
# The disk's own rate is measured for this part of a repeat before and after it, with writes of this size: a message.
SYNC_SHARE: Final = 0.3
SYNC_BYTES: Final = 100


def measure_load(broker: Broker, case: Case, number: int, seconds: float) -> Repeat:
    usage, counts = run_load(broker.pid, broker.port, max(seconds, case.seconds_min), case.arguments, broker.nice)
    error = counts.get("error") or unaccounted(counts, counts["published"])
    metrics: dict[str, float] = {}
    if error is not None:
        error = f"{error}; the broker's last words: {broker.last_words()}"
    else:
        metrics = load_metrics(usage, counts)
        if case.kind is Kind.MEMORY and (held := held_back(counts)) is not None:
            # A broker that pages to disk has no reason to hold anybody back while its memory stays within the limit.
            metrics["held_back"] = float(held or usage.rss_peak_bytes <= MEMORY_LIMIT_BYTES * MEMORY_SLACK)
        if case.kind is Kind.CHURN:
            metrics["rss_end_mib"] = usage.rss_end_bytes / MIB
            metrics["rss_bytes_per_cycle"] = (usage.rss_end_bytes - usage.rss_start_bytes) / counts["consumed"]
    raw = {"load": counts, "usage": usage_fields(usage)}
    return Repeat(broker.name, case.name, number, metrics, usage.foreign_share, error, raw)


def measure_round_trip(broker: Broker, case: Case, number: int, seconds: float) -> Repeat:
    """The load between two looks at the disk, whose mood changes from second to second."""
    before = disk_syncs_per_s(broker.folder, seconds * SYNC_SHARE, SYNC_BYTES)
    repeat = measure_load(broker, case, number, seconds)
    after = disk_syncs_per_s(broker.folder, seconds * SYNC_SHARE, SYNC_BYTES)
    if repeat.error is None:
        disk = (before + after) / 2
        share = repeat.metrics["confirmed_per_s"] / disk
        repeat.metrics.update(disk_syncs_per_s=disk, share_of_disk=share)
        repeat.raw["disk_syncs_per_s"] = [before, after]
    return repeat


def measure_bulk(broker: Broker, case: Case, number: int, seconds: float) -> Repeat:
    """The load between two looks at the limits: the disk with a whole window at once, memory, and a connection."""
    before = bulk_limits(broker, seconds * SYNC_SHARE)
    repeat = measure_load(broker, case, number, seconds)
    after = bulk_limits(broker, seconds * SYNC_SHARE)
    if repeat.error is None:
        for name in before:
            repeat.metrics[name] = (before[name] + after[name]) / 2
        moved = repeat.metrics["confirmed_per_s"] * BULK_BODY_BYTES / MIB
        repeat.metrics.update(body_mib_per_s=moved, share_of_disk_bytes=moved / repeat.metrics["disk_mib_per_s"])
        repeat.raw["limits"] = [before, after]
    return repeat


def bulk_limits(broker: Broker, seconds: float) -> dict[str, float]:
    window_bytes = WINDOW * BULK_BODY_BYTES
    return {
        "disk_mib_per_s": disk_syncs_per_s(broker.folder, seconds, window_bytes) * window_bytes / MIB,
        "copied_mib_per_s": copied_bytes_per_s(seconds / 2) / MIB,
        "loopback_mib_per_s": loopback_bytes_per_s(seconds / 2) / MIB,
    }


def usage_fields(usage: Usage) -> dict[str, Any]:
    return {k: v for k, v in dataclasses.asdict(usage).items() if not k.startswith("command_")}


def load_metrics(usage: Usage, counts: dict[str, Any]) -> dict[str, float]:
    metrics = {
        "published_per_s": float(counts["published_per_s"]),
        "consumed_per_s": float(counts["consumed_per_s"]),
        "cpu_us_per_msg": usage.cpu_s * 1e6 / max(1, counts["published"]),
        "cores": usage.cores,
        "rss_peak_mib": usage.rss_peak_bytes / MIB,
        "blocked": float(counts["blocked"]),
        "stall_max_s": float(counts["stall_max_s"]),
        "generator_cores": float(counts["cpu_s"]) / usage.wall_s,
    }
    for name, key in (("e2e", "e2e_ms"), ("confirm", "confirm_ms")):
        if counts[key] is not None:
            for quantile in ("p50", "p99", "p99.9"):
                metrics[f"{name}_{quantile}_ms"] = float(counts[key][quantile])
    if counts["confirmed"]:
        # From end to end: a message counts when it is confirmed, and the clock runs until the last is consumed too.
        metrics["confirmed_per_s"] = counts["confirmed"] / max(counts["publish_s"], counts["consume_s"])
    return metrics


def held_back(counts: dict[str, Any]) -> bool | None:
    """Whether the broker slowed the publisher down; None if it took less than its limit and had no reason to."""
    if counts["blocked"] > 0 or counts["stall_max_s"] >= HELD_BACK_S:
        return True
    if counts["consumed"] and counts["published"] <= HELD_TO_CONSUMER * counts["consumed"]:
        return True
    backlog_bytes = (counts["published"] - counts["consumed"]) * MEMORY_BODY_BYTES
    return False if backlog_bytes > MEMORY_LIMIT_BYTES else None


def measure_spawn(broker: Broker, case: Case, number: int) -> Repeat:
    """Starts the broker, lets it come to rest, and stops it."""
    broker.start()
    try:
        time.sleep(SETTLE_S)
        rss_bytes = sample(tree_pids(broker.pid)).rss_bytes
    finally:
        broker.stop()
    return Repeat(broker.name, case.name, number, {"start_s": broker.start_s, "rss_idle_mib": rss_bytes / MIB})
