"""What one seed is about: sizes, habits of the disk, and which steps come how often.

Every seed draws its own. Limits are tiny, so that each boundary is crossed with a handful of messages, and each seed
leaves out some kinds of steps: what is rare in a mixture of everything is frequent in some of the seeds.
"""

from __future__ import annotations

import random

from penstock.backing.variable.paging import PagingOptions
from penstock.journal.format.layout import FIRST_BATCH_AT
from penstock.journal.options import FSYNC, OS, JournalOptions
from penstock.store.node.options import StoreOptions
from penstock.store.shared.message_store import MessageStoreOptions
from tests.disk.sim_files import Survival

HUGE = 1 << 40

# Step → how often, relative to the others, when a seed has not left it out.
WEIGHTS: dict[str, float] = {
    "publish": 16,
    "publish_entries": 6,
    "fan_out": 5,
    "transaction": 5,
    "fetch": 12,
    "fetch_at": 4,
    "fetch_without_ack": 4,
    "ack": 10,
    "consume": 4,
    "requeue": 5,
    "drop": 2,
    "drop_expired": 2,
    "fetch_expired": 1,
    "purge": 1,
    "browse": 2,
    "look": 2,
    "declare": 2,
    "delete": 1,
    "note": 3,
    "ask": 3,
    "ram_seconds": 2,
    "ram_bytes": 1,
    "lazy": 1,
    "resume": 2,
    "time_out": 3,
    "end_turn": 12,
    "work": 8,
    "pass_moment": 5,
    "pass_while": 2,
    "checkpoint": 5,
    "roll": 3,
    "compact": 4,
    "answer_sync": 10,
    "run_callbacks": 6,
    "peek": 5,
    "clean_restart": 1,
    "kill": 1,
    "lose_power": 1,
    "plan_crash": 2,
    "plan_fault": 1.5,
}
# Without these nothing happens.
ALWAYS = ("publish", "end_turn", "answer_sync", "run_callbacks", "peek")
# Ways to begin a new life; a seed has at least one of them.
RESTARTS = ("clean_restart", "kill", "lose_power", "plan_crash")


def store_options(rng: random.Random) -> StoreOptions:
    choice = rng.choice
    batch_bytes_max = choice((100, 600, 1 << 20))
    room = choice((0, 1000, 5000, HUGE))
    return StoreOptions(
        JournalOptions(
            segment_bytes=FIRST_BATCH_AT + batch_bytes_max + room,
            batch_bytes_max=batch_bytes_max,
            cache_bytes=choice((0, 600, 1 << 20)),
            # Promises less: such a seed has no power cuts, only kills.
            confirm_sync=OS if rng.random() < 0.05 else FSYNC,
        ),
        MessageStoreOptions(
            file_bytes=choice((200, 400, 4000)),
            own_file_bytes=choice((120, HUGE)),
            buffer_bytes=choice((1, 300, HUGE)),
            slice_bytes=choice((40, HUGE)),
        ),
        index_slots=choice((2, 2, 4, 8)),
        embed_below=choice((0, 48, 48, 64)),
        checkpoint_bytes=choice((1, 800, 5000, HUGE)),
        checkpoint_s=choice((0.5, 5.0, 1e9)),
        retention_bytes=choice((0, 0, 9000, HUGE)),
        retention_s=choice((0.0, 10.0, 1e9)),
        reserve_bytes=choice((0, 20_000)),
        handles_max=choice((1, 2, 4, 100)),
        slice_s=choice((0.0, 0.002)),
    )


class Profile:
    """The numbers of one seed."""

    def __init__(self, rng: random.Random, faults: bool = True) -> None:
        choice = rng.choice
        self.steps = rng.randrange(30, 110)
        self.store = store_options(rng)
        self.paging = PagingOptions(
            cap=choice((1, 2, 5)),
            slack=choice((0, 0, 4, 40)),
            bytes_max=choice((40, 200, HUGE)),
            io_batch=choice((1, 1, 3)),
            slice_count=choice((1, 3, 50)),
            read_ahead_count=choice((1, 3, 20)),
            read_ahead_bytes=choice((1, 60, HUGE)),
            at_once=(1, 2, 512)[self.steps % 3],
        )
        # Buffers of the queue index and of the queue store, which are constants elsewhere.
        self.index_buffer_bytes = choice((1, 100, HUGE))
        self.store_buffer_bytes = choice((1, 150, HUGE))
        # How often a sync is answered before `submit` returns, and whether callbacks wait for a step of their own.
        self.sync_at_once = choice((0.0, 0.2, 1.0))
        self.callbacks_at_once = rng.random() < 0.6
        self.survival = choice((Survival.ANYTHING, Survival.ANYTHING, Survival.NOTHING, Survival.EVERYTHING))
        self.persistent_share = choice((0.3, 0.8, 1.0))
        self.large_share = choice((0.0, 0.2, 0.6, 0.9))
        self.run_max = choice((1, 3, 8))
        self.second_vhost = rng.random() < 0.3
        self.capacity_bytes = choice((40_000, 80_000)) if faults and rng.random() < 0.05 else None
        self.weights = self._weights(rng, faults)
        # Whether small batches are synced on the spot, as a server with a quick disk does it.
        self.quick_syncs = rng.random() < 0.3
        way = rng.random()
        if way < 0.15:
            self._move_often()
        elif way < 0.25:
            self._compact_often()
        elif way < 0.35:
            self._give_back_often(faults)

    def _move_often(self) -> None:
        """A long queue and short history: bodies leave the journal all the time."""
        self.store.retention_bytes = 0
        self.store.index_slots = 2
        self.store.embed_below = 0
        self.store.journal.segment_bytes = FIRST_BATCH_AT + self.store.journal.batch_bytes_max
        self.paging.io_batch = self.paging.cap = 1
        self.paging.slack = 0
        self.persistent_share = 1.0
        self.weights.update({"checkpoint": 14.0, "work": 24.0, "lazy": 4.0, "peek": 14.0, "publish": 30.0})

    def _compact_often(self) -> None:
        """Large bodies that come and go."""
        self.store.embed_below = 48
        self.store.message_store.file_bytes = 400
        self.store.message_store.own_file_bytes = HUGE
        self.large_share = 0.9
        self.persistent_share = 1.0
        self.weights.update({"compact": 20.0, "fetch": 20.0, "ack": 20.0, "end_turn": 24.0, "peek": 14.0})

    def _give_back_often(self, faults: bool) -> None:
        """Consumers that give back much of what they got, to a queue that is on the disk for the most part."""
        self.steps *= 2
        self.store.handles_max = 1
        self.paging.io_batch = self.paging.cap = self.paging.read_ahead_count = 1
        self.paging.slack = 4
        self.index_buffer_bytes = self.store_buffer_bytes = 1
        self.persistent_share = 0.3
        for name in (*RESTARTS, "delete", "purge", "ack", "consume", "lazy", "ram_seconds"):
            if name in self.weights:
                self.weights[name] *= 0.2
        self.weights.update({"publish": 60.0, "fetch": 60.0, "requeue": 60.0, "resume": 8.0, "ram_bytes": 10.0})
        if faults:
            self.weights["plan_fault"] = 12.0

    def _weights(self, rng: random.Random, faults: bool) -> dict[str, float]:
        weights: dict[str, float] = {}
        for name, weight in WEIGHTS.items():
            if name in ALWAYS or rng.random() < 0.7:
                weights[name] = weight * rng.choice((0.3, 1.0, 1.0, 3.0))
        if not any(name in weights for name in RESTARTS):
            weights["lose_power"] = 2.0
        if not faults:
            weights.pop("plan_fault", None)
        elif rng.random() < 0.2:
            weights["plan_exception"] = 4.0
        return weights
