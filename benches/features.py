"""One repeat of a case with a feature of queues: expiry, dead letters, orders of their own, held messages.

Messages are persistent, queues durable, and publishers wait for confirms, as in the cases with a backlog.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benches.backlog import DRAIN, PUBLISH, PhaseFailed, Phases
from benches.brokers import Broker
from benches.cases import ACK_100, CONFIRM, DURABLE, Case, Kind
from benches.load import unaccounted
from benches.summary import Repeat

# Publisher and consumer at once: a message counts when it has come through.
THROUGH: Final = tuple(f"{DURABLE} {CONFIRM} {ACK_100} --verify".split())
# How long a broker may be late, besides what it takes for each message.
PATIENCE_S: Final = 30.0
SLOWEST_PER_S: Final = 5_000


class FeaturePhases(Phases):
    """The parts of a repeat; which of them, the kind of the case says."""

    @property
    def waiting(self) -> int:
        return min(self.case.keys, self.messages) if self.case.keys else self.messages

    @property
    def wait_ms(self) -> int:
        return max(1, round(self.case.wait_us * self.messages / 1000))

    @property
    def arguments(self) -> list[str]:
        wait = {"wait_ms": self.wait_ms, "last_ms": 2 * self.wait_ms}
        return [argument.format(**wait) for argument in self.case.arguments]

    @property
    def steps(self) -> tuple[tuple[str, Callable[[], None]], ...]:
        """What is done, one after the other, and how it is called."""
        if self.case.kind is Kind.EXPIRY:
            return (("published and expired", self.expire),)
        if self.case.kind is Kind.DEAD_LETTERS:
            return (("published, dead-lettered and consumed", self.dead_letter),)
        if self.case.kind is Kind.DELAYED:
            return (("published and held", self.hold), ("released and consumed", self.release))
        return (("published", self.publish), ("drained", self.drain))

    def expire(self) -> None:
        patience_s = 2 * self.wait_ms / 1000 + self.messages / SLOWEST_PER_S + PATIENCE_S
        arguments = (*PUBLISH, "--until-empty", str(patience_s))
        usage, counts = self._load("expired", arguments, self.messages, left=0)
        life_s = self.wait_ms / 1000
        self.metrics["published_per_s"] = counts["confirmed"] / counts["publish_s"]
        # From when the first was due; they are due at the pace at which they came.
        self.metrics["expired_per_s"] = self.messages / max(counts["empty_s"] - life_s, 0.001)
        self.metrics["late_s"] = max(0.0, counts["empty_s"] - counts["publish_s"] - life_s)
        self.metrics["cpu_us_per_msg"] = usage.cpu_s * 1e6 / self.messages

    def dead_letter(self) -> None:
        life_s = self.wait_ms / 1000 if self.case.wait_us else 0.0
        idle_s = str(life_s + PATIENCE_S)
        arguments = (*THROUGH, "--idle", idle_s, "--drain-max", str(self.messages / SLOWEST_PER_S + PATIENCE_S))
        usage, counts = self._load("through", arguments, self.messages, left=0)
        if (wrong := unaccounted(counts, self.messages)) is not None:
            raise PhaseFailed(f"dead letters: {wrong}")
        self.metrics["published_per_s"] = counts["confirmed"] / counts["publish_s"]
        self.metrics["dead_letters_per_s"] = self.messages / max(counts["consume_s"] - life_s, 0.001)
        self.metrics["cpu_us_per_msg"] = usage.cpu_s * 1e6 / self.messages

    def hold(self) -> None:
        # Where publishing takes longer than the shortest delay, some are in the queue already.
        usage, counts = self._load("in", PUBLISH, self.messages, left=None)
        self._note_published(usage, counts)
        if counts["publish_s"] * 1000 < self.wait_ms:
            self.metrics["rss_bytes_per_msg"] = (usage.rss_end_bytes - usage.rss_start_bytes) / self.messages

    def release(self) -> None:
        arguments = (*DRAIN, "--idle", str(2 * self.wait_ms / 1000 + PATIENCE_S))
        usage, counts = self._load("out", arguments, self.messages, left=0)
        self._note_drained(usage, counts)
        if counts["early"]:
            raise PhaseFailed(f"{counts['early']} messages came before they were due")
        self.metrics["cpu_us_per_msg"] = self.metrics["cpu_us_per_msg_in"] + self.metrics["cpu_us_per_msg_out"]
        for quantile in ("p50", "p99", "max"):
            self.metrics[f"late_{quantile}_ms"] = float(counts["e2e_ms"][quantile])


def measure_feature(broker: Broker, case: Case, number: int, messages: int) -> Repeat:
    phases = FeaturePhases(broker, case, messages)
    broker.start()
    try:
        for _, step in phases.steps:
            step()
    except PhaseFailed as failed:
        return phases.as_repeat(number, str(failed))
    finally:
        broker.stop()
    return phases.as_repeat(number, None)
