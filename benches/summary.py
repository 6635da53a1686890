"""Repeats and what they come to: medians per broker, and penstock divided by RabbitMQ, or by what it was before."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass, field
from typing import Any, Final

PENSTOCK: Final = "penstock"
RABBITMQ: Final = "RabbitMQ"
# penstock of another revision (--against).
BEFORE: Final = "before"
# Others used more than this share of the machine: the repeat is marked, and left out where others suffice.
DISTURBED_SHARE: Final = 0.1


@dataclass(frozen=True)
class Repeat:
    broker: str
    case: str
    number: int
    metrics: dict[str, float]
    foreign_share: float = 0.0
    error: str | None = None
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def disturbed(self) -> bool:
        return self.foreign_share > DISTURBED_SHARE

    def as_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "disturbed": self.disturbed}


class Summary:
    def __init__(self) -> None:
        self.repeats: list[Repeat] = []

    def add(self, repeat: Repeat) -> None:
        self.repeats.append(repeat)

    def of(self, broker: str, case: str) -> list[Repeat]:
        """The repeats that count: those that succeeded, and of these the undisturbed ones if there are any."""
        good = [r for r in self.repeats if r.broker == broker and r.case == case and r.error is None and r.metrics]
        return [r for r in good if not r.disturbed] or good

    def values(self, broker: str, case: str, metric: str) -> list[float]:
        return [r.metrics[metric] for r in self.of(broker, case) if metric in r.metrics]

    def median(self, broker: str, case: str, metric: str) -> float | None:
        values = self.values(broker, case, metric)
        return statistics.median(values) if values else None

    def ratio(self, case: str, metric: str, against: str | None = None, to: str = RABBITMQ) -> float | None:
        """penstock's figure divided by that of the broker `to`, there of the case `against` if that is another one."""
        ours, theirs = self.median(PENSTOCK, case, metric), self.median(to, against or case, metric)
        return ours / theirs if ours is not None and theirs else None

    def doubtful(self, case: str, to: str = RABBITMQ) -> bool:
        """Whether a figure of this case rests on disturbed repeats."""
        return any(r.disturbed for broker in (PENSTOCK, to) for r in self.of(broker, case))

    def errors(self) -> list[Repeat]:
        return [r for r in self.repeats if r.error is not None]

    def failed_cases(self, broker: str) -> list[str]:
        """Cases of which no repeat succeeded."""
        tried = dict.fromkeys(r.case for r in self.repeats if r.broker == broker)
        return [case for case in tried if not self.of(broker, case)]

    def measured_cases(self) -> set[str]:
        return {r.case for r in self.repeats}

    def present(self, broker: str) -> bool:
        return any(r.broker == broker for r in self.repeats)

    def brokers(self) -> list[str]:
        """Those that have a column of their own; an earlier revision has a table of its own."""
        return [name for name in (PENSTOCK, RABBITMQ) if self.present(name)]
