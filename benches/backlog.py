"""One repeat of a case with a backlog: all is published before anybody consumes, and every message is accounted for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benches.brokers import Broker
from benches.cases import ACK_100, CONFIRM, DURABLE, Case
from benches.load import run_counted, unaccounted, waiting_messages
from benches.measure import MIB, usage_fields
from benches.procstat import Usage, rss_peak_bytes, tree_pids
from benches.summary import Repeat

PUBLISH: Final = (*f"{DURABLE} {CONFIRM}".split(), "--publish-only")
DRAIN: Final = (*f"--durable {ACK_100} --verify".split(), "--consume-only")


class PhaseFailed(Exception):
    """A part of the repeat did not do what it should; the rest would say nothing."""


@dataclass
class Phases:
    """The parts of a repeat, one after the other."""

    broker: Broker
    case: Case
    messages: int
    metrics: dict[str, float] = field(default_factory=dict)
    foreign_share: float = 0.0
    rss_peak_bytes: int = 0
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """How many messages are there when all are published."""
        return self.messages

    @property
    def arguments(self) -> list[str]:
        """What all runs of the generator have in common."""
        return self.case.arguments

    def publish(self) -> None:
        """Nobody consumes; the metrics end with `_in`."""
        usage, counts = self._load("in", PUBLISH, self.messages, left=self.waiting)
        self._note_published(usage, counts)

    def drain(self) -> None:
        usage, counts = self._load("out", DRAIN, self.waiting, left=0)
        self._note_drained(usage, counts)

    def restart(self, name: str) -> None:
        """The broker is down: start it, until a client is told that all messages are there."""
        started = time.monotonic()
        self.broker.start(ready=lambda: waiting_messages(self.broker.port, self.case.prefix) == self.messages)
        self.metrics[f"ready_{name}_s"] = self.broker.start_s
        peak = rss_peak_bytes(tree_pids(self.broker.pid))
        self.metrics[f"rss_ready_{name}_mib"] = peak / MIB
        self.rss_peak_bytes = max(self.rss_peak_bytes, peak)
        self.raw[f"restart_{name}"] = {"wall_s": time.monotonic() - started}

    def stop(self) -> None:
        started = time.monotonic()
        if not self.broker.stop():
            raise PhaseFailed("the broker did not stop when it was asked to")
        self.metrics["stop_s"] = time.monotonic() - started

    def _note_published(self, usage: Usage, counts: dict[str, Any]) -> None:
        self.metrics["published_per_s"] = counts["confirmed"] / counts["publish_s"]
        self.metrics["confirm_p99_ms"] = float(counts["confirm_ms"]["p99"])
        self.metrics["cpu_us_per_msg_in"] = usage.cpu_s * 1e6 / self.messages
        self.metrics["rss_waiting_mib"] = usage.rss_end_bytes / MIB

    def _note_drained(self, usage: Usage, counts: dict[str, Any]) -> None:
        if (wrong := unaccounted(counts, self.waiting)) is not None:
            raise PhaseFailed(f"drained: {wrong}")
        self.metrics["drained_per_s"] = counts["consumed"] / counts["consume_s"]
        self.metrics["cpu_us_per_msg_out"] = usage.cpu_s * 1e6 / self.waiting

    def _load(self, name: str, arguments: Sequence[str], count: int, left: int | None) -> tuple[Usage, dict[str, Any]]:
        """One run of the generator; `left` is what must wait in the end, if that is certain."""
        broker = self.broker
        usage, counts = run_counted(broker.pid, broker.port, count, [*self.arguments, *arguments], broker.nice)
        self.foreign_share = max(self.foreign_share, usage.foreign_share)
        self.rss_peak_bytes = max(self.rss_peak_bytes, usage.rss_peak_bytes)
        self.raw[name] = {"load": counts, "usage": usage_fields(usage)}
        if "error" in counts:
            raise PhaseFailed(f"{counts['error']}; the broker's last words: {broker.last_words()}")
        if left is not None and counts["depth_end"] != left:
            raise PhaseFailed(f"{left} messages should wait, the broker says {counts['depth_end']:.0f}")
        return usage, counts

    def as_repeat(self, number: int, error: str | None) -> Repeat:
        metrics = {**self.metrics, "messages": float(self.messages), "rss_peak_mib": self.rss_peak_bytes / MIB}
        return Repeat(
            self.broker.name,
            self.case.name,
            number,
            {} if error else metrics,
            self.foreign_share,
            error,
            self.raw,
        )


def measure_backlog(broker: Broker, case: Case, number: int, messages: int) -> Repeat:
    """Publish all, drain all, one process."""
    phases = Phases(broker, case, messages)
    broker.start()
    try:
        phases.publish()
        phases.drain()
    except PhaseFailed as failed:
        return phases.as_repeat(number, str(failed))
    finally:
        broker.stop()
    return phases.as_repeat(number, None)


def measure_restart(broker: Broker, case: Case, number: int, messages: int) -> Repeat:
    """Publish all; kill and start; stop and start; drain.

    The kill comes first: after a clean stop the broker would find everything tidied up.
    """
    phases = Phases(broker, case, messages)
    broker.start()
    try:
        phases.publish()
        broker.kill()
        phases.restart("killed")
        phases.stop()
        phases.restart("stopped")
        phases.drain()
    except PhaseFailed as failed:
        return phases.as_repeat(number, str(failed))
    finally:
        broker.stop()
    return phases.as_repeat(number, None)
