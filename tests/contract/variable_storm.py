"""Random work on one variable queue, with everything that goes on behind it, and a model that knows what may come back.

Unlike the model test of all backings this one moves bodies home, makes checkpoints, pages by hand, and loses power in
between, keeping any part of what was not synced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.backing.variable.paging import PagingOptions
from penstock.store.node.options import StoreOptions
from tests.contract.variable_house import VHOST, VariableHouse, plain_options
from tests.disk.sim_files import Survival

READY, PENDING, GONE = "ready", "pending", "gone"


@dataclass
class Known:
    payload: bytes
    persistent: bool
    state: str = READY
    # Whether the publish, and the end of the message, are known to be on disk.
    published: bool = False
    gone: bool = False


def storm_options(rng: random.Random) -> StoreOptions:
    options = plain_options(
        segment_bytes=rng.choice([400, 1500]),
        slots=rng.choice([3, 5, 8]),
        embed_below=rng.choice([0, 40]),
        retention_bytes=0,
        handles_max=rng.choice([2, 16]),
    )
    options.journal.batch_bytes_max = 100
    return options


def storm_paging(rng: random.Random) -> PagingOptions:
    cap = rng.choice([1, 4])
    return PagingOptions(
        cap=cap,
        slack=rng.choice([0, 10]),
        bytes_max=rng.choice([100, 10_000]),
        io_batch=rng.choice([1, 3]),
        slice_count=rng.choice([2, 50]),
        read_ahead_count=rng.choice([1, 4]),
        read_ahead_bytes=rng.choice([10, 1000]),
        at_once=1 if cap == 1 else 512,
    )


class Storm:
    """One run; everything follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.house = VariableHouse(
            storm_options(self.rng), storm_paging(self.rng), survival=self.rng.choice(list(Survival))
        )
        self.known: dict[int, Known] = {}
        self.published = 0
        # A look at everything reads every file. Sometimes nobody looks until the end.
        self.looks = seed % 7 not in (4, 5)
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (30, self.publish),
            (25, self.fetch),
            (12, self.ack),
            (8, self.requeue),
            (12, self.commit),
            (10, self.page),
            (6, self.checkpoint),
            (10, self.turns),
            (6, self.move_home),
            (2, self.purge),
            (3, self.restart),
            (3, self.crash),
            (2, self.kill),
        ]

    def run(self, count: int) -> None:
        weights = [weight for weight, _ in self.steps]
        for _ in range(count):
            self.rng.choices(self.steps, weights)[0][1]()
            self.compare()
        self.finish()

    # --- steps ------------------------------------------------------------------------------------

    def publish(self) -> None:
        rng = self.rng
        persistent = rng.random() < 0.7
        payloads = []
        for _ in range(rng.choice([1, 1, 2, 6])):
            self.published += 1
            payloads.append(b"%d " % self.published + b"x" * rng.choice([0, 1, 30, 60]))
        expiry_ms = rng.choice([-1, -1, 50])
        first = self.house.publish(*payloads, expiry_ms=expiry_ms, persistent=persistent, delivered=rng.random() < 0.1)
        for at, payload in enumerate(payloads):
            assert first + at not in self.known, "a seq_id was used twice"
            self.known[first + at] = Known(payload, persistent)

    def in_state(self, state: str) -> list[int]:
        return sorted([seq_id for seq_id, known in self.known.items() if known.state == state])

    def fetch(self) -> None:
        ack_required = self.rng.random() < 0.7
        run = self.house.queue.fetch(self.rng.choice([1, 3, 20]), self.rng.choice([1, 50, 1000]), ack_required)
        ready = self.in_state(READY)
        if run is None:
            assert not ready
            return
        for at, entry in enumerate(run.entries):
            seq_id = run.first_seq_id + at
            assert seq_id == ready[at]
            assert entry[1] == self.known[seq_id].payload + b"\xce"
            self.known[seq_id].state = PENDING if ack_required else GONE

    def some_pending(self) -> list[int]:
        pending = self.in_state(PENDING)
        return self.rng.sample(pending, self.rng.randint(0, len(pending)))

    def ack(self) -> None:
        chosen = self.some_pending()
        assert self.house.queue.ack(chosen) == len(chosen)
        for seq_id in chosen:
            self.known[seq_id].state = GONE

    def requeue(self) -> None:
        chosen = self.some_pending()
        assert self.house.queue.requeue(chosen) == len(chosen)
        for seq_id in chosen:
            self.known[seq_id].state = READY

    def durable(self) -> None:
        """All rows so far are synced."""
        for known in self.known.values():
            known.published = True
            known.gone = known.state == GONE

    def commit(self) -> None:
        self.house.commit()
        self.durable()

    def page(self) -> None:
        queue = self.house.queue
        choice = self.rng.randrange(4)
        if choice == 0:
            queue.paging.push_alphas(self.rng.randint(1, 10))
        elif choice == 1:
            queue.zones.push_betas_to_deltas(self.rng.randint(1, 10), self.rng.randint(1, 10))
        elif choice == 2:
            queue.pending.evict(self.rng.randint(1, 10))
        else:
            queue.set_queue_mode(self.rng.random() < 0.5)

    def checkpoint(self) -> None:
        self.house.checkpoint()
        self.durable()

    def turns(self) -> None:
        for _ in range(self.rng.randint(1, 10)):
            self.house.node.end_turn()
            self.house.run_callbacks()
            self.house.clock.advance(0.001)

    def move_home(self) -> None:
        """As retention asks for it: a segment that is not the newest."""
        needed = self.house.stored().journal_segment_needed()
        if needed < self.house.node.journal.segments.position()[0]:
            self.house.stored().move_home(needed, self.rng.choice([1, 3, 100]))

    def purge(self) -> None:
        ready = self.in_state(READY)
        queue = self.house.queue
        if queue.begin_purge():
            purged = 0
            while count := queue.purge_some(2):
                purged += count
        else:
            purged = queue.purge()
        assert purged == len(ready)
        for seq_id in ready:
            self.known[seq_id].state = GONE

    # --- lives ------------------------------------------------------------------------------------

    def restart(self) -> None:
        self.durable()
        for known in self.known.values():
            if not known.persistent:
                known.state = GONE
                known.gone = True
        self.house.restart()
        if self.looks:
            self.recovered()
            return
        self.known = {seq_id: known for seq_id, known in self.known.items() if known.state != GONE}
        for known in self.known.values():
            known.state = READY

    def crash(self) -> None:
        self.house.crash(self.rng.randrange(1 << 30))
        self.recovered()

    def kill(self) -> None:
        self.house.kill()
        self.recovered()

    def recovered(self) -> None:
        """What is there must be, or may be; and is there for good."""
        found = {seq_id: payload for seq_id, payload, pending in self.house.folded() if not pending}
        assert self.house.queue.lost_count == 0
        for seq_id, known in self.known.items():
            if known.persistent and known.published and known.state != GONE:
                assert seq_id in found, f"{seq_id} was safe, and is lost"
            if not known.persistent or known.gone:
                assert seq_id not in found, f"{seq_id} must not come back"
        for seq_id, payload in found.items():
            assert payload == self.known[seq_id].payload
        # Seq_ids of messages that never reached the disk may be given again.
        self.known = {seq_id: self.known[seq_id] for seq_id in found}
        for known in self.known.values():
            known.state = READY
        self.durable()

    # --- the model --------------------------------------------------------------------------------

    def compare(self) -> None:
        self.house.check()
        queue = self.house.queue
        if self.looks:
            held = [(seq_id, known) for seq_id, known in sorted(self.known.items()) if known.state != GONE]
            assert self.house.folded() == [(seq_id, known.payload, known.state == PENDING) for seq_id, known in held]
        ready = [known for known in self.known.values() if known.state == READY]
        assert len(queue) == len(ready)
        assert queue.ready_bytes() == sum(len(known.payload) for known in ready)
        persistent = [known for known in self.known.values() if known.state != GONE and known.persistent]
        assert self.house.status("messages_persistent") == len(persistent)
        assert queue.lost_count == 0

    def finish(self) -> None:
        """When everything is gone, nothing is left on disk."""
        house = self.house
        house.queue.set_queue_mode(False)
        assert [int(payload.split()[0]) for payload in house.drain()] == [
            int(self.known[seq_id].payload.split()[0]) for seq_id in self.in_state(READY)
        ]
        house.queue.ack(self.in_state(PENDING))
        house.commit()
        house.publish(b"last", persistent=True)
        house.drain()
        house.commit()
        for _ in range(3):
            house.checkpoint()
        while house.node.has_leftovers():
            house.node.end_turn()
        live = house.queue.live
        assert (live.low, live.masks()) == (house.queue.tail.next_seq_id, {})
        used = {house.queue.tail.next_seq_id // house.queue.live.slots}
        for kind in ("idx", "qs"):
            left = {int(path.rpartition("/")[2].partition(".")[0]) for path in house.paths(kind)}
            assert left <= used, f"{kind} files are left: {left}"
        for persistent in (True, False):
            assert house.node.message_store(VHOST, persistent).status()["bodies"] == 0
