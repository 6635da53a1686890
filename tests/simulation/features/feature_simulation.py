"""A whole broker that lives and dies on a simulated disk, driven by a seed.

`feature_steps` has what clients cause; here are the ends and beginnings of lives, the choice between all steps, and
what is left to do at the end of a seed: everything that waits comes out, and nothing is left over.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate

from penstock.broker.vhost.companions import HELD_FOR_EXCHANGE, HELD_FOR_QUEUE
from penstock.journal.options import OS
from tests.disk.sim_files import SimCrash, SimFiles
from tests.simulation.books import Broken, require
from tests.simulation.driver import Trace, no_trace
from tests.simulation.features.feature_books import History
from tests.simulation.features.feature_machine import FeatureNode, small_and_seeded
from tests.simulation.features.feature_rules import Facts
from tests.simulation.features.feature_steps import Steps

STARTS_MAX = 6
TURNS_MAX = 300


class FeatureSimulation(Steps):
    """One seed."""

    def __init__(self, seed: int, trace: Trace = no_trace) -> None:
        super().__init__(seed, trace)
        weights = self.profile.weights
        self._steps: list[tuple[str, Callable[[], None]]] = [(name, getattr(self, name)) for name in weights]
        self._sums = list(accumulate(weights.values()))
        self.calls: list[tuple[str, str]] = []

    # --- the machine ------------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        self.node.store.end_turn()

    def answer_sync(self) -> None:
        self.node.syncer.answer()

    def work(self) -> None:
        for _ in range(self.rng.randint(2, 8)):
            self.clock.advance(self.rng.choice((0.0, 0.0, 0.004)))
            self.node.syncer.answer()
            self.node.store.end_turn()
            self.facts.now_ms = self.clock.wall_ms()

    def checkpoint(self) -> None:
        self.node.store.checkpoint_now()

    def roll(self) -> None:
        self.node.journal.roll()

    def tend_memory(self) -> None:
        self.node.broker.tend_memory()

    # --- ends and beginnings ------------------------------------------------------------------------------------

    def clean_restart(self) -> None:
        self.trace("  clean stop")
        self.node.stop()
        self._begin_life(self.files.kill(), True)

    def kill(self) -> None:
        self.trace("  killed")
        self._begin_life(self.files.kill(), False)

    def lose_power(self) -> None:
        self.trace("  power lost")
        self._begin_life(self._after_power_cut(self.files), False)

    def _after_power_cut(self, files: SimFiles) -> SimFiles:
        """Where confirms do not wait for a sync only kills are survived."""
        return (
            files.kill() if self.profile.machine.store.journal.confirm_sync == OS else files.crash(self.rng.randrange)
        )

    def plan_crash(self) -> None:
        """The power fails at one of the next file calls."""
        plan = self.files.plan
        plan.crash_at = len(self.files.calls) + self.rng.randint(1, 40)
        plan.crash_after = self.rng.random() < 0.5

    def peek(self) -> None:
        """What if it ended now? A copy of the machine goes down, once or twice; this one lives on."""
        files = self.files.copy()
        if self.rng.random() < 0.6:
            files = self._after_power_cut(files)
        for _ in range(self.rng.choice((1, 1, 2))):
            node = FeatureNode(files, self.clock, self.profile, self.rng)
            self._cut_of(node, False)
            files = self._after_power_cut(files)

    def _cut_of(self, node: FeatureNode, clean: bool) -> int:
        node.check()
        found = node.picture()
        node.check_start()
        return self.history.cut(found, self.clock.wall_ms(), clean)

    def _begin_life(self, files: SimFiles, clean: bool) -> None:
        self.lives += 1
        self.calls += self.files.calls
        for number in range(STARTS_MAX):
            self.files = files
            if number < STARTS_MAX - 1 and self.rng.random() < 0.1:
                files.plan.crash_at = self.rng.randint(1, 60)
            try:
                self.node = FeatureNode(files, self.clock, self.profile, self.rng)
                cut = self._cut_of(self.node, clean)
                break
            except SimCrash as crash:
                self.trace(f"  the start was cut off {crash}")
                files = self._after_power_cut(files) if self.rng.random() < 0.7 else files.kill()
                clean = False
        self.trace(f"  started with picture {cut} of {self.history.promised}…{self.history.last}")
        self.picture = self.node.picture()
        self.history = History(self.specs, self.picture)
        self.rules.restarted()
        self.inboxes.clear()
        self.out.clear()
        self._keep_counts(clean)
        self._condemn_again()
        self.completed.clear()
        self.fresh.clear()
        self.facts = Facts(self.clock.wall_ms())

    def _keep_counts(self, clean: bool) -> None:
        """A clean stop keeps the delivery counts of what it keeps, a crash at most those."""
        if clean:
            self.counts = {
                key: count
                for key, count in self.counts.items()
                if key[0] in self.picture and key[1] in self.picture[key[0]].copies
            }
        else:
            self.counts_at_most = dict(self.counts_ever)
            self.counts = {}

    def _condemn_again(self) -> None:
        """What was over its limit, and found no place before the restart, is on its way out again."""
        for name, shelf in self.picture.items():
            limit = self.specs[name].delivery_limit if name in self.specs else -1
            queue = self.queue(name)
            if limit < 0 or queue is None:
                continue
            for copy in shelf.copies.values():
                if copy.is_pending and queue.backing.delivery_count(copy.seq_id) > limit:
                    require(self.counts_ever.get(copy.key, 0) > limit, f"{copy} was not delivered too often")
                    self.rules.condemned.add(copy.key)

    # --- a seed -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        with small_and_seeded(self.profile, self.rng):
            self._begin()
            for number in range(self.profile.steps):
                name, step = self._steps[bisect(self._sums, self.rng.random() * self._sums[-1])]
                self.trace(f"{number} {name}")
                self._do(step)
            self._finish()

    def _begin(self) -> None:
        for spec in self.specs.values():
            self.trace(f"{spec.name}: {spec.arguments()}{'' if spec.durable else ' not durable'}")
        self.trace(f"fan to {self.topology.fan}, late to {self.topology.late}")
        self.node = FeatureNode(self.files, self.clock, self.profile, self.rng)
        self.node.declare_exchanges()
        for name in self.specs:
            self.declare_queue(name)
        for _ in range(4):
            self.node.store.end_turn()
            self.node.syncer.answer()
        self.facts = Facts(self.clock.wall_ms())
        self.picture = self.node.picture()
        self.history = History(self.specs, self.picture)

    def _do(self, step: Callable[[], None]) -> None:
        try:
            self.facts = Facts(self.clock.wall_ms())
            step()
            self.look_around()
        except SimCrash as crash:
            self.trace(f"  {crash}")
            self._do(self.lose_power if self.rng.random() < 0.7 else self.kill)

    def _finish(self) -> None:
        """Everything comes to rest, is still there after a power cut, and comes out when its time has come."""
        self.trace("finish")
        self.files.plan.crash_at = 0
        for _ in self.specs:
            self._do(self.declare)
        self.files.plan.crash_at = 0
        for _ in range(2):
            self._do(lambda: self._pass_ms(1100))
        stuck = [key for key in sorted(self.rules.condemned) if self.rules.is_stuck(self.picture, key)]
        require(not stuck, f"dead letters are not offered again: {stuck}")
        self._do(self.come_to_rest)
        self._do(self.lose_power)
        self.files.plan.crash_at = 0
        self._do(self.resume)
        self._do(lambda: self._pass_ms(200_000))
        for _ in range(2):
            self._do(lambda: self._pass_ms(10_000))
        self._check_nothing_is_held()
        for name in list(self.specs):
            self._do(lambda name=name: self._drain(name))  # type: ignore[misc]
        self._do(self.come_to_rest)
        self._do(self.clean_restart)

    def _drain(self, name: str) -> None:
        queue = self.queue(name)
        while queue is not None and (run := queue.get(True)) is not None:
            self.delivered(queue, None, run, True)
            self.look_around()

    def _check_nothing_is_held(self) -> None:
        for shelf in self.picture.values():
            if shelf.kind in (HELD_FOR_QUEUE, HELD_FOR_EXCHANGE) and not self._is_refused(shelf.kind):
                require(not shelf.copies, f"messages are left in {shelf.name}: {shelf.copies}")

    def come_to_rest(self) -> None:
        for _ in range(TURNS_MAX):
            self.clock.advance(0.0)
            self.node.syncer.answer()
            self.node.store.end_turn()
            store = self.node.store
            if not store.checkpointer.is_running and self.node.syncer.under_way is None:
                return
        raise Broken("the node does not come to rest")

    def digest(self) -> str:
        """All that was asked of the disks, and what is on the last one."""
        digest = hashlib.sha256(repr([*self.calls, *self.files.calls]).encode())
        for path, data in self.files.contents().items():
            digest.update(path.encode() + data)
        return digest.hexdigest()


def run_seed(seed: int, trace: Trace = no_trace) -> FeatureSimulation:
    """Run one seed; what is wrong is raised, with the seed in its text."""
    simulation = FeatureSimulation(seed, trace)
    try:
        simulation.run()
    except Exception as error:
        error.add_note(f"seed {seed}: python -m tests.simulation.features --seed {seed} shows every step")
        raise
    return simulation
