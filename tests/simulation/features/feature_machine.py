"""One life of a whole broker on a simulated machine: no sockets, no threads, no chance but that of the seed.

A life begins with `FeatureNode` on whatever disk the last one left, and ends with a clean stop, or is just dropped. The
broker is the real one. Sizes that are constants elsewhere are small here, and the ids that it makes up come from the
seed (`small_and_seeded`).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from penstock.backing.variable.variable_queues import VariableBackingQueues
from penstock.broker import broker as broker_module
from penstock.broker.broker import Broker
from penstock.broker.features import deduplication, queue_features
from penstock.broker.vhost.companions import companion_kind
from penstock.broker.vhost.vhost import VHost
from penstock.clock import ManualClock
from penstock.config import Config
from penstock.fields import Table
from penstock.message import Entry, Run
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.delayed.held_selection import HeldSelection
from penstock.queues.intake import drop_pace
from penstock.queues.leaving import returns
from penstock.queues.queue import Queue
from penstock.server.sync.quick_syncer import QuickSyncer
from penstock.store.node.node_store import NodeStore
from tests.disk.sim_files import SimFiles
from tests.simulation.books import require
from tests.simulation.features.feature_books import Copy, Picture, Shelf
from tests.simulation.features.feature_profile import FAN, LATE, FeatureProfile
from tests.simulation.machine import StepSyncer
from tests.simulation.simulation import small_buffers

MEMORY_BYTES = 1 << 30


class Inbox(Consumer):
    """A consumer that takes what its credit allows, and tells the driver what it got."""

    def __init__(self, tag: str, queue: Queue, no_ack: bool, credit: int, delivered: Any) -> None:
        super().__init__(tag, 0, True, no_ack, False)
        self.queue = queue
        self.credit = credit
        # Told of each run: (inbox, run).
        self._delivered = delivered
        # What it has not settled, by seq_id.
        self.unacked: dict[int, None] = {}
        self.is_cancelled = False

    def notify_work(self) -> None:
        return None

    def cancelled_by_queue(self) -> None:
        self.is_cancelled = True

    def wants(self) -> bool:
        return self.no_ack or len(self.unacked) < self.credit

    def take_now(self) -> int:
        run = self.pull()
        return 0 if run is None else len(run.entries)

    def pull(self) -> Run | None:
        """As a channel does it: a run within the credit, and a word to the queue when that is used up."""
        if not self.wants():
            self.queue.set_interest(self, False)
            return None
        run = self.queue.pull(self, 100 if self.no_ack else self.credit - len(self.unacked))
        if run is not None:
            self._delivered(self, run)
            if not self.wants():
                self.queue.set_interest(self, False)
        return run

    def settled(self) -> None:
        if not self.is_cancelled and self.node is not None:
            self.queue.set_interest(self, self.wants())


class FeatureNode:
    """A broker, its store and its syncer."""

    def __init__(self, files: SimFiles, clock: ManualClock, profile: FeatureProfile, rng: random.Random) -> None:
        self.files = files
        self.clock = clock
        self.syncer = StepSyncer(rng, profile.machine.sync_at_once)
        syncer = QuickSyncer(self.syncer, clock) if profile.machine.quick_syncs else self.syncer
        self.store = NodeStore(files, syncer, clock, profile.machine.store, rng.getrandbits)
        self.journal = self.store.journal
        self.broker = Broker(Config(memory_bytes_max=MEMORY_BYTES, disk_bytes_min=1), clock, self.store)

    @property
    def vhost(self) -> VHost:
        return self.broker.vhosts["/"]

    def declare_exchanges(self) -> None:
        vhost = self.vhost
        vhost.declare_exchange(FAN, "fanout", True, False, False, {})
        arguments: Table = {"x-delayed-type": ("S", b"fanout")}
        vhost.declare_exchange(LATE, "x-delayed-message", True, False, False, arguments)

    def picture(self) -> Picture:
        """Everything that is in the broker."""
        return {queue.name: shelf_of(queue) for queue in self.vhost.all_queues()}

    def check(self) -> None:
        """What must hold at any time."""
        for queue in self.vhost.all_queues():
            require(not queue.crashed, f"{queue.name} has crashed")
            queue.backing.check_invariants()
            selection = queue.selection
            if selection is not None:
                selection.check_invariants()
            if isinstance(selection, HeldSelection):
                known = selection.ready_count() + len(queue.backing) + queue.leaving.kept_count()
                require(known == queue.backing.depth(), f"{queue.name}: {known} of {queue.backing.depth()} are noted")

    def check_start(self) -> None:
        """Nothing was damaged, so nothing is said to be, and nothing is lost."""
        wrong = [line for line in self.broker.recovery_report if "never completed" not in line]
        require(not wrong, f"damage is reported, and there is none: {wrong}")
        for queue in self.vhost.all_queues():
            lost = queue.backing.status().get("lost", 0)
            require(lost == 0, f"{queue.name} has lost {lost} messages")

    def stop(self) -> None:
        self.broker.stop()
        require(self.store.failed is None, f"the stop failed: {self.store.failed}")


def shelf_of(queue: Queue) -> Shelf:
    copies: dict[int, Copy] = {}

    def visit(seq_id: int, entry: Entry, is_pending: bool) -> bool:
        envelope, body, props = entry
        copies[seq_id] = Copy(queue.name, seq_id, body, envelope, -1 if props is None else props.expiry_ms, is_pending)
        return True

    queue.backing.fold(visit)
    return Shelf(queue.name, queue.queue_id, queue.durable, companion_kind(queue.arguments), queue.paused, copies)


@contextmanager
def small_and_seeded(profile: FeatureProfile, rng: random.Random) -> Iterator[None]:
    """Everything that the broker does not let us choose."""

    def backings(node: NodeStore, vhost_id: str, clock: ManualClock) -> VariableBackingQueues:
        return VariableBackingQueues(node, vhost_id, clock, profile.machine.paging)

    def held(host: Any, backing: Any) -> HeldSelection:
        return HeldSelection(host, backing, profile.releases_per_turn, profile.fill_per_turn)

    def token_hex(size: int = 32) -> str:
        return rng.getrandbits(size * 8).to_bytes(size, "big").hex()

    with ExitStack() as stack:
        stack.enter_context(small_buffers(profile.machine))
        stack.enter_context(patch.object(secrets, "token_hex", token_hex))
        stack.enter_context(patch.object(broker_module, "VariableBackingQueues", backings))
        stack.enter_context(patch.object(queue_features, "HeldSelection", held))
        stack.enter_context(patch.object(drop_pace, "AT_ONCE_MAX", profile.slice_count))
        stack.enter_context(patch.object(returns, "AT_ONCE_MAX", profile.slice_count))
        stack.enter_context(patch.object(deduplication, "EXPIRED_AT_ONCE", profile.slice_count))
        yield
