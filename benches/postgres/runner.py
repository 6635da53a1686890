"""The run: one server, a database per system with its rows, and for what flows a new one each time; systems in turn."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

import psycopg

from benches.postgres.cases import Case, Kind, Plan
from benches.postgres.disturbance import foreign_share, read
from benches.postgres.flow import measure_flow
from benches.postgres.phases import measure_phases
from benches.postgres.pinned import measure_pinned
from benches.postgres.progress import Progress
from benches.postgres.systems import System
from benches.postgres.wakeup import measure_wakeup
from benches.procstat import sample, tree_pids
from benches.summary import Repeat, Summary
from penstock.pg.embedded import EmbeddedPostgres

# As a server is set up that matters: every commit is on the disk. Checkpoints come between repeats, not in them.
SETTINGS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}


class Runner:
    def __init__(self, server: EmbeddedPostgres, systems: Sequence[System], cases: Sequence[Case], plan: Plan) -> None:
        self.server = server
        self.systems = list(systems)
        self.cases = cases
        self.plan = plan
        self.summary = Summary()
        self.progress = Progress(len(cases) * len(systems) * plan.repeats)
        self._out: TextIO

    def run(self, json_lines: Path) -> None:
        with json_lines.open("w") as self._out:
            self._prepare()
            for case in self.cases:
                for number in range(self.plan.repeats):
                    # There and back: nobody always comes behind the same other.
                    for system in self.systems if number % 2 == 0 else reversed(self.systems):
                        self._run_one(system, case, number)
        self.progress.close()

    def _prepare(self) -> None:
        """The schemas; and the rows, if a case wants them."""
        has_rows = any(case.kind is Kind.PHASES for case in self.cases)
        for system in self.systems:
            self._admin(f"CREATE DATABASE {template_name(system)}")
            system.install(self.server.url_for(template_name(system)))
            if has_rows:
                self.progress.say(f"{self.plan.rows:,} rows for {system.name}")
                self._admin(f"CREATE DATABASE {rows_name(system)} TEMPLATE {template_name(system)}")
                url = self.server.url_for(rows_name(system))
                system.fill(url, self.plan.rows)
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("VACUUM ANALYZE")

    def _run_one(self, system: System, case: Case, number: int) -> None:
        self.progress.begin(system.name, case.name, number)
        self._admin("CHECKPOINT")
        before = read()
        metrics: dict[str, float] = {}
        error: str | None = None
        try:
            metrics = self._measure(system, case)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        share = foreign_share(before, read(), os.cpu_count() or 1)
        repeat = Repeat(system.name, case.name, number, metrics, share, error)
        self.summary.add(repeat)
        self.progress.end(repeat)
        self._out.write(json.dumps(repeat.as_json()) + "\n")
        self._out.flush()

    def _measure(self, system: System, case: Case) -> dict[str, float]:
        plan = self.plan
        if case.kind is Kind.PHASES:
            url = self.server.url_for(rows_name(system))
            return measure_phases(system, url, case.batch, plan.seconds, self._server_cpu_s)
        name = f"{rows_name(system)}_new"
        self._admin(f"CREATE DATABASE {name} TEMPLATE {template_name(system)}")
        url = self.server.url_for(name)
        try:
            if case.kind is Kind.FLOW:
                return measure_flow(system, url, case.batch, plan.flow_s, self._server_cpu_s)
            if case.kind is Kind.WAKEUP:
                return measure_wakeup(system, url, plan.wakeups)
            return measure_pinned(system, url, plan.pinned_per_s, plan.pinned_s)
        finally:
            self._admin(f"DROP DATABASE {name} WITH (FORCE)")

    def _server_cpu_s(self) -> float:
        pid = self.server.pid
        return sample(tree_pids(pid)).cpu_s if pid is not None else 0.0

    def _admin(self, statement: str) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(statement.encode())


def template_name(system: System) -> str:
    return f"{rows_name(system)}_template"


def rows_name(system: System) -> str:
    return system.name.lower().replace(" ", "_")
