"""What is to be reached, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benches.postgres.systems import PENSTOCK, PLAIN, PLAIN_HISTORY, PROCRASTINATE, SESSION
from benches.summary import Summary

VERBS: Final = ("put", "reserve", "finalize")
FLOWS: Final = ("flow-1", "flow-100")
# Both ways to penstock have the same targets.
OURS: Final = (PENSTOCK, SESSION)


@dataclass(frozen=True)
class Target:
    of: str
    case: str
    metric: str
    bound: float
    at_least: bool
    text: str
    to: str | None = None
    """The system by whose figure it is divided; None: the bound is on the figure itself."""
    to_case: str | None = None
    """The case of that figure, where it is another one."""

    def measured(self, summary: Summary) -> float | None:
        ours = summary.median(self.of, self.case, self.metric)
        if self.to is None or ours is None:
            return ours
        theirs = summary.median(self.to, self.to_case or self.case, self.metric)
        return ours / theirs if theirs else None

    def met(self, summary: Summary) -> bool | None:
        """None where it was not measured."""
        value = self.measured(summary)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound

    def doubtful(self, summary: Summary) -> bool:
        """Whether it rests on disturbed repeats."""
        figures = [(self.of, self.case)]
        if self.to is not None:
            figures.append((self.to, self.to_case or self.case))
        return any(repeat.disturbed for system, case in figures for repeat in summary.of(system, case))


def rates(of: str, bound: float, to: str, cases: tuple[str, ...]) -> list[Target]:
    """Every figure of these cases that is a rate."""
    found = []
    for case in cases:
        if case in FLOWS:
            found.append(Target(of, case, "done_per_s", bound, True, "put to finalize, messages a second", to))
        else:
            found += [
                Target(of, case, f"{verb}_per_s", bound, True, f"{verb}, messages a second", to) for verb in VERBS
            ]
            found.append(Target(of, case, "cycle_per_s", bound, True, "all three, messages a second", to))
    return found


def batches(of: str) -> list[Target]:
    text = "{}, batches of 100 beside one by one"
    verbs = [Target(of, "batch-100", f"{verb}_per_s", 10.0, True, text.format(verb), of, "one") for verb in VERBS]
    return [*verbs, Target(of, "flow-100", "done_per_s", 10.0, True, text.format("put to finalize"), of, "flow-1")]


def waking(of: str) -> list[Target]:
    return [
        Target(of, "wake-up", f"wakeup_{share}_ms", 1.0, False, f"put to received, idle, {share}", PROCRASTINATE)
        for share in ("p50", "p95")
    ]


def pinned(of: str) -> Target:
    return Target(of, "pinned", "late_share", 0.95, True, "share of the offered rate, last third of a pinned horizon")


ALL: Final = ("one", "batch-100", "batch-1000", *FLOWS)
IN_BATCHES: Final = ("batch-100", "batch-1000", "flow-100")
TARGETS: Final = tuple(
    target
    for of in OURS
    for target in (
        *rates(of, 2.0, PROCRASTINATE, ALL),
        *rates(of, 1.0, PLAIN, IN_BATCHES),
        *rates(of, 1.0, PLAIN_HISTORY, IN_BATCHES),
        *batches(of),
        *waking(of),
        pinned(of),
    )
)
