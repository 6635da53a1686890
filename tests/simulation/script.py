"""A fixed script: the same steps in the same order, so that one thing can go wrong at every single call to the disk.

It publishes small and large messages, acks, pages, checkpoints, moves bodies out of old journal segments, compacts,
deletes, stops, starts again, and goes on for a while. What the steps choose by chance is always the same.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.backing.variable.paging import PagingOptions
from penstock.errors import StartupError
from penstock.journal.format.layout import FIRST_BATCH_AT
from penstock.journal.options import JournalOptions
from penstock.store.node.options import StoreOptions
from penstock.store.shared.message_store import MessageStoreOptions
from tests.disk.sim_files import FaultPlan, SimFiles, Survival
from tests.simulation.books import require
from tests.simulation.driver import Trace, no_trace
from tests.simulation.machine import Node
from tests.simulation.profile import HUGE, Profile
from tests.simulation.publishing import Publishers
from tests.simulation.simulation import Simulation, small_buffers

# Chosen so that everything happens that the script is about; `test_faults` says so when that is no longer true.
SEED = 216

FIRST_LIFE = (
    *("publish", "fan_out", "publish", "ask", "end_turn", "answer_sync"),
    *("publish_entries", "transaction", "fetch", "end_turn", "answer_sync", "ack", "lazy"),
    *("publish", "fan_out", "ask", "end_turn", "answer_sync", "checkpoint", "work"),
    *("roll", "publish", "note", "consume", "work", "checkpoint", "work", "requeue", "publish"),
    *("ask", "work", "compact", "work", "checkpoint", "work", "delete", "declare", "publish", "ask", "end_turn"),
    *("answer_sync", "run_callbacks", "publish", "fetch_without_ack"),
)
SECOND_LIFE = ("publish", "ask", "end_turn", "answer_sync", "consume", "end_turn", "checkpoint", "work", "publish")


def tiny_store() -> StoreOptions:
    return StoreOptions(
        JournalOptions(segment_bytes=FIRST_BATCH_AT + 900, batch_bytes_max=600, cache_bytes=0),
        MessageStoreOptions(file_bytes=400, buffer_bytes=1),
        index_slots=2,
        embed_below=48,
        checkpoint_bytes=HUGE,
        checkpoint_s=1e9,
        retention_bytes=0,
        reserve_bytes=0,
        handles_max=2,
        slice_s=0.0,
    )


class Script(Simulation):
    """One run of the script."""

    def __init__(self, trace: Trace = no_trace, seed: int = SEED) -> None:
        super().__init__(seed, trace, faults=False)
        self.profile = self._fixed_profile()
        self.publishers = Publishers(self.rng, self.profile)
        self.files = SimFiles(FaultPlan(Survival.NOTHING))
        self.node = Node(self.files, self.clock, self.profile, self.rng)
        # Whether a crash ends the script, and does not just begin another life.
        self.ends_with_a_crash = False
        # (call, after) at which the machine of the second life goes down; call 0 = it does not.
        self.crash_in_second_life = (0, False)

    def _fixed_profile(self) -> Profile:
        profile = Profile(self.rng, False)
        profile.store = tiny_store()
        profile.paging = PagingOptions(
            cap=1, slack=0, bytes_max=40, io_batch=1, slice_count=6, read_ahead_count=3, read_ahead_bytes=60
        )
        profile.index_buffer_bytes = profile.store_buffer_bytes = 1
        profile.sync_at_once = 0.0
        profile.callbacks_at_once = True
        profile.persistent_share = 0.9
        profile.large_share = 0.3
        profile.run_max = 3
        profile.capacity_bytes = None
        return profile

    def begin_life(self, files: SimFiles, clean: bool) -> None:
        if self.ends_with_a_crash:
            self.files = files
            self.owed.clear()
            self.lsns.clear()
            files.plan.crash_at, files.plan.crash_after = self.crash_in_second_life
            self._start(files, clean)
        else:
            super().begin_life(files, clean)

    def plan_start(self, files: SimFiles) -> None:
        return None

    def _begin(self) -> None:
        try:
            super()._begin()
        except StartupError as error:
            require(self.may_fail(), f"the node does not start: {error}")
            # It says why, and starts when that is mended.
            self.files = self.files.kill()
            self.node = Node(self.files, self.clock, self.profile, self.rng)
            super()._begin()

    def _do(self, step: Callable[[], None]) -> None:
        if self.ends_with_a_crash:
            step()
            self._look_around()
        else:
            super()._do(step)

    def first_life(self) -> None:
        """Up to the end of the first life, without its stop."""
        self._do(self._begin)
        self._follow(FIRST_LIFE)

    def second_life(self) -> None:
        """A clean stop, a start, and some more."""
        self._do(self.clean_restart)
        self._follow(SECOND_LIFE)

    def _follow(self, names: tuple[str, ...]) -> None:
        steps: dict[str, Callable[[], None]] = self.named_steps()
        for number, name in enumerate(names):
            self.trace(f"{number} {name}")
            self._do(steps[name])

    def publish_to(self, name: str) -> None:
        self._publish([self.node.queues[name]])
        self.end_unit()

    def go_idle(self) -> None:
        """Until the commit mark stands behind the last batch."""
        for _ in range(3):
            self.clock.advance(1.0)
            self.node.store.end_turn()
            self.node.syncer.answer()

    def whole(self) -> None:
        """Everything, with the end of a seed behind it."""
        with small_buffers(self.profile):
            self.first_life()
            self.second_life()
            self._finish()
