"""Something goes wrong at every point of a checkpoint: it is given up and tried again, and nothing is lost.

The points are those at which a checkpoint asks a queue for something, and every call to a file of the checkpoint. What
comes out of them is an error of the disk, a lack of memory or of descriptors, or a bug.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from tests.disk.sim_files import SimFiles, Survival
from tests.effort import some
from tests.simulation.machine import CheckpointFaults, Node
from tests.simulation.script import FIRST_LIFE, Script
from tests.simulation.simulation import small_buffers

pytestmark = pytest.mark.slow

EXCEPTIONS: dict[str, Callable[[], Exception]] = {
    "MemoryError": lambda: MemoryError(),
    "a bug": lambda: KeyError("not there"),
    "EMFILE": lambda: OSError(errno.EMFILE, "too many open files"),
    "ENOMEM": lambda: OSError(errno.ENOMEM, "no memory"),
}
# Steps after the fault, so that the next checkpoint is made and published.
AFTERWARDS = ("publish", "ask", "work", "checkpoint", "work")


class WatchedScript(Script):
    """Looks at what a crash would leave, each time a checkpoint was published."""

    def __init__(self) -> None:
        super().__init__()
        self.is_faulty = True
        self._last_seen = -1

    def follow_first_life(self, prepare: Callable[[WatchedScript], None]) -> None:
        self._do(self._begin)
        prepare(self)
        self._follow((*FIRST_LIFE, *AFTERWARDS))
        # Whatever went wrong is over by now.
        self.node.store.faults.nth = 0
        self.files.plan.heal()
        self._do(self.come_to_rest)
        self._do(self._make_a_checkpoint)

    def _make_a_checkpoint(self) -> None:
        self.node.store.checkpoint_now()
        self.come_to_rest()

    def _do(self, step: Callable[[], None]) -> None:
        super()._do(step)
        kept = self.node.store.checkpointer.kept
        number = kept[-1].number if kept else 0
        if number != self._last_seen:
            self._last_seen = number
            for files in (self.files.copy(), self._after_crash()):
                node = Node(files, self.clock, self.profile, random.Random(1))
                self.books.cut(self.open_and_find(node), node.definitions, False)

    def _after_crash(self) -> SimFiles:
        copy = self.files.copy()
        copy.plan.survival = Survival.NOTHING
        return copy.crash(random.Random(0).randrange)


def run(prepare: Callable[[WatchedScript], None]) -> WatchedScript:
    script = WatchedScript()
    with small_buffers(script.profile):
        script.follow_first_life(prepare)
    return script


def undisturbed() -> tuple[list[tuple[int, str]], list[tuple[str, str]], int]:
    script = run(lambda script: None)
    assert not script.node.store.alarm
    return script.node.store.faults.seen, script.files.calls, script.node.store.checkpointer.kept[-1].number


POINTS, CALLS, LAST_CHECKPOINT = undisturbed()


def check(script: WatchedScript) -> None:
    """The node lives, and has made checkpoints since."""
    assert script.lives == 0, "the node had to stop"
    assert script.node.store.failed is None
    assert script.node.store.checkpointer.kept[-1].number >= LAST_CHECKPOINT - 1
    assert not script.node.store.alarm


def faults_of(script: WatchedScript) -> CheckpointFaults:
    return script.node.store.faults


def test_the_script_passes_every_point() -> None:
    assert {point for _, point in POINTS} == {
        *("snapshot", "encode", "flush", "flushed", "files_to_sync", "handed_out", "files_synced", "synced"),
        *("needed", "move_home"),
    }


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_nothing_is_lost_by_an_exception_at_any_point_at_which_a_queue_is_asked(name: str) -> None:
    for nth in some(range(1, len(POINTS) + 1)):
        try:
            check(run(lambda script, nth=nth: faults_of(script).plan(nth, EXCEPTIONS[name]())))  # type: ignore[misc]
        except Exception as error:
            error.add_note(f"{name} at point {nth}, {POINTS[nth - 1]}")
            raise


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_nothing_is_lost_by_an_exception_at_any_call_to_a_file_of_a_checkpoint(name: str) -> None:
    calls = sorted({call for call, path in CALLS if path.startswith("checkpoint") and call != "make_dir"})
    assert {"create", "pwrite", "rename", "open_folder", "unlink"} <= set(calls)
    for call in calls:
        if call in ("fdatasync", "sync_dir") and name in ("MemoryError", "a bug"):
            # Syncs happen in another process, which answers with an error number.
            continue
        count = len([one for one, path in CALLS if one == call and path.startswith("checkpoint")])
        for nth in some(range(1, count + 1)):

            def prepare(script: WatchedScript, call: str = call, nth: int = nth) -> None:
                script.files.plan.fail_with(EXCEPTIONS[name](), call, "checkpoint", nth)

            try:
                check(run(prepare))
            except Exception as error:
                error.add_note(f"{name} at call {nth} of {call}")
                raise
