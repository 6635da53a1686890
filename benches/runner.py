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
from benches.cases import DISK_KINDS, FRESH_KINDS, MEMORY_LIMIT_BYTES, Case, Kind
from benches.measure import measure_load, measure_round_trip, measure_spawn
from benches.progress import Progress
from benches.summary import PENSTOCK, Repeat, Summary


@dataclass(frozen=True)
class Plan:
    """How long, how often, how many."""

    repeats: int
    seconds: float
    backlog: int
    nice: int | None


class Runner:
    """Takes the brokers in turn, repeat by repeat, so that a slow minute of the machine hits them alike."""

    def __init__(self, kinds: Sequence[type[Broker]], cases: Sequence[Case], plan: Plan) -> None:
        self.kinds = kinds
        self.cases = cases
        self.plan = plan
        self.summary = Summary()
        self.progress = Progress(sum(len(self._kinds_for(case)) for case in cases) * plan.repeats)
        # A broker that does not even start is not tried again.
        self._unusable: set[str] = set()
        self._out: TextIO

    def run(self, json_lines: Path) -> None:
        with json_lines.open("w") as self._out:
            for case in self.cases:
                if case.kind is Kind.SPAWN:
                    self._run_fresh(case)
            self._run_loads([c for c in self.cases if c.kind not in (Kind.MEMORY, *FRESH_KINDS)], None)
            # Brokers of their own: a low memory limit would spoil the other cases, and a flood's garbage as well.
            self._run_loads([c for c in self.cases if c.kind is Kind.MEMORY], MEMORY_LIMIT_BYTES)
            for case in self.cases:
                if case.kind in (Kind.BACKLOG, Kind.RESTART):
                    self._run_fresh(case)
        self.progress.close()

    def _kinds_for(self, case: Case) -> Sequence[type[Broker]]:
        return [kind for kind in self.kinds if kind.name == PENSTOCK or not case.alone]

    def _run_fresh(self, case: Case) -> None:
        for number in range(self.plan.repeats):
            for kind in self._kinds_for(case):
                with kind(None, self.plan.nice) as broker:
                    self._run_one(broker, case, number)

    def _run_loads(self, cases: Sequence[Case], memory_limit_bytes: int | None) -> None:
        if not cases:
            return
        with contextlib.ExitStack() as stack:
            brokers = [stack.enter_context(kind(memory_limit_bytes, self.plan.nice)) for kind in self.kinds]
            for case in cases:
                for number in range(self.plan.repeats):
                    for broker in brokers:
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
            return measure_backlog(broker, case, number, self.plan.backlog * case.backlogs)
        if case.kind is Kind.RESTART:
            return measure_restart(broker, case, number, self.plan.backlog * case.backlogs)
        if case.kind is Kind.MEMORY:
            broker.stop()  # what an earlier flood left in memory would hold this publisher back from the start
        if not broker.alive():  # at first, and after a crash
            broker.start()
        measure = measure_round_trip if case.kind is Kind.ROUND_TRIP else measure_load
        return measure(broker, case, number, self.plan.seconds)
