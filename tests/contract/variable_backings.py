"""Variable queues on a simulated disk that outlives them: one disk per folder.

The disk loses everything that was not synced when it crashes, so a token that came too early is a test that fails.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from penstock.backing.backing_queue import AsyncCallback, BackingQueue, BackingQueues, Recovery
from penstock.backing.variable.paging import PagingOptions
from penstock.backing.variable.variable_queues import VariableBackingQueues
from penstock.clock import ManualClock
from penstock.journal.options import JournalOptions
from penstock.journal.syncer import InlineSyncer
from penstock.store.node.node_store import NodeStore
from penstock.store.node.options import StoreOptions
from penstock.store.shared.message_store import MessageStoreOptions
from tests.disk.sim_files import FaultPlan, SimFiles, Survival

VHOST_ID = "5e"

DISKS: dict[Path, SimFiles] = {}


def disk_of(folder: Path) -> SimFiles:
    if folder not in DISKS:
        DISKS[folder] = SimFiles(FaultPlan(survival=Survival.NOTHING))
    return DISKS[folder]


def lose_power(folder: Path) -> None:
    """What was not synced is gone."""
    DISKS[folder] = disk_of(folder).crash(random.Random(0).randrange)


def tiny_options() -> StoreOptions:
    """Every boundary is crossed by a handful of messages."""
    return StoreOptions(
        JournalOptions(segment_bytes=2048, batch_bytes_max=512, cache_bytes=256),
        MessageStoreOptions(file_bytes=256),
        index_slots=4,
        embed_below=40,
        checkpoint_bytes=4096,
        reserve_bytes=0,
        retention_bytes=0,
        handles_max=2,
    )


def tiny_paging() -> PagingOptions:
    return PagingOptions(
        cap=2, slack=0, bytes_max=64, io_batch=1, slice_count=3, read_ahead_count=3, read_ahead_bytes=30, at_once=1
    )


class NodeOfOneVhost(BackingQueues):
    """A node's store, and the variable queues of its only vhost."""

    def __init__(self, folder: Path, options: StoreOptions, paging: PagingOptions) -> None:
        clock = ManualClock()
        self.node = NodeStore(disk_of(folder), InlineSyncer(), clock, options, random.Random(1).getrandbits)
        self.recovered = self.node.open()
        self.queues = VariableBackingQueues(self.node, VHOST_ID, clock, paging)

    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        return self.queues.start(queue_ids)

    def stop(self) -> None:
        self.queues.stop()
        self.node.stop()

    def open(self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback) -> BackingQueue:
        return self.queues.open(queue_id, durable, recovery, callback)

    def delete_crashed(self, queue_id: str) -> None:
        self.queues.delete_crashed(queue_id)

    def name_actor(self, text: bytes) -> int:
        return self.queues.name_actor(text)

    def forget_actor(self, actor: int) -> None:
        self.queues.forget_actor(actor)


def variable(folder: Path) -> BackingQueues:
    return NodeOfOneVhost(folder, StoreOptions(reserve_bytes=0), PagingOptions())


def tiny_variable(folder: Path) -> BackingQueues:
    return NodeOfOneVhost(folder, tiny_options(), tiny_paging())
