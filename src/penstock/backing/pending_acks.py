"""Messages that were handed out and not settled yet.

What it owns: for each such message its entry, while the body is in RAM, and the status of the run it was part of, when
it is on disk. A transient message that was never paged is in `_ram` only; a persistent one in both, until its body is
evicted from RAM. The runs are those of the moment of the fetch: a message finds its place by its distance from the
first of its run.

Life of the data: `record` at a fetch; `remove` at an ack, `take_back` at a requeue; `evict` when RAM gets scarce. A
message in RAM costs two dict entries, an evicted one a single one.

Invariants
  1. A seq_id is in `_ram`, in `_places`, or in both; `count` counts each once.
  2. What is not in `_places` was never written to disk.
  3. `size_bytes` is the payload of all, `ram_bytes` that of `_ram`.

Crash: it is gone. Persistent ones are ready again after the next start, since nothing says that they were settled.
It does not write rows and does not know consumers.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import nlargest
from typing import final

from penstock.backing.homes import Homes
from penstock.backing.msg_status import MsgStatus
from penstock.message import Entry
from penstock.store import places

# (first seq_id, count, payload bytes, persistent): neighbours that were settled together.
Settled = tuple[int, int, int, bool]


@final
class PendingAcks:
    """The unsettled messages of one queue."""

    def __init__(self, homes: Homes) -> None:
        self.count = 0
        self.size_bytes = 0
        self.ram_bytes = 0
        self._homes = homes
        self._ram: dict[int, Entry] = {}
        self._places: dict[int, MsgStatus] = {}

    def __contains__(self, seq_id: object) -> bool:
        return seq_id in self._ram or seq_id in self._places

    def ram_count(self) -> int:
        return len(self._ram)

    def record(self, status: MsgStatus, entries: list[Entry] | None) -> None:
        """A run was handed out; with its bodies, or without when nobody read them."""
        seq_ids = range(status.seq_id, status.seq_id + status.count)
        self.count += status.count
        self.size_bytes += status.size_bytes
        if entries is not None:
            if status.count == 1:
                self._ram[status.seq_id] = entries[0]
            else:
                self._ram.update(zip(seq_ids, entries, strict=False))
            self.ram_bytes += status.size_bytes
        if status.msg_in_store != places.MEMORY:
            if entries is not None:
                if status.size_each < 0 and status.sizes is None:
                    status.sizes = array("i", [len(entry[1]) - 1 for entry in entries])
                status.msg = None
            if status.count == 1:
                self._places[status.seq_id] = status
            else:
                self._places.update(dict.fromkeys(seq_ids, status))

    # --- settling -------------------------------------------------------------------------------------

    def remove(self, seq_ids: Sequence[int]) -> list[Settled]:
        """Forget messages; unknown and repeated ids are skipped. References to the shared store are given back."""
        settled: list[Settled] = []
        pop_entry = self._ram.pop
        pop_place = self._places.pop
        first = next_id = size = from_ram = 0
        # The run of the message before; its neighbours are treated like it without a further look.
        of: MsgStatus | None = None
        persistent = large = False
        for seq_id in seq_ids:
            entry = pop_entry(seq_id, None)
            status = pop_place(seq_id, None)
            if entry is not None:
                size_here = len(entry[1]) - 1
                from_ram += size_here
            elif status is not None:
                size_here = status.size_of(seq_id - status.seq_id)
            else:
                continue
            if seq_id != next_id or status is not of or next_id == first:
                is_persistent = status is not None and status.is_persistent
                if seq_id != next_id or is_persistent != persistent or next_id == first:
                    if next_id > first:
                        settled.append((first, next_id - first, size, persistent))
                    first, size, persistent = seq_id, 0, is_persistent
                of = status
                large = status is not None and status.msg_in_store == places.MSG_STORE
            if large and status is not None:
                self._homes.release(status, seq_id - status.seq_id, 1)
            next_id = seq_id + 1
            size += size_here
        if next_id > first:
            settled.append((first, next_id - first, size, persistent))
        self.ram_bytes -= from_ram
        for run in settled:
            self.count -= run[1]
            self.size_bytes -= run[2]
        return settled

    def take_back(self, seq_ids: Sequence[int]) -> list[MsgStatus]:
        """Take messages out as runs, in order of seq_ids, to be ready again; unknown and repeated ids are skipped."""
        runs: list[MsgStatus] = []
        group: list[int] = []
        for seq_id in sorted(set(seq_ids)):
            if seq_id not in self:
                continue
            if group and not self._alike(group[-1], seq_id):
                runs.append(self._take_group(group))
                group = []
            group.append(seq_id)
        if group:
            runs.append(self._take_group(group))
        return runs

    def _alike(self, before: int, seq_id: int) -> bool:
        """Whether two messages can be in one run."""
        if seq_id != before + 1:
            return False
        status = self._places.get(before)
        if status is not self._places.get(seq_id) or (before in self._ram) != (seq_id in self._ram):
            return False
        if status is not None:
            return True
        one, other = self._ram[before], self._ram[seq_id]
        return expiry_of(one) == expiry_of(other) and self._is_large(one) == self._is_large(other)

    def _is_large(self, entry: Entry) -> bool:
        return self._homes.is_large(entry[0], len(entry[1]) - 1)

    def _take_group(self, group: list[int]) -> MsgStatus:
        run = self._run_of(group)
        for seq_id in group:
            if self._ram.pop(seq_id, None) is not None:
                self.ram_bytes -= run.size_of(seq_id - run.seq_id)
            self._places.pop(seq_id, None)
        self.count -= run.count
        self.size_bytes -= run.size_bytes
        return run

    def _run_of(self, group: list[int]) -> MsgStatus:
        """A status of its own for neighbours that are alike."""
        first = group[0]
        entries = [self._ram[seq_id] for seq_id in group] if first in self._ram else None
        status = self._places.get(first)
        if status is not None:
            run = status.part_for(first, len(group))
            run.msg = entries
        else:
            assert entries is not None
            size = sum([len(entry[1]) for entry in entries]) - len(entries)
            persist_to = places.MSG_STORE if self._is_large(entries[0]) else places.QUEUE_STORE
            run = MsgStatus(first, len(group), entries, entries[0][2], -1, size, persist_to)
        run.is_delivered = True
        return run

    # --- memory -------------------------------------------------------------------------------------

    def evict(self, quota: int) -> int:
        """Let go of bodies, the youngest first (VQ-15); return how many."""
        chosen = sorted(nlargest(quota, self._ram))
        evicted = 0
        group: list[int] = []
        for seq_id in chosen:
            if group and not self._alike(group[-1], seq_id):
                evicted += self._evict_group(group)
                group = []
            group.append(seq_id)
        if group:
            evicted += self._evict_group(group)
        return evicted

    def _evict_group(self, group: list[int]) -> int:
        status = self._places.get(group[0])
        if status is None:
            for part in self._homes.write_out(self._run_of(group)):
                part.forget_bodies()
                self._places.update(dict.fromkeys(range(part.seq_id, part.seq_id + part.count), part))
        elif not status.is_written():
            return 0
        for seq_id in group:
            self.ram_bytes -= len(self._ram.pop(seq_id)[1]) - 1
        return len(group)

    # --- looking ------------------------------------------------------------------------------------

    def seq_ids(self) -> list[int]:
        """All of them, in order."""
        return sorted(self._ram.keys() | self._places.keys())

    def entry(self, seq_id: int) -> Entry | None:
        """One message, read if need be; None when it is not pending, or damaged."""
        entry = self._ram.get(seq_id)
        if entry is not None:
            return entry
        status = self._places.get(seq_id)
        if status is None:
            return None
        return self._homes.read(status.part_for(seq_id, 1))[0]

    def status(self, seq_id: int) -> MsgStatus | None:
        """Where a message is on disk; None when it is in RAM only."""
        return self._places.get(seq_id)

    def persistent_runs(self) -> list[MsgStatus]:
        """Runs of the persistent messages, in order, without bodies; for a checkpoint."""
        runs: list[MsgStatus] = []
        first = count = 0
        of: MsgStatus | None = None
        for seq_id in sorted(self._places):
            status = self._places[seq_id]
            if not status.is_persistent:
                continue
            if status is of and seq_id == first + count:
                count += 1
                continue
            if of is not None:
                runs.append(of.part_for(first, count))
            first, count, of = seq_id, 1, status
        if of is not None:
            runs.append(of.part_for(first, count))
        return runs

    def transient_seq_ids(self) -> list[int]:
        """Those that no checkpoint keeps."""
        return [
            seq_id
            for seq_id in self._ram.keys() | self._places.keys()
            if seq_id not in self._places or not self._places[seq_id].is_persistent
        ]

    def runs_between(self, start: int, stop: int) -> list[MsgStatus]:
        """Where the messages of a stretch are that are on disk: each a run of its own, without its body."""
        return [
            self._places[seq_id].part_for(seq_id, 1)
            for seq_id in self.seq_ids()
            if start <= seq_id < stop and seq_id in self._places
        ]

    def replace(self, status: MsgStatus) -> None:
        """Messages that lie elsewhere now."""
        for seq_id in range(status.seq_id, status.seq_id + status.count):
            self._places[seq_id] = status

    def check_invariants(self) -> None:
        seq_ids = self.seq_ids()
        assert len(seq_ids) == self.count, "1: the number of pending messages"
        sizes = 0
        for seq_id in seq_ids:
            entry = self._ram.get(seq_id)
            status = self._places.get(seq_id)
            if entry is not None:
                sizes += len(entry[1]) - 1
                assert status is None or status.size_of(seq_id - status.seq_id) == len(entry[1]) - 1, "3: a size"
            else:
                assert status is not None and status.can_forget_bodies(), "1: a body that is nowhere"
                sizes += status.size_of(seq_id - status.seq_id)
        assert sizes == self.size_bytes, "3: pending bytes"
        assert sum([len(entry[1]) - 1 for entry in self._ram.values()]) == self.ram_bytes, "3: pending bytes in RAM"


def expiry_of(entry: Entry) -> int:
    return -1 if entry[2] is None else entry[2].expiry_ms
