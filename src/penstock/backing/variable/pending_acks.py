"""Messages that were handed out and not settled yet, in runs, as they were fetched.

Settling a run that was fetched together costs the same for one message and for hundreds; settling a part of it cuts the
run. Messages in the middle of a run are found through buckets of neighbouring seq_ids. A second object of this class
has the strays (`zones.strays`): messages that came back and found no place among the ready ones.

Invariants
  1. Runs do not overlap, and none is longer than a bucket.
  2. `_starts` has a bit for the first seq_id of each run, in the int of its bucket; `_in_ram` has those of runs whose
     bodies are in RAM.
  3. `count` and `size_bytes` are those of all runs, `_ram_count` and `ram_bytes` those of runs in RAM, where
     large properties count too.
  4. A run without bodies in RAM has them on disk, written.

After a crash persistent ones are ready again, since no row says that they were settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, final

from penstock.backing.variable.homes import Homes
from penstock.backing.zones.msg_status import MsgStatus, Settled, shared_runs
from penstock.message import Entry, large_properties_bytes
from penstock.store.queue import places

# Seq_ids per bucket: as many as a consumer is given at once.
BUCKET: Final = 256
# Runs that an eviction looks at besides those that it is to let go.
EVICT_LOOK: Final = 64


@final
class PendingAcks:
    def __init__(self, homes: Homes) -> None:
        self.count = 0
        self.size_bytes = 0
        self.ram_bytes = 0
        self._ram_count = 0
        self._homes = homes
        self._runs: dict[int, MsgStatus] = {}
        self._starts: dict[int, int] = {}
        # In the order in which they were handed out: eviction looks at the rear only, however many there are.
        self._in_ram: dict[int, None] = {}

    def __contains__(self, seq_id: object) -> bool:
        return isinstance(seq_id, int) and self._find(seq_id) is not None

    def ram_count(self) -> int:
        return self._ram_count

    def positions(self) -> int:
        """Return runs, wherever their bodies are."""
        return len(self._runs)

    # --- runs -----------------------------------------------------------------------------------------

    def _find(self, seq_id: int) -> MsgStatus | None:
        """Return the run that has the message."""
        run = self._runs.get(seq_id)
        if run is not None:
            return run
        bucket = seq_id // BUCKET
        # The nearest one before it, or none: they do not overlap.
        before = self._starts.get(bucket, 0)
        if before:
            before &= (1 << seq_id % BUCKET) - 1
        if not before:
            bucket -= 1
            before = self._starts.get(bucket, 0)
            if not before:
                return None
        run = self._runs[bucket * BUCKET + before.bit_length() - 1]
        return run if seq_id < run.seq_id + run.count else None

    def _add(self, run: MsgStatus) -> None:
        first = run.seq_id
        self._runs[first] = run
        bucket = first // BUCKET
        self._starts[bucket] = self._starts.get(bucket, 0) | 1 << first % BUCKET
        self.count += run.count
        self.size_bytes += run.size_bytes
        if run.msg is not None:
            self._in_ram[first] = None
            self._ram_count += run.count
            self.ram_bytes += run.ram_bytes()

    def _drop(self, run: MsgStatus) -> None:
        first = run.seq_id
        del self._runs[first]
        bucket = first // BUCKET
        starts = self._starts[bucket] ^ 1 << first % BUCKET
        if starts:
            self._starts[bucket] = starts
        else:
            del self._starts[bucket]
        self.count -= run.count
        self.size_bytes -= run.size_bytes
        if run.msg is not None:
            self._in_ram.pop(first, None)
            self._ram_count -= run.count
            self.ram_bytes -= run.ram_bytes()

    def _take(self, run: MsgStatus, seq_id: int, count: int) -> MsgStatus:
        """Cut messages out of a run; what is left of it stays."""
        self._drop(run)
        behind = run.last_seq_id() + 1 - seq_id - count
        if behind:
            self._add(run.split_rear(behind))
        if seq_id > run.seq_id:
            taken = run.split_rear(count)
            self._add(run)
            return taken
        return run

    def record(self, status: MsgStatus, entries: list[Entry] | None) -> None:
        """Note a run that was handed out; with its bodies, or without when they were not read."""
        # A copy: the list that was handed out belongs to the caller.
        if entries is None:
            status.msg = None
            status.start = 0
            status.is_heavy = False
        elif status.msg is None:
            status.load(entries[:])
        else:
            status.msg = entries[:]
            status.start = 0
        while status.count > BUCKET:
            self._add(status.split_front(BUCKET))
        self._add(status)

    def hold(self, run: MsgStatus) -> None:
        """A run as it is; one that was taken out of such a place before, or a part of one."""
        self._add(run)

    # --- settling -------------------------------------------------------------------------------------

    def remove(self, seq_ids: Sequence[int]) -> list[Settled]:
        """Forget messages; unknown and repeated ids are skipped. References to the shared store are given back."""
        settled: list[Settled] = []
        for start, end in spans(seq_ids):
            while start < end:
                run = self._find(start)
                if run is None:
                    start += 1
                    continue
                count = min(end, run.seq_id + run.count) - start
                size = self._forget(run, start, count)
                if settled:
                    first, length, total, persistent = settled[-1]
                    if first + length == start and persistent == run.is_persistent:
                        settled[-1] = (first, length + count, total + size, persistent)
                        start += count
                        continue
                settled.append((start, count, size, run.is_persistent))
                start += count
        return settled

    def _forget(self, run: MsgStatus, seq_id: int, count: int) -> int:
        """Messages of a run are settled; return their payload bytes."""
        if seq_id != run.seq_id:
            run = self._take(run, seq_id, count)
        else:
            self._drop(run)
        if run.msg_in_store == places.MSG_STORE:
            self._homes.release(run, 0, count)
        if count == run.count:
            return run.size_bytes
        size = run.size_of_first(count)
        run.drop_front(count, size)
        self._add(run)
        return size

    def give_up(self) -> PendingAcks:
        """Forget all of them; they are in a new one of these, with their references to the shared store."""
        twin = PendingAcks(self._homes)
        twin.count, twin.size_bytes = self.count, self.size_bytes
        twin.ram_bytes, twin._ram_count = self.ram_bytes, self._ram_count
        twin._runs, twin._starts, twin._in_ram = self._runs, self._starts, self._in_ram
        self.count = self.size_bytes = self.ram_bytes = self._ram_count = 0
        self._runs, self._starts, self._in_ram = {}, {}, {}
        return twin

    def shared_runs(self) -> list[MsgStatus]:
        """Return those whose bodies are in a shared store, in no order; not to be changed."""
        return shared_runs(list(self._runs.values()))

    def free(self, count_max: int) -> int:
        """Free up to `count_max` runs after `give_up`; return how many there were."""
        count = min(count_max, len(self._runs))
        for _ in range(count):
            self._runs.popitem()
        return count

    def take_back(self, seq_ids: Sequence[int]) -> list[MsgStatus]:
        """Take messages out as runs, in order of seq_ids, to be ready again; unknown and repeated ids are skipped."""
        runs: list[MsgStatus] = []
        for start, end in spans(sorted(set(seq_ids))):
            while start < end:
                run = self._find(start)
                if run is None:
                    start += 1
                    continue
                count = min(end, run.seq_id + run.count) - start
                taken = self._take(run, start, count)
                taken.is_delivered = True
                runs.append(taken)
                start += count
        return runs

    def parts(self, seq_ids: Sequence[int]) -> list[MsgStatus]:
        """Copies of runs for some messages, in order of seq_ids; unknown ids are skipped, and nothing changes."""
        found: list[MsgStatus] = []
        for start, end in spans(seq_ids):
            while start < end:
                run = self._find(start)
                if run is None:
                    start += 1
                    continue
                count = min(end, run.seq_id + run.count) - start
                found.append(run.part_for(start, count))
                start += count
        return found

    # --- memory -------------------------------------------------------------------------------------

    def evict(self, quota: int) -> int:
        """Let go of bodies, the youngest first; return how many."""
        evicted = 0
        # Some more than wanted: the youngest may not be written yet.
        for first in sorted(islice(reversed(self._in_ram), quota + EVICT_LOOK), reverse=True):
            run = self._runs[first]
            if evicted >= quota:
                break
            if not run.is_written():
                continue
            count = min(run.count, quota - evicted)
            run = self._take(run, run.last_seq_id() + 1 - count, count)
            try:
                parts = [run] if run.can_forget_bodies() else self._homes.write_out(run)
            except OSError:
                self._add(run)
                raise
            for part in parts:
                part.forget_bodies()
                self._add(part)
            evicted += count
        return evicted

    # --- looking ------------------------------------------------------------------------------------

    def runs(self) -> list[MsgStatus]:
        """Return all runs, in order; not to be changed."""
        return [self._runs[first] for first in sorted(self._runs)]

    def seq_ids(self) -> list[int]:
        return [seq_id for run in self.runs() for seq_id in range(run.seq_id, run.seq_id + run.count)]

    def first(self) -> MsgStatus:
        """Return the run with the lowest seq_id; there is one. Not to be changed."""
        bucket = min(self._starts)
        starts = self._starts[bucket]
        return self._runs[bucket * BUCKET + (starts & -starts).bit_length() - 1]

    def count_between(self, start: int, stop: int) -> int:
        """Return how many there are in a stretch. Looks at every run."""
        inside = [run for run in self._runs.values() if run.seq_id < stop and run.last_seq_id() >= start]
        return sum([min(stop, run.last_seq_id() + 1) - max(start, run.seq_id) for run in inside])

    def runs_near(self, start: int, stop: int) -> int:
        """Return how many runs begin in the buckets of a stretch. Costs little: it counts bits."""
        found = 0
        for bucket in range(start // BUCKET, (stop - 1) // BUCKET + 1):
            found += self._starts.get(bucket, 0).bit_count()
        return found

    def entry(self, seq_id: int) -> Entry | None:
        """One message, read if need be; None when it is not pending, or damaged."""
        run = self._find(seq_id)
        if run is None:
            return None
        if run.msg is not None:
            return run.msg[run.start + seq_id - run.seq_id]
        return self._homes.read_one(run, seq_id - run.seq_id)

    def persistent_runs(self) -> list[MsgStatus]:
        """Return runs of the persistent messages, in order; not to be changed."""
        return [run for run in self.runs() if run.is_persistent]

    def transient_runs(self) -> list[MsgStatus]:
        """Return those that no checkpoint keeps; not to be changed."""
        return [run for run in self._runs.values() if not run.is_persistent]

    def runs_between(self, start: int, stop: int) -> list[MsgStatus]:
        """Return copies of the runs that have messages in a stretch."""
        return [
            run.part_for(run.seq_id, run.count)
            for run in self.runs()
            if run.seq_id < stop and run.last_seq_id() >= start
        ]

    def replace(self, part: MsgStatus) -> None:
        """Messages that lie elsewhere now; they are those of one run."""
        run = self._find(part.seq_id)
        assert run is not None
        self._take(run, part.seq_id, part.count)
        self._add(part)

    def check_invariants(self) -> None:
        if not self._runs:
            assert not self._starts and not self._in_ram, "2: a bucket of what is gone"
            assert self.count == 0 and self._ram_count == 0, "3: pending messages"
            assert self.size_bytes == 0 and self.ram_bytes == 0, "3: pending bytes"
            return
        runs = self.runs()
        last = -1
        for run in runs:
            assert last < run.seq_id and run.count <= BUCKET, "1: runs overlap, or are too long"
            last = run.last_seq_id()
            assert self._starts[run.seq_id // BUCKET] >> run.seq_id % BUCKET & 1, "2: a run that is not in its bucket"
            assert (run.seq_id in self._in_ram) == (run.msg is not None), "2: runs in RAM"
            assert run.msg is not None or run.can_forget_bodies(), "4: a body that is nowhere"
        starts = list(self._starts.values())
        assert all(starts) and sum([bits.bit_count() for bits in starts]) == len(runs), "2: a bucket of what is gone"
        in_ram = [run for run in runs if run.msg is not None]
        assert sum([run.count for run in runs]) == self.count, "3: pending messages"
        assert sum([run.size_bytes for run in runs]) == self.size_bytes, "3: pending bytes"
        assert sum([run.count for run in in_ram]) == self._ram_count, "3: pending messages in RAM"
        entries = [entry for run in in_ram for entry in run.entries()]
        sizes = [len(entry[1]) - 1 for entry in entries]
        assert sum(sizes) + large_properties_bytes(entries) == self.ram_bytes, "3: pending bytes in RAM"


def spans(seq_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return neighbours that follow each other, as (first, behind the last), in the order given."""
    if isinstance(seq_ids, range) and seq_ids.step == 1:
        return [(seq_ids.start, seq_ids.stop)] if seq_ids else []
    found: list[tuple[int, int]] = []
    start = end = -1
    for seq_id in seq_ids:
        if seq_id == end:
            end += 1
            continue
        if end > start:
            found.append((start, end))
        start, end = seq_id, seq_id + 1
    if end > start:
        found.append((start, end))
    return found
