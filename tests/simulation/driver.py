"""What all steps of a simulation share: the node of this life, the books, and the promises.

One thread, one source of chance, no real file and no real time: the same seed does the same, byte by byte.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.clock import ManualClock
from tests.disk.sim_files import FaultPlan, SimFiles
from tests.simulation.books import Books, QueueBooks, content, require
from tests.simulation.machine import Node, OpenQueue
from tests.simulation.profile import Profile
from tests.simulation.publishing import Publishers, Token

Trace = Callable[[str], None]


def no_trace(text: str) -> None:
    return None


class Driver:
    """Drives one node through its lives."""

    def __init__(self, seed: int, trace: Trace = no_trace, faults: bool = True) -> None:
        self.seed = seed
        self.trace = trace
        self.rng = random.Random(seed)
        self.profile = Profile(self.rng, faults)
        self.clock = ManualClock()
        self.books = Books()
        self.publishers = Publishers(self.rng, self.profile)
        self.files = SimFiles(FaultPlan(self.profile.survival, capacity_bytes=self.profile.capacity_bytes))
        self.node = Node(self.files, self.clock, self.profile, self.rng)
        # Tokens that a queue owes, by queue id.
        self.owed: dict[str, list[Token]] = {}
        # Ids of queues that were given.
        self.ids_given = 0
        # (LSN, unit): the unit is in the journal below the LSN.
        self.lsns: list[tuple[int, int]] = []
        # Lives so far, and file calls of those that are over.
        self.lives = 0
        self.calls: list[tuple[str, str]] = []

    # --- units and promises -------------------------------------------------------------------------

    def end_unit(self) -> None:
        """What was done since the last call is one batch."""
        books = self.books
        self.lsns.append((self.node.journal.next_lsn, books.unit))
        books.unit += 1

    def look_at_journal(self) -> None:
        """The journal says up to where it is durable: that is a promise too."""
        durable_lsn = self.node.journal.durable_lsn
        while self.lsns and self.lsns[0][0] <= durable_lsn:
            self.books.promise(self.lsns.pop(0)[1])

    def ask(self) -> None:
        """Have the journal tell when everything so far is durable."""
        unit = self.books.unit - 1
        life = self.lives

        def answered(is_durable: bool) -> None:
            # Answers of a life that is over are about a log that is over.
            if is_durable and life == self.lives:
                self.books.promise(unit)

        self.node.journal.when_durable(answered)

    def drain(self, queue: OpenQueue) -> None:
        """Take the confirms of one queue."""
        for share in queue.messages.drain_confirmed():
            share.settle()
        told, queue.told = queue.told, []
        for token, failed in told:
            owed = self.owed.get(queue.queue_id, [])
            require(token in owed, f"a confirm came from {queue.name} that was not owed, or came twice")
            owed.remove(token)
            is_both = token.is_refused and len(token.units) == 1
            require(not is_both, f"a publish to {queue.name} was refused, and then confirmed")
            token.settle()
            unit = token.units[queue.queue_id]
            if unit >= 0 and not queue.is_gone:
                is_known = unit < self.books.promised
                require(is_known or failed is None, f"{queue.name} confirms although the disk has failed: {failed}")
                self.books.promise(unit)

    # --- checks -------------------------------------------------------------------------------------

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """It is the driver who looks: this is not to fail."""
        plan = self.files.plan
        faults, plan.faults = plan.faults, []
        yield
        plan.faults = faults

    def check(self, queue: OpenQueue) -> None:
        backing = queue.messages
        books = self.books.queues[queue.name]
        books.check_counts(len(backing), backing.depth(), backing.ready_bytes(), backing.pending_bytes())
        backing.check_invariants()

    def check_contents(self, queue: OpenQueue) -> None:
        """Every message, read from wherever it is."""
        books = self.books.queues[queue.name]
        known = sorted(books.messages.values(), key=lambda message: message.seq_id)
        found = queue.contents()
        seq_ids = [seq_id for seq_id, _, _ in found]
        require(seq_ids == [one.seq_id for one in known], f"{queue.name} has {seq_ids}, and should have {known}")
        for message, (_, entry, pending) in zip(known, found, strict=True):
            require(message.content == content(entry), f"{message} is {entry} in {queue.name}")
            require(message.pending == pending, f"{message} is pending = {pending} in {queue.name}")

    def books_of(self, queue: OpenQueue) -> QueueBooks:
        return self.books.queues[queue.name]

    def pick(self) -> OpenQueue | None:
        """Some queue."""
        queues = list(self.node.queues.values())
        return queues[self.rng.randrange(len(queues))] if queues else None
