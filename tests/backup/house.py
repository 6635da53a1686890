"""A node on a simulated disk that works while it is backed up, and remembers what it held at each LSN."""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.backup.archive.folder_archive import FolderArchive
from penstock.backup.archive.folder_sink import FolderSink
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import Manifest
from penstock.backup.progress import Progress
from penstock.backup.restoring.chain import Chain, Link
from penstock.backup.restoring.plan import Moment
from penstock.backup.restoring.restoring import Restored, Restoring
from penstock.backup.taking.source import Beginning, Source
from penstock.backup.taking.taking import Taking
from penstock.clock import ManualClock
from penstock.journal.options import FSYNC
from penstock.message import Envelope, Incoming
from penstock.store.retention.reader_cursors import log_id
from tests.disk.sim_files import SimFiles
from tests.simulation.machine import VHOSTS, Node
from tests.simulation.profile import Profile

PERSISTENT = Envelope("", "key", b"\x10\x00\x02", persistent=True)
TRANSIENT = Envelope("", "key", b"\x00\x00")
HUGE = 1 << 40

# Queue → bodies of its persistent messages, sorted.
Contents = dict[str, list[bytes]]


class NodeSource(Source):
    """The node as `begin_backup` and its kin show it to the command."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._lease = ""

    def begin(self) -> Beginning:
        store = self._house.node.store
        self._lease = store.removals.take() or ""
        assert self._lease
        answers: list[str] = []
        store.ask_checkpoint(answers.append)
        self._house.turns_until(lambda: bool(answers))
        assert answers == [""]
        self._house.settle()
        return Beginning(
            store.checkpointer.kept[-1].number, store.journal.next_lsn, log_id(store.files), "0", online=True
        )

    def renew(self) -> int:
        store = self._house.node.store
        if not store.removals.renew(self._lease):
            raise BackupError("the lease has lapsed")
        self._house.settle()
        return store.journal.durable_lsn

    def end(self) -> None:
        if not self._house.node.store.removals.end(self._lease):
            raise BackupError("the lease has lapsed")

    def give_up(self) -> None:
        self._house.node.store.removals.end(self._lease)


class House:
    def __init__(self, seed: int, files: SimFiles | None = None) -> None:
        self.rng = random.Random(seed)
        self.profile = Profile(random.Random(seed), faults=False)
        self.profile.sync_at_once = 1.0
        self.profile.callbacks_at_once = True
        self.profile.quick_syncs = False
        self.profile.store.journal.confirm_sync = FSYNC
        self.clock = ManualClock()
        self.files = files or SimFiles()
        self.node = Node(self.files, self.clock, self.profile, random.Random(seed))
        self.node.open()
        self.held: dict[str, dict[int, bytes]] = {name: {} for name in self.node.queues}
        self.points: dict[int, Contents] = {}
        # How often each act was done.
        self.acts: dict[str, int] = {}
        self._count = 0

    # --- acts -------------------------------------------------------------------------------------------

    def act(self) -> None:
        """Do something, and note what the node holds then."""
        if not self.held:
            name = "declare"
        else:
            name = self.rng.choices(list(ACTS), list(ACTS.values()))[0]
        self.acts[name] = self.acts.get(name, 0) + 1
        getattr(self, name)()
        self.settle()
        self.points[self.node.journal.durable_lsn] = self.contents()

    def contents(self) -> Contents:
        return {name: sorted(messages.values()) for name, messages in self.held.items()}

    def declare(self) -> None:
        if len(self.held) < 4:
            self._count += 1
            name = f"q{self._count}"
            queue_id = f"{self.rng.getrandbits(64):016x}"
            self.node.declare(name, queue_id, VHOSTS[self._count % 2], True, self.rng.choice((0, 0, 3)))
            self.held[name] = {}

    def publish(self) -> None:
        name = self._some_queue()
        sizes = [self.rng.choice((5, 20, 60, 130)) for _ in range(self.rng.randint(1, 5))]
        bodies = [self._body(size) for size in sizes]
        first = self.node.queues[name].messages.publish(Incoming(PERSISTENT, bodies), None)
        for position, body in enumerate(bodies):
            self.held[name][first + position] = body

    def publish_transient(self) -> None:
        self.node.queues[self._some_queue()].messages.publish(Incoming(TRANSIENT, [self._body(20)]), None)

    def consume(self) -> None:
        name = self._some_queue()
        messages = self.node.queues[name].messages
        run = messages.fetch(self.rng.randint(1, 6), HUGE, True)
        if run is None:
            return
        ids = list(range(run.first_seq_id, run.first_seq_id + len(run.entries)))
        if self.rng.random() < 0.7:
            messages.ack(ids)
            for seq_id in ids:
                self.held[name].pop(seq_id, None)
        elif self.rng.random() < 0.5:
            messages.requeue(ids)

    def purge(self) -> None:
        name = self._some_queue()
        messages = self.node.queues[name].messages
        pending = set(messages.pending_ids())
        messages.purge()
        self.held[name] = {seq_id: body for seq_id, body in self.held[name].items() if seq_id in pending}

    def delete(self) -> None:
        name = self._some_queue()
        self.node.delete(self.node.queues[name])
        del self.held[name]

    def checkpoint(self) -> None:
        assert self.node.store.checkpoint_now()

    def work(self) -> None:
        for _ in range(20):
            self.clock.advance(0.3)
            self.node.store.end_turn()

    def _some_queue(self) -> str:
        return self.rng.choice(sorted(self.held))

    def _body(self, size: int) -> bytes:
        self._count += 1
        return (b"%d." % self._count).ljust(size, b"x") + b"\xce"

    # --- turns ------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Make everything durable that has come so far."""
        while not self.node.journal.is_empty or self.node.store.is_behind():
            self.node.store.end_turn()
            self.node.journal.commit(True)

    def turns_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if condition():
                return
            self.node.store.end_turn()
            self.clock.advance(0.001)
        raise AssertionError("it does not come to its end")

    # --- backup and restore ----------------------------------------------------------------------------

    def back_up(
        self, target: SimFiles, base: Manifest | None = None, meanwhile: Callable[[str], None] | None = None
    ) -> Manifest:
        """Make a backup; `meanwhile` is called at each step of it."""

        def show(phase: str, done: int, total: int) -> None:
            if meanwhile is not None:
                meanwhile(phase)

        sink = FolderSink(target, "target")
        return Taking(self.files, NodeSource(self), sink, base, "base", Progress(show), self.clock.monotonic_s).run()


ACTS = {
    "publish": 20,
    "publish_transient": 3,
    "consume": 16,
    "purge": 1,
    "delete": 1,
    "declare": 3,
    "checkpoint": 3,
    "work": 4,
}


def chain_of(*backups: tuple[Manifest, SimFiles]) -> Chain:
    return Chain([Link(manifest, FolderArchive(files, manifest.id)) for manifest, files in backups])


def restored(chain: Chain, lsn: int | None = None, files: SimFiles | None = None) -> tuple[Restored, SimFiles]:
    target = files or SimFiles()
    return Restoring(chain, target, "target").run(Moment(lsn)), target


def contents_of(files: SimFiles, profile: Profile) -> Contents:
    """What a node holds that is started with the folder; nothing may be damaged."""
    node = Node(files, ManualClock(), profile, random.Random(0))
    node.open()
    assert not node.report, node.report
    found: Contents = {}
    for name, queue in node.queues.items():
        found[name] = sorted(entry[1] for _, entry, _ in queue.contents())
    return found
