"""A whole run: which broker is measured when."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from benches.backlog import measure_backlog, measure_restart
from benches.brokers import Broker, BrokerError
from benches.cases import (
    BACKLOG_KINDS,
    COMPARED,
    DISK_KINDS,
    FEATURE_KINDS,
    FRESH_KINDS,
    MEMORY_LIMIT_BYTES,
    Case,
    Kind,
)
from benches.features import measure_feature
from benches.measure import measure_bulk, measure_load, measure_round_trip, measure_spawn
from benches.progress import Progress
from benches.summary import BEFORE, RABBITMQ, Repeat, Summary


@dataclass(frozen=True)
class Plan:
    """How long, how often, how many."""

    repeats: int
    seconds: float
    backlog: int
    features: int
    """Messages of a feature's case."""
    nice: int | None

    def messages(self, case: Case) -> int:
        return max(1, round(case.share * (self.features if case.kind in FEATURE_KINDS else self.backlog)))


class Runner:
    """Takes the brokers in turn, repeat by repeat, so that a slow minute of the machine hits them alike."""

    def __init__(self, kinds: Sequence[type[Broker]], cases: Sequence[Case], plan: Plan) -> None:
        self.kinds = kinds
        self.cases = cases
        self.plan = plan
        self.summary = Summary()
        self.progress = Progress(sum(len(self.kinds_for(case)) for case in cases) * plan.repeats)
        # A broker that does not even start is not tried again.
        self._unusable: set[str] = set()
        self._out: TextIO

    def run(self, json_lines: Path) -> None:
        with json_lines.open("w") as self._out:
            for case in self.cases:
                if case.kind is Kind.SPAWN:
                    self._run_fresh(case)
            loads = [c for c in self.cases if c.kind not in (Kind.MEMORY, *FRESH_KINDS)]
            # Brokers of their own for what is compared with an earlier revision: both have then done the same so far.
            compared = [c for c in loads if any(kind.name == BEFORE for kind in self.kinds_for(c))]
            self._run_loads(compared, None)
            self._run_loads([c for c in loads if c not in compared], None)
            # Brokers of their own: a low memory limit would spoil the other cases, and a flood's garbage as well.
            self._run_loads([c for c in self.cases if c.kind is Kind.MEMORY], MEMORY_LIMIT_BYTES)
            for case in self.cases:
                if case.kind in BACKLOG_KINDS:
                    self._run_fresh(case)
        self.progress.close()

    def kinds_for(self, case: Case) -> Sequence[type[Broker]]:
        """Which brokers are measured with this case."""
        left_out = {RABBITMQ} if case.alone else set()
        if case.name not in COMPARED:
            left_out.add(BEFORE)
        return [kind for kind in self.kinds if kind.name not in left_out]

    def _run_fresh(self, case: Case) -> None:
        for number in range(self.plan.repeats):
            for kind in self.kinds_for(case):
                with kind(None, self.plan.nice) as broker:
                    self._run_one(broker, case, number)

    def _run_loads(self, cases: Sequence[Case], memory_limit_bytes: int | None) -> None:
        if not cases:
            return
        with contextlib.ExitStack() as stack:
            brokers = [stack.enter_context(kind(memory_limit_bytes, self.plan.nice)) for kind in self.kinds]
            for case in cases:
                taking_part = {kind.name for kind in self.kinds_for(case)}
                for number in range(self.plan.repeats):
                    # There and back: nobody always comes behind the same other.
                    for broker in brokers if number % 2 == 0 else reversed(brokers):
                        if broker.name in taking_part:
                            self._run_one(broker, case, number)

    def _run_one(self, broker: Broker, case: Case, number: int) -> None:
        if broker.name in self._unusable:
            self.progress.skip()
            return
        self.progress.begin(broker.name, case.name, number)
        if case.kind in DISK_KINDS:
            os.sync()  # what the repeat before left unwritten is not this one's load
        try:
            repeat = self._measure(broker, case, number)
        except BrokerError as error:
            self._unusable.add(broker.name)
            repeat = Repeat(broker.name, case.name, number, {}, error=str(error))
        self.summary.add(repeat)
        self.progress.end(repeat)
        self._out.write(json.dumps(repeat.as_json()) + "\n")
        self._out.flush()

    def _measure(self, broker: Broker, case: Case, number: int) -> Repeat:
        if case.kind is Kind.SPAWN:
            return measure_spawn(broker, case, number)
        if case.kind is Kind.BACKLOG:
            return measure_backlog(broker, case, number, self.plan.messages(case))
        if case.kind is Kind.RESTART:
            return measure_restart(broker, case, number, self.plan.messages(case))
        if case.kind in FEATURE_KINDS:
            return measure_feature(broker, case, number, self.plan.messages(case))
        if case.kind is Kind.MEMORY:
            broker.stop()  # what an earlier flood left in memory would hold this publisher back from the start
        if not broker.alive():  # at first, and after a crash
            broker.start()
        by_kind = {Kind.ROUND_TRIP: measure_round_trip, Kind.BULK: measure_bulk}
        measure = by_kind.get(case.kind, measure_load)
        return measure(broker, case, number, self.plan.seconds)
