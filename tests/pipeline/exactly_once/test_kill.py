"""An archive job that is killed with -9, driver and JVM, at every point between two steps, has every event once.

A chain is one lake. Its job is started, killed at the chain's first point, started again, killed at the second, and so
on; the last start comes through. After each kill the lake has no event twice, and the cursor is not beyond it. What
Spark's checkpoint has shows that the job was where the test says it was.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.pipeline.archive import checkpoint_of
from penstock.pipeline.lake.opening import Lake
from tests.pipeline.archived import EVENTS_OF_A_LIFE, cursor_of, end_lsn, lsns_of
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
# At the same time: starting Spark is most of the work, and much of that is waiting.
AT_ONCE = 2


@dataclass
class Chain:
    """A journal, its lake, and a job that is killed."""

    folder: Path
    format: str
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
        killed = self.folder / f"killed-{self.starts}"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "killing"), str(ROOT)]),
            "PENSTOCK_TEST_KILL": f"{point} {batch}" if point else "",
            "PENSTOCK_TEST_KILLED": str(killed),
            "PENSTOCK_TEST_CHECKPOINT": str(checkpoint_of(self.lake)),
        }
        command = [sys.executable, "-m", "tests.pipeline.exactly_once.job", str(self.source), str(self.lake.path)]
        with open(self.folder / f"output-{self.starts}", "wb") as output:
            process = subprocess.Popen(
                # The group is known when the process is there, and is its own from the first moment.
                ["/bin/sh", "-c", 'PENSTOCK_TEST_GROUP=$$ exec "$@"', "job", *command, self.format],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(SECONDS_OF_A_RUN)
            finally:
                end_group(process.pid)
                process.wait()
        if point and killed.exists():
            assert killed.read_text() == f"{point} {batch}"
        return code

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


def end_group(group: int) -> None:
    """Nothing of the job is left, whatever became of it."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


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
    chains = {name: Chain(tmp_path / str(number), CHAINS[name][0]) for number, name in enumerate(CHAINS)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [pool.submit(check_chain, chain, CHAINS[name][1]) for name, chain in chains.items()]
    for run in runs:
        run.result()
    assert all(chain.starts > len(CHAINS[name][1]) for name, chain in chains.items())


def test_at_least_twelve_points_over_several_batches_are_tried() -> None:
    points = [(format, where, batch) for format, chain in CHAINS.values() for where, batch, _, _ in chain]
    assert len(points) == len(set(points)) >= 12
    assert len({where for _, where, _ in points}) >= 12
    assert len({batch for _, _, batch in points}) >= 4
