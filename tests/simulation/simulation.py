"""A node that lives and dies on a simulated disk, driven by a seed, and checked against the driver's own books.

Each step is one thing that a server, a client, the clock or the disk may do. After each the queues are compared with
the books; after each restart everything that came back must be explained by one cut of the log. `books` says what
that means, `verbs` has the steps that clients cause, `lives` those that end a life. Here is the choice between them,
and what is left to do at the end of a seed.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate

from penstock.store.queue import queue_index, queue_store
from tests.disk.sim_files import SimCrash
from tests.simulation.books import Broken, require
from tests.simulation.driver import Trace, no_trace
from tests.simulation.lives import Lives
from tests.simulation.machine import VHOSTS
from tests.simulation.profile import Profile

# Turns after which a node without faults has nothing left to do.
TURNS_MAX = 300


class Simulation(Lives):
    """One seed."""

    def __init__(self, seed: int, trace: Trace = no_trace, faults: bool = True) -> None:
        super().__init__(seed, trace, faults)
        named = self.named_steps()
        weights = self.profile.weights
        self._steps = [(name, named[name]) for name in weights]
        self._sums = list(accumulate(weights.values()))
        # Steps that read. All others keep an error of the disk to themselves, or tell that the node must stop.
        self._may_raise = (
            self.fetch,
            self.fetch_at,
            self.fetch_without_ack,
            self.consume,
            self.drop,
            self.drop_expired,
            self.fetch_expired,
            self.purge,
            self.browse,
            self.look,
            self.declare,
        )

    def named_steps(self) -> dict[str, Callable[[], None]]:
        return {
            "publish": self.publish,
            "publish_entries": self.publish_entries,
            "fan_out": self.fan_out,
            "transaction": self.transaction,
            "fetch": self.fetch,
            "fetch_at": self.fetch_at,
            "fetch_without_ack": self.fetch_without_ack,
            "ack": self.ack,
            "consume": self.consume,
            "requeue": self.requeue,
            "drop": self.drop,
            "drop_expired": self.drop_expired,
            "fetch_expired": self.fetch_expired,
            "purge": self.purge,
            "browse": self.browse,
            "look": self.look,
            "declare": self.declare,
            "delete": self.delete,
            "note": self.note,
            "ask": self.ask,
            "ram_seconds": self.ram_seconds,
            "ram_bytes": self.ram_bytes,
            "lazy": self.lazy,
            "resume": self.resume,
            "time_out": self.time_out,
            "end_turn": self.end_turn,
            "work": self.work,
            "pass_moment": self.pass_moment,
            "pass_while": self.pass_while,
            "checkpoint": self.checkpoint,
            "roll": self.roll,
            "compact": self.compact,
            "answer_sync": self.answer_sync,
            "run_callbacks": self.run_callbacks,
            "peek": self.peek,
            "clean_restart": self.clean_restart,
            "kill": self.kill,
            "lose_power": self.lose_power,
            "plan_crash": self.plan_crash,
            "plan_fault": self.plan_fault,
            "plan_exception": self.plan_exception,
        }

    # --- what the node and the clock do -----------------------------------------------------------------

    def end_turn(self) -> None:
        self.node.store.end_turn()

    def work(self) -> None:
        """Turns in a row, as a node has them when clients are quiet."""
        for _ in range(self.rng.randint(2, 12)):
            self.clock.advance(self.rng.choice((0.0, 0.004, 1.1)))
            self.node.syncer.answer()
            self.node.store.end_turn()
            self.node.run_callbacks(100)

    def pass_moment(self) -> None:
        self.clock.advance(self.rng.choice((0.001, 0.011, 0.03)))
        self.node.store.end_turn()

    def pass_while(self) -> None:
        self.clock.advance(self.rng.choice((0.6, 6.0, 100.0)))
        self.node.store.end_turn()

    def checkpoint(self) -> None:
        self.node.store.checkpoint_now()

    def roll(self) -> None:
        self.node.journal.roll()

    def compact(self) -> None:
        vhost_id = "5e" if self.rng.random() < 0.8 else "6f"
        with self.undisturbed():
            store = self.node.store.message_store(vhost_id, self.rng.random() < 0.7)
        store.compact_some(self.rng.choice((1, 100, 1 << 20)))
        store.check_invariants()

    def answer_sync(self) -> None:
        self.node.syncer.answer()

    def run_callbacks(self) -> None:
        self.node.run_callbacks(self.rng.choice((1, 2, 100)))

    # --- a seed -----------------------------------------------------------------------------------------

    def run(self) -> None:
        with small_buffers(self.profile):
            self._begin()
            for number in range(self.profile.steps):
                name, step = self._steps[bisect(self._sums, self.rng.random() * self._sums[-1])]
                self.trace(f"{number} {name}")
                self._do(step)
            self._finish()

    def _begin(self) -> None:
        self.node.open()
        for name in ("a", "p", "t"):
            self._declare(name)

    def _do(self, step: Callable[[], None]) -> None:
        try:
            step()
            self._look_around()
        except SimCrash as crash:
            self.trace(f"  {crash}")
            self._do(self.end_badly)
            return
        except OSError as error:
            require(self.may_fail() and step in self._may_raise, f"an error came out: {error!r}")
            self.trace(f"  {error!r} came out of the step")
            # Something could not be read. Whoever wanted it comes again: no message may be gone.
            self._do(self.end_unit)
            return
        failed = self.node.store.failed
        if failed is not None:
            require(self.may_fail(), f"the disk has failed: {failed!r}")
            self.trace(f"  the node must stop: {failed!r}")
            self._after_error()

    def _after_error(self) -> None:
        """The node says that its disk is not to be trusted: it may hold less than it shows. Only a new life helps."""
        self.sync_failed = True
        self.files.plan.capacity_bytes = None
        self._do(self.end_badly)

    def _look_around(self) -> None:
        self.look_at_journal()
        with self.undisturbed():
            for queue in list(self.node.queues.values()):
                self.drain(queue)
                self.check(queue)

    def _finish(self) -> None:
        """Let the node come to rest, stop it, start it, and cut the power: everything must still be there."""
        self.trace("finish")
        self.files.plan.crash_at = 0
        self.files.plan.capacity_bytes = None
        self.files.plan.heal()
        self._do(self.come_to_rest)
        self._do(self.look)
        self._do(self.clean_restart)
        self.files.plan.crash_at = 0
        self._do(self.look)
        self._do(self.lose_power)
        self.files.plan.crash_at = 0
        self._do(self._leave_nothing)

    def _leave_nothing(self) -> None:
        """Without messages there is soon nothing left on the disk that was about them."""
        for queue in self.node.queues.values():
            queue.messages.purge()
            for message in self.books_of(queue).ready():
                self.books_of(queue).settle(message, self.books.unit)
        self.end_unit()
        for _ in range(4):
            self.come_to_rest()
            while self.node.store.has_leftovers():
                self.node.store.end_turn()
            self.node.store.checkpoint_now()
            for vhost_id in VHOSTS:
                for persistent in (True, False):
                    self.node.store.message_store(vhost_id, persistent).compact_some(1 << 20)
        self.come_to_rest()
        for vhost_id in VHOSTS:
            for persistent in (True, False):
                status = self.node.store.message_store(vhost_id, persistent).status()
                require(status["bodies"] == 0 and status["files"] <= 1, f"large bodies are left: {status}")
        paths = [path for path in self.files.contents() if path.endswith((".qi", ".qs"))]
        folders = {path.rpartition("/")[0] for path in paths}
        require(len(paths) <= len(folders), f"files of empty queues are left: {paths}")
        if self.profile.store.retention_bytes == 0:
            # A crash leaves empty ones, which do no harm.
            segments = [path for path, data in self.files.contents().items() if path.startswith("journal/") and data]
            require(len(segments) <= 3, f"journal segments are left: {segments}")

    def come_to_rest(self) -> None:
        for _ in range(TURNS_MAX):
            self.clock.advance(0.05)
            self.node.syncer.answer()
            self.node.store.end_turn()
            self.node.run_callbacks(1000)
            for queue in self.node.queues.values():
                self.drain(queue)
            owed = [token for tokens in self.owed.values() for token in tokens if not token.is_refused]
            if not owed and not self.node.store.checkpointer.is_running and self.node.syncer.under_way is None:
                return
            if self.node.store.failed is not None:
                return
        raise Broken(f"the node does not come to rest: {self.owed}")

    def digest(self) -> str:
        """All that was asked of the disks, and what is on the last one."""
        digest = hashlib.sha256(repr([*self.calls, *self.files.calls]).encode())
        for path, data in self.files.contents().items():
            digest.update(path.encode() + data)
        return digest.hexdigest()


@contextmanager
def small_buffers(profile: Profile) -> Iterator[None]:
    """Buffers that are constants elsewhere overflow here."""
    before = (queue_index.BUFFER_BYTES_MAX, queue_store.BUFFER_BYTES_MAX)
    queue_index.BUFFER_BYTES_MAX = profile.index_buffer_bytes  # type: ignore[misc]
    queue_store.BUFFER_BYTES_MAX = profile.store_buffer_bytes  # type: ignore[misc]
    try:
        yield
    finally:
        queue_index.BUFFER_BYTES_MAX, queue_store.BUFFER_BYTES_MAX = before  # type: ignore[misc]


def run_seed(seed: int, trace: Trace = no_trace, faults: bool = True) -> Simulation:
    """Run one seed; what is wrong is raised, with the seed in its text."""
    simulation = Simulation(seed, trace, faults)
    try:
        simulation.run()
    except Exception as error:
        error.add_note(f"seed {seed}: python -m tests.simulation --seed {seed} shows every step")
        raise
    return simulation
