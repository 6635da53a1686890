"""The steps that end a life of the node, and how the next one begins.

A life ends with a clean stop, with the end of the process (what it wrote stays in the page cache), or with a power cut,
which leaves anything of what was not synced. A crash may be planned for a file call to come, also for one of the next
start. After a start what came back is compared with the books, and the books go on from there.
"""

from __future__ import annotations

import errno

from penstock.errors import StartupError
from penstock.journal.options import OS
from penstock.message import Entry
from tests.disk.sim_files import SimCrash, SimFiles
from tests.simulation.books import Broken, require
from tests.simulation.machine import Node
from tests.simulation.verbs import Verbs

# Calls that fail in some seeds, with an error of the disk; and those that find no descriptor, or no memory.
FAILING_CALLS = ("pwrite", "fdatasync", "sync_dir", "create", "rename", "unlink", "truncate")
READING_CALLS = ("open", "open", "open_folder", "pread", "size")
STARTS_MAX = 6


class Lives(Verbs):
    """Begins and ends lives."""

    # A fault was planned in this life: errors come out of verbs, and the node may have to stop.
    is_faulty = False
    # A sync has failed: what the page cache shows is not what the disk has.
    sync_failed = False

    def may_fail(self) -> bool:
        return self.is_faulty or self.files.plan.capacity_bytes is not None

    # --- ends ---------------------------------------------------------------------------------------

    def clean_restart(self) -> None:
        self.trace("  clean stop")
        try:
            is_clean = self.node.stop()
        except OSError as error:
            require(self.may_fail(), f"the stop failed: {error!r}")
            is_clean = False
        require(is_clean or self.may_fail(), f"the stop failed: {self.node.store.failed} {self.node.store.alarm}")
        if is_clean:
            self.end_life()
            self.begin_life(self.files.kill(), True)
        else:
            self.sync_failed = True
            self.end_badly()

    def kill(self) -> None:
        if not self.sync_failed:
            self.trace("  killed")
            self.end_life()
            self.begin_life(self.files.kill(), False)

    def lose_power(self) -> None:
        self.trace("  power lost")
        self.end_life()
        self.begin_life(self.after_power_cut(self.files), False)

    def after_power_cut(self, files: SimFiles) -> SimFiles:
        """What is left of a machine. Where confirms do not wait for a sync only kills are survived."""
        return files.kill() if self.profile.store.journal.confirm_sync == OS else files.crash(self.rng.randrange)

    def end_badly(self) -> None:
        """The machine is down, or the node must stop because its disk has failed."""
        if self.sync_failed or self.rng.random() < 0.7:
            self.lose_power()
        else:
            self.kill()

    def plan_crash(self) -> None:
        """The power fails at one of the next file calls."""
        plan = self.files.plan
        plan.crash_at = len(self.files.calls) + self.rng.randint(1, 40)
        plan.crash_after = self.rng.random() < 0.5

    def plan_fault(self) -> None:
        """One of the next file calls fails, or all of them from then on."""
        self.is_faulty = True
        plan = self.files.plan
        nth = self.rng.randint(1, 8)
        forever = self.rng.random() < 0.3
        way = self.rng.random()
        # Often only files of queues: those of the journal end the life, and all that could follow.
        path = "vhosts/" if self.rng.random() < 0.5 else ""
        if way < 0.15:
            # Says nothing about the disk: what could not be read can be read later.
            error = self.rng.choice((errno.EMFILE, errno.ENOMEM, errno.EIO))
            call = self.rng.choice(READING_CALLS)
            if error == errno.EIO:
                # Once: the second try succeeds. What cannot be read for long is in the tests of the contract.
                plan.fail(error, "pread", path, nth)
            else:
                plan.fail(error, call, path, nth, forever and path != "")
        elif way < 0.2:
            plan.short_write(self.rng.randint(0, 60), nth)
        elif way < 0.4:
            plan.short_write(self.rng.randint(0, 60), nth, path, self.rng.choice((errno.EIO, errno.ENOSPC)))
        else:
            call = self.rng.choice(FAILING_CALLS)
            plan.fail(self.rng.choice((errno.EIO, errno.ENOSPC)), call, path, nth, forever)
        self.trace(f"  fault: {[(fault.call, fault.nth, fault.error) for fault in plan.faults]}")

    def plan_exception(self) -> None:
        """Something goes wrong in a checkpoint to come that has nothing to do with the disk."""
        self.is_faulty = True
        exception = self.rng.choice(
            (MemoryError(), KeyError("a bug"), AssertionError("a bug"), OSError(errno.ENOMEM, "no memory"))
        )
        self.node.store.faults.plan(self.rng.randint(1, 20), exception)

    # --- beginnings -----------------------------------------------------------------------------------

    def end_life(self) -> None:
        self.lives += 1
        self.calls += self.files.calls

    def begin_life(self, files: SimFiles, clean: bool) -> None:
        self.is_faulty = self.sync_failed = False
        self.owed.clear()
        self.lsns.clear()
        for number in range(STARTS_MAX):
            self.files = files
            if number < STARTS_MAX - 1:
                self.plan_start(files)
            try:
                self._start(files, clean)
            except SimCrash as crash:
                self.trace(f"  the start was cut off {crash}")
                self.calls += files.calls
                files = self.after_power_cut(files) if self.rng.random() < 0.7 else files.kill()
                clean = False
                continue
            except StartupError as error:
                if files.plan.capacity_bytes is None:
                    raise Broken(f"the node does not start: {error}") from error
                # The disk is full; somebody makes room.
                self.calls += files.calls
                files = files.kill()
                files.plan.capacity_bytes = None
                continue
            return

    def plan_start(self, files: SimFiles) -> None:
        """The power may fail while the node starts, or soon after."""
        if self.rng.random() < 0.15:
            files.plan.crash_at = self.rng.randint(1, 60)
            files.plan.crash_after = self.rng.random() < 0.5

    def _start(self, files: SimFiles, clean: bool) -> None:
        self.node = node = Node(files, self.clock, self.profile, self.rng)
        found = self.open_and_find(node)
        require(node.is_clean or not clean, "the node was stopped cleanly, and does not know it")
        cut = self.books.cut(found, node.definitions, clean)
        self.trace(
            f"  started {'clean' if clean else 'dirty'} with cut {cut} of {self.books.promised}…{self.books.unit}"
        )
        # A stop that was clean still is if only the start behind it was cut off.
        self.books.restart(cut, clean, not node.is_clean)
        require(set(self.books.queues) == set(node.queues), f"the queues are {set(node.queues)}")
        for queue in node.queues.values():
            self.check(queue)

    def open_and_find(self, node: Node) -> dict[str, list[tuple[int, Entry]]]:
        """Start a node; (seq_id, entry) of everything that is there, by the id of its queue."""
        node.open()
        found: dict[str, list[tuple[int, Entry]]] = {}
        for queue in node.queues.values():
            contents = queue.contents()
            found[queue.queue_id] = [(seq_id, entry) for seq_id, entry, _ in contents]
            held = [seq_id for seq_id, _, pending in contents if pending]
            require(not held, f"messages of {queue.name} are pending after a start: {held}")
            counted = len(queue.messages)
            require(counted == len(contents), f"{queue.name} counts {counted} messages, and shows {len(contents)}")
            lost = 0 if queue.max_priority else queue.messages.status()["lost"]
            require(lost == 0, f"{queue.name} has lost {lost} messages")
        # Nothing was damaged, so nothing is said to be.
        wrong = [line for line in node.report if "never completed" not in line]
        require(not wrong, f"damage is reported, and there is none: {wrong}")
        return found

    def peek(self) -> None:
        """What if it ended now? A copy of the machine goes down, once or twice; this one lives on."""
        copy = self.files.copy()
        files = copy if self.rng.random() < 0.3 and not self.sync_failed else self.after_power_cut(copy)
        for _ in range(self.rng.choice((1, 1, 2))):
            node = Node(files, self.clock, self.profile, self.rng)
            try:
                found = self.open_and_find(node)
                self.books.cut(found, node.definitions, False)
                if self.rng.random() < 0.5:
                    node.store.checkpoint_now()
            except (StartupError, OSError) as error:
                require(files.plan.capacity_bytes is not None, f"the node does not start: {error}")
                return
            files = self.after_power_cut(files)
