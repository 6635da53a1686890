"""A whole run: which broker is measured when."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from benches.brokers import Broker, BrokerError
from benches.cases import MEMORY_LIMIT_BYTES, Case, Kind
from benches.measure import measure_load, measure_spawn
from benches.progress import Progress
from benches.summary import Repeat, Summary


class Runner:
    """Takes the brokers in turn, repeat by repeat, so that a slow minute of the machine hits them alike."""

    def __init__(
        self, kinds: Sequence[type[Broker]], cases: Sequence[Case], repeats: int, seconds: float, nice: int | None
    ) -> None:
        self.kinds = kinds
        self.cases = cases
        self.repeats = repeats
        self.seconds = seconds
        self.nice = nice
        self.summary = Summary()
        self.progress = Progress(len(cases) * repeats * len(kinds))
        # A broker that does not even start is not tried again.
        self._unusable: set[str] = set()
        self._out: TextIO

    def run(self, json_lines: Path) -> None:
        with json_lines.open("w") as self._out:
            for case in self.cases:
                if case.kind is Kind.SPAWN:
                    self._run_spawns(case)
            self._run_loads([c for c in self.cases if c.kind not in (Kind.MEMORY, Kind.SPAWN)], None)
            # Brokers of their own: a low memory limit would spoil the other cases, and a flood's garbage as well.
            self._run_loads([c for c in self.cases if c.kind is Kind.MEMORY], MEMORY_LIMIT_BYTES)
        self.progress.close()

    def _run_spawns(self, case: Case) -> None:
        for number in range(self.repeats):
            for kind in self.kinds:
                with kind(None, self.nice) as broker:
                    self._run_one(broker, case, number)

    def _run_loads(self, cases: Sequence[Case], memory_limit_bytes: int | None) -> None:
        if not cases:
            return
        with contextlib.ExitStack() as stack:
            brokers = [stack.enter_context(kind(memory_limit_bytes, self.nice)) for kind in self.kinds]
            for case in cases:
                for number in range(self.repeats):
                    for broker in brokers:
                        self._run_one(broker, case, number)

    def _run_one(self, broker: Broker, case: Case, number: int) -> None:
        if broker.name in self._unusable:
            self.progress.skip()
            return
        self.progress.begin(broker.name, case.name, number)
        try:
            if case.kind is Kind.SPAWN:
                repeat = measure_spawn(broker, case, number)
            else:
                if case.kind is Kind.MEMORY:
                    broker.stop()  # what an earlier flood left in memory would hold this publisher back from the start
                if not broker.alive():  # at first, and after a crash
                    broker.start()
                repeat = measure_load(broker, case, number, self.seconds)
        except BrokerError as error:
            self._unusable.add(broker.name)
            repeat = Repeat(broker.name, case.name, number, {}, error=str(error))
        self.summary.add(repeat)
        self.progress.end(repeat)
        self._out.write(json.dumps(repeat.as_json()) + "\n")
        self._out.flush()
