"""An archive job that is killed with -9 at every point between two steps has every event once.

A chain is one lake. Its job is started, killed at the chain's first point, started again, killed at the second, and so
on; the last start comes through. After each kill the lake has no event twice, and the cursor is not beyond it. What
Spark's checkpoint has shows that the job was where the test says it was.

The jobs use one JVM (`jvm.py`): starting one for each would take ten times as long. A kill ends every Python process of
the job, and all that is ours is in those. At a few points, one for each kind of process, the job has a JVM of its own,
which is killed with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.pipeline.archive import checkpoint_of
from penstock.pipeline.lake.opening import Lake
from tests.pipeline import spark_process
from tests.pipeline.archived import EVENTS_OF_A_LIFE, cursor_of, end_lsn, lsns_of
from tests.pipeline.exactly_once.jvm import SharedJvm, shared_jvm
from tests.pipeline.lake.tables import pyarrow_of_files
from tests.pipeline.written_journal import WrittenJournal
from tests.tidy_rules import ROOT

MESSAGES = 660
# Every so many messages has properties that are none: each batch has rows for both tables.
POISONED_EVERY = 20
SECONDS_OF_A_RUN = 600
STARTS_MAX = 5

# (where, in which batch, whether the batch is then in the offset log, whether it is in the commit log).
Point = tuple[str, int, bool, bool]
CHAINS: dict[str, tuple[str, list[Point]]] = {
    "delta, the log and the cursor": (
        "delta",
        [
            ("before the offset log", 0, False, False),
            ("after the offset log", 0, True, False),
            ("after the commit log", 0, True, True),
            ("before the cursor", 1, True, False),
            ("after the cursor", 2, True, False),
            # The ninth batch is the last one.
            ("before the last cursor", 8, True, True),
            ("after the last cursor", 8, True, True),
        ],
    ),
    "delta, the tables": (
        "delta",
        [
            ("in the middle of a file", 0, True, False),
            ("files written", 0, True, False),
            ("before the commit of the sink", 0, True, False),
            ("after poison", 0, True, False),
            ("before the commit log", 1, True, False),
            ("before poison", 2, True, False),
            ("after bronze", 2, True, False),
        ],
    ),
    "parquet": (
        "parquet",
        [
            ("before the manifest", 0, True, False),
            ("after poison", 1, True, False),
            ("after the manifest", 2, True, False),
        ],
    ),
}
# Where the JVM is killed, too: a task, the process that commits, the process that plans batches.
WITH_ITS_JVM = {
    ("delta", "in the middle of a file", 0),
    ("parquet", "after poison", 1),
    ("delta", "after the cursor", 2),
}
KILLING = Path(__file__).parent / "killing"


@dataclass
class Chain:
    """A journal, its lake, and a job that is killed."""

    folder: Path
    format: str
    jvm: SharedJvm
    # What processes of jobs that use the shared JVM look at.
    shared: Path
    starts: int = 0
    events: list[int] = field(default_factory=list)

    @property
    def source(self) -> Path:
        return self.folder / "data"

    @property
    def lake(self) -> Lake:
        return Lake(self.folder / "lake", self.format)

    def prepare(self) -> None:
        self.source.mkdir(parents=True)
        journal = WrittenJournal(self.source)
        for number in range(MESSAGES):
            properties = {"properties": b"\xff\xff"} if number % POISONED_EVERY == 0 else {}
            seq = journal.publish("orders", b"body %d" % number, **properties)
            journal.settle("delivered", "orders", seq)
            journal.settle("acked", "orders", seq)
            journal.commit()
        journal.close()
        self.events = lsns_of(self.source)
        assert len(self.events) == MESSAGES * EVENTS_OF_A_LIFE

    def run(self, point: str = "", batch: int = -1) -> int:
        """Start the job, to be killed at a point or to come through; its exit code.

        Spark gives its Python processes ten seconds to start. Where other tests need the machine that may be too short;
        then the job has failed for another reason than ours, and is started once more.
        """
        for _ in range(STARTS_MAX):
            code = self.start(point, batch)
            if code != 1 or "failed to connect back" not in self.output():
                break
        return code

    def start(self, point: str, batch: int) -> int:
        self.starts += 1
        is_alone = (self.format, point, batch) in WITH_ITS_JVM
        job = self.folder / f"job-{self.starts}" if is_alone else self.shared
        job.mkdir(exist_ok=True)
        killed = job / "killed"
        if not is_alone:
            self.jvm.clear()
            killed.unlink(missing_ok=True)
        asked = {
            "point": point,
            "batch": batch,
            "checkpoint": str(checkpoint_of(self.lake)),
            "sessions": [] if is_alone else [self.jvm.process.pid],
            "spared": [] if is_alone else self.jvm.processes,
        }
        (job / "point.json").write_text(json.dumps(asked))
        code = self.run_job(variables_for(job) | ({} if is_alone else self.jvm.variables), job)
        if point and killed.exists():
            assert killed.read_text() == f"{point} {batch}"
        return code

    def run_job(self, variables: dict[str, str], job: Path) -> int:
        command = [sys.executable, "-m", "tests.pipeline.exactly_once.job", str(self.source), str(self.lake.path)]
        with open(self.folder / f"output-{self.starts}", "wb") as output:
            process = subprocess.Popen(
                # The session is noted when the process is there, before it does anything.
                ["/bin/sh", "-c", 'echo $$ >"$0/driver" && exec "$@"', str(job), *command, self.format],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(SECONDS_OF_A_RUN)
            finally:
                # Nothing of the job is left, whatever became of it.
                spark_process.kill(process)

    def output(self) -> str:
        return (self.folder / f"output-{self.starts}").read_text(errors="replace")[-8000:]

    def archived(self) -> list[int]:
        return sorted(pyarrow_of_files(self.lake.table("bronze")) + pyarrow_of_files(self.lake.table("poison")))

    def check(self) -> None:
        """No event is there twice, and everything below the cursor is there."""
        archived = self.archived()
        assert len(archived) == len(set(archived)), "an event is there twice"
        assert set(archived) <= set(self.events)
        cursor = cursor_of(self.source)
        missing = [lsn for lsn in self.events if lsn < cursor and lsn not in set(archived)]
        assert not missing, f"the cursor is at {cursor}, and these are not in the lake: {missing[:10]}"


def variables_for(job: Path) -> dict[str, str]:
    """For every Python process of a job: whether it is to be killed is in this folder."""
    return {"PYTHONPATH": os.pathsep.join([str(KILLING), str(ROOT)]), "PENSTOCK_TEST_JOB": str(job)}


def check_chain(chain: Chain, points: list[Point]) -> None:
    chain.prepare()
    for where, batch, is_begun, is_done in points:
        code = chain.run(where, batch)
        assert code == -signal.SIGKILL, f"not killed {where} {batch}, but ended with {code}:\n{chain.output()}"
        checkpoint = checkpoint_of(chain.lake)
        assert (checkpoint / "offsets" / str(batch)).exists() == is_begun, (where, batch)
        assert (checkpoint / "commits" / str(batch)).exists() == is_done, (where, batch)
        chain.check()
    code = chain.run()
    assert code == 0, chain.output()
    chain.check()
    assert chain.archived() == chain.events
    assert len(pyarrow_of_files(chain.lake.table("poison"))) == MESSAGES // POISONED_EVERY
    assert cursor_of(chain.source) == end_lsn(chain.source)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_event_is_there_once_wherever_the_job_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")
    shared = tmp_path / "job"
    shared.mkdir()
    with shared_jvm(variables_for(shared), tmp_path / "jvm.log") as jvm:
        for number, (format, points) in enumerate(CHAINS.values()):
            chain = Chain(tmp_path / str(number), format, jvm, shared)
            check_chain(chain, points)
            assert chain.starts > len(points)


def test_at_least_twelve_points_over_several_batches_are_tried() -> None:
    points = [(format, where, batch) for format, chain in CHAINS.values() for where, batch, _, _ in chain]
    assert len(points) == len(set(points)) >= 12
    assert len({where for _, where, _ in points}) >= 12
    assert len({batch for _, _, batch in points}) >= 4
    assert set(points) >= WITH_ITS_JVM
