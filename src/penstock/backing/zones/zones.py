"""q1, q2, delta, q3, q4: where the ready messages of a variable queue stand, in order.

    head  q4   alphas: body and position in RAM          published before anything was paged out, or read back
          q3   betas: position in RAM, body on disk
          delta  a range of seq_ids: both on disk
          q2   betas behind the delta
    tail  q1   alphas that were published while q3 was not empty

Messages stand in runs (`MsgStatus`). They enter at the tail, leave at the head, come back in between (requeue), and
move towards the disk when `paging` says so: q1 front and q4 rear become betas, q3 rear and q2 front become deltas. They
come back into RAM only when they are wanted.

Besides these there are strays: messages that came back (requeue) while the disk could not be used for putting them
where they belong. They wait as they are, in RAM mostly, and are let in when they are next, or when the disk works again
(`put_back`). They are ready, but not counted here.

Invariants, true after every call, an OSError included
  1. seq_ids increase strictly along q4, q3, delta, q2, q1.
  2. q1 not empty => q3 not empty; q2 not empty => delta not empty; delta not empty => q3 not empty.
  3. q1 and q4 hold runs with bodies in RAM, q2 and q3 runs without.
  4. ready_count and ready_bytes are those of all five; ram_count and ram_bytes those of q1 and
     q4, where large properties count too.
  5. delta_start + delta_count <= delta_end, while delta_count > 0. The range may have holes: what is pending or gone,
     or a stray.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.backing.variable.homes import Homes
from penstock.backing.variable.pending_acks import PendingAcks
from penstock.backing.zones.delta_reader import DeltaPart, first_stretch, read_delta, read_some
from penstock.backing.zones.msg_status import MsgStatus, readable_parts
from penstock.disk.files import is_temporary
from penstock.message import Entry
from penstock.store.queue import places
from penstock.store.queue.live_map import LiveMap

# Is told of messages that are damaged on disk: they are not ready any more.
Lost = Callable[[MsgStatus], None]
# Is told of messages that cannot be read now, and why: they are not ready until they are put back.
Unreadable = Callable[[MsgStatus, OSError], None]

# Numbers of a delta that are read at once where holes are many: what stands between two of them becomes a run.
SCATTERED_READ: Final = 128
# After so many messages of a run that could not be read, one by one, the rest is not tried: each may take seconds.
UNREADABLE_TRIES: Final = 3


@final
class Zones:
    def __init__(
        self,
        homes: Homes,
        live: LiveMap,
        pending: PendingAcks,
        lost: Lost,
        unreadable: Unreadable,
        read_ahead_count: int,
        read_ahead_bytes: int,
    ) -> None:
        self.q1: deque[MsgStatus] = deque()
        self.q2: deque[MsgStatus] = deque()
        self.q3: deque[MsgStatus] = deque()
        self.q4: deque[MsgStatus] = deque()
        self.delta_start = 0
        self.delta_end = 0
        self.delta_count = 0
        self.ready_count = 0
        self.ready_bytes = 0
        self.ram_count = 0
        self.ram_bytes = 0
        # Slots were damaged: what they stood for, and its size, is not known. Totals are too high until everything is
        # counted again, which is possible once there is no delta.
        self.recount_due = False
        # Below it every message was handed out before.
        self.next_deliver_seq_id = 0
        # How often a delivery failed, of messages that came back; 0 for others that were handed out, or published as if
        # they were, and may stand behind it.
        self.delivery_counts: dict[int, int] = {}
        # Transient messages below it belong to an earlier life of the queue, and are dropped where they are met.
        self.transient_threshold = 0
        # Seq_ids per index segment.
        self.slots = homes.slots
        self.homes = homes
        # What came back and found no place.
        self.strays = PendingAcks(homes)
        self._live = live
        # What was handed out may lie within the delta, and is not part of it.
        self._pending = pending
        self.lost = lost
        self.unreadable = unreadable
        self._read_ahead_count = read_ahead_count
        self._read_ahead_bytes = read_ahead_bytes

    # --- the tail -------------------------------------------------------------------------------------

    def tail(self) -> deque[MsgStatus]:
        return self.q1 if self.q3 else self.q4

    def count_published(self, count: int, size: int, heavy: int = 0) -> None:
        """Messages were put at the tail, in RAM, with so many bytes of large properties."""
        self.ready_count += count
        self.ready_bytes += size
        self.ram_count += count
        self.ram_bytes += size + heavy

    # --- the head -------------------------------------------------------------------------------------

    def head(self) -> MsgStatus | None:
        """Return the run at the head, wherever its bodies are."""
        if self.q4:
            return self.q4[0]
        return self.q3[0] if self.q3 else None

    def head_in_ram(self) -> MsgStatus | None:
        """The run at the head with its bodies; reads some back if they are on disk. None when nothing is ready."""
        while not self.q4:
            if not self.q3:
                return None
            self._read_back()
        return self.q4[0]

    def _read_back(self) -> None:
        """Bring bodies of the head run of q3 into RAM: from q3's front to q4, which is empty."""
        head = self.q3[0]
        count = head.count_within(self._read_ahead_count, self._read_ahead_bytes)
        # Nothing leaves q3 before it was read: an error that is not about the bytes must not cost messages.
        if count < head.count:
            front = head.part_for(head.seq_id, count)
            size = front.size_bytes
            parts = self.with_bodies(front)
            head.drop_front(count, size)
        else:
            self._prepare_next()
            parts = self.with_bodies(head)
            self.q3.popleft()
        for part in parts:
            self.q4.append(part)
            self.ram_count += part.count
            self.ram_bytes += part.ram_bytes()
        self._after_q3()

    def with_bodies(self, status: MsgStatus) -> list[MsgStatus]:
        """Return the run as alphas; what is damaged, or cannot be read now, is left out and reported."""
        try:
            found = self.homes.read(status)
            if len(found) == status.count and None not in found:
                status.load([entry for entry in found if entry is not None])
                return [status]
        except OSError as failed:
            if is_temporary(failed):
                raise
        parts, damaged, unread, error = self.read_parts(status)
        for part in damaged:
            self.ready_count -= part.count
            self.ready_bytes -= part.size_bytes
            self.lost(part)
        for part in unread:
            assert error is not None
            self.ready_count -= part.count
            self.ready_bytes -= part.size_bytes
            self.unreadable(part, error)
        return parts

    def read_parts(self, status: MsgStatus) -> tuple[list[MsgStatus], list[MsgStatus], list[MsgStatus], OSError | None]:
        """Return a run, read: as alphas, what is damaged, and what cannot be read now, with the error that says so.

        Nothing is changed. An error that comes out is not about these bytes: nothing can be read at present.
        """
        error: OSError | None = None
        try:
            found = self.homes.read(status)
            if None in found or len(found) < status.count:
                # Once more: what is written off is never read again.
                found = self.homes.read(status)
            unread = [False] * status.count
        except OSError as failed:
            if is_temporary(failed):
                raise
            error = failed
            found, unread = self._read_singly(status)
        good: list[MsgStatus] = []
        bad: list[MsgStatus] = []
        later: list[MsgStatus] = []
        for part, entries in readable_parts(status, found):
            if entries is not None:
                part.load(entries)
                good.append(part)
                continue
            at = part.seq_id
            while at <= part.last_seq_id():
                is_unread = unread[at - status.seq_id]
                stop = at + 1
                while stop <= part.last_seq_id() and unread[stop - status.seq_id] == is_unread:
                    stop += 1
                (later if is_unread else bad).append(part.part_for(at, stop - at))
                at = stop
        return good, bad, later, error

    def _read_singly(self, status: MsgStatus) -> tuple[list[Entry | None], list[bool]]:
        """Read bodies of a run one by one; None for what is damaged or cannot be read, and True for the latter."""
        found: list[Entry | None] = [None] * status.count
        unread = [True] * status.count
        failures = 0
        for index in range(status.count):
            try:
                found[index] = self.homes.read_one(status, index)
                unread[index] = False
            except OSError as error:
                if is_temporary(error):
                    raise
                failures += 1
                if failures == UNREADABLE_TRIES:
                    break
        return found, unread

    def take(self, count: int) -> MsgStatus:
        """Remove messages from the front of the head run; `head` or `head_in_ram` was asked before."""
        if self.q4:
            head = self.q4[0]
            if count < head.count:
                head = head.split_front(count)
            else:
                self.q4.popleft()
            self.ram_count -= head.count
            self.ram_bytes -= head.ram_bytes()
        else:
            head = self.q3[0]
            if count < head.count:
                head = head.split_front(count)
            else:
                self._prepare_next()
                self.q3.popleft()
                self._after_q3()
        self.ready_count -= head.count
        self.ready_bytes -= head.size_bytes
        return head

    def _prepare_next(self) -> None:
        """The head run is about to leave q3. If it is the last, what follows is read first: an error spoils nothing."""
        if len(self.q3) == 1 and self.delta_count:
            self.deltas_to_betas(1)

    def _after_q3(self) -> None:
        """q3 may have become empty: the delta comes into it, or q1 becomes q4."""
        if self.q3:
            return
        if self.delta_count:
            self.deltas_to_betas()
        if not self.q3 and self.q1:
            self.q4.extend(self.q1)
            self.q1.clear()

    # --- towards the disk -------------------------------------------------------------------------------

    def push_alphas_to_betas(self, from_q1: int, from_q4: int) -> int:
        """Let go of bodies: of q1 from its front, of q4 from its rear. Returns how many messages became betas.

        Messages that the journal has not written yet stay in RAM, and so does what stands before them in q1.
        """
        pushed = 0
        q1 = self.q1
        while pushed < from_q1 and q1:
            status = q1[0]
            if not status.is_written():
                break
            if status.count > from_q1 - pushed:
                status = status.split_front(from_q1 - pushed)
                q1.appendleft(status)
            parts = self._forgotten(status)
            q1.popleft()
            pushed += status.count
            target = self.q2 if self.delta_count else self.q3
            target.extend(parts)
        return pushed + self._push_from_q4(from_q4)

    def _push_from_q4(self, quota: int) -> int:
        pushed = 0
        q4 = self.q4
        if not q4 or not q4[0].is_written():
            # Those behind it are younger, and there can be very many of them in one batch.
            return 0
        fresh: list[MsgStatus] = []
        while q4 and not self.q3 and pushed < quota and not q4[-1].is_written():
            # Just published. Once q3 begins before them they belong to q1.
            fresh.append(q4.pop())
        try:
            while pushed < quota and q4 and q4[-1].is_written():
                status = q4[-1]
                if status.count > quota - pushed:
                    status = status.split_rear(quota - pushed)
                    q4.append(status)
                parts = self._forgotten(status)
                q4.pop()
                pushed += status.count
                self.q3.extendleft(reversed(parts))
        finally:
            if fresh:
                (self.q1 if self.q3 else q4).extend(reversed(fresh))
        return pushed

    def forget_read_back(self) -> None:
        """If all of q4 was read from the disk, it becomes betas again. Nothing is written."""
        q4 = self.q4
        for status in q4:
            if not status.is_read_back:
                return
        while q4:
            status = q4.pop()
            self.ram_count -= status.count
            self.ram_bytes -= status.ram_bytes()
            status.forget_bodies()
            self.q3.appendleft(status)

    def _forgotten(self, status: MsgStatus) -> list[MsgStatus]:
        """Alphas that leave RAM, as betas; they are written first if they have to be."""
        parts = [status] if status.can_forget_bodies() else self.homes.write_out(status)
        self.ram_count -= status.count
        self.ram_bytes -= status.ram_bytes()
        for part in parts:
            part.forget_bodies()
        return parts

    def push_betas_to_deltas(self, quota: int, messages_max: int) -> int:
        """Let go of positions: of q3 from its rear, one segment stays; then of q2 from its front.

        The quota counts runs; it also ends when that many messages went, after the run in which they did. Returns how
        many runs went.
        """
        pushed = messages = 0
        q3 = self.q3
        if q3:
            keep_below = (q3[0].seq_id // self.slots + 1) * self.slots
            going: list[MsgStatus] = []
            for status in reversed(q3):
                if len(going) >= quota or messages >= messages_max or status.seq_id < keep_below:
                    break
                going.append(status)
                messages += status.count
            # In the order of seq_ids: neighbours are written together.
            self.homes.write_all_slots(going[::-1])
            for status in going:
                self.to_delta(status)
                q3.pop()
            pushed = len(going)
        # What stands behind a delta goes into it; without one, q2 is empty.
        q2 = self.q2
        going = []
        for status in q2:
            if pushed + len(going) >= quota or messages >= messages_max:
                break
            going.append(status)
            messages += status.count
        self.homes.write_all_slots(going)
        for status in going:
            self.to_delta(status)
            q2.popleft()
        return pushed + len(going)

    def to_delta(self, status: MsgStatus) -> int:
        """A beta becomes part of the delta; returns how many messages."""
        self.homes.write_slots(status)
        if self.delta_count == 0:
            self.delta_start, self.delta_end = status.seq_id, status.last_seq_id() + 1
        else:
            self.delta_start = min(self.delta_start, status.seq_id)
            self.delta_end = max(self.delta_end, status.last_seq_id() + 1)
        self.delta_count += status.count
        return status.count

    # --- back from the disk -----------------------------------------------------------------------------

    def deltas_to_betas(self, runs: int = 0) -> None:
        """Fill q3 from the delta until it has more than so many runs; when the delta is used up, q2 follows."""
        while self.delta_count and len(self.q3) <= runs:
            stop = self.delta_stop(self.delta_start)
            part = self.delta_part(self.delta_start, stop)
            for seq_id in part.outdated:
                self._live.remove(seq_id, 1)
            for status in part.betas:
                self.delta_count -= status.count
                self.q3.append(status)
            self.delta_start = stop
            for seq_id in part.missing:
                # Whether it was persistent is not known; see `recount_due`.
                self.lost(MsgStatus(seq_id, 1, None, None, 0, 0, places.QUEUE_STORE))
            if part.missing or stop >= self.delta_end:
                self._count_missing(stop)
        if not self.delta_count:
            self.q3.extend(self.q2)
            self.q2.clear()

    def delta_stop(self, start: int) -> int:
        """Return how far one step reads: to the end of the segment, a bounded number, the end of the delta.

        Neighbours become one run. Where there are many holes one step reads less, so that it makes no more runs.
        """
        slots = self.slots
        stop = min((start // slots + 1) * slots, start + self._read_ahead_count, self.delta_end)
        if stop - start > SCATTERED_READ and (
            self._pending.runs_near(start, stop) + self._live.edges_near(start, stop) > SCATTERED_READ
        ):
            return start + SCATTERED_READ
        return stop

    def delta_stretch(self, start: int, stop: int) -> tuple[int, int]:
        """The first numbers of a part of the delta without a hole between them; (stop, stop) when there are none."""
        return first_stretch(self._live, self._pending, self.strays, start, stop)

    def delta_some(self, wanted: Sequence[int]) -> DeltaPart:
        """What the delta has of these messages; they are sorted."""
        return read_some(
            self.homes.index,
            self._live,
            self._pending,
            wanted,
            self.transient_threshold,
            self.next_deliver_seq_id,
            self.strays,
            self.delivery_counts,
        )

    def delta_part(self, start: int, stop: int) -> DeltaPart:
        """What a part of the delta consists of."""
        return read_delta(
            self.homes.index,
            self._live,
            self._pending,
            start,
            stop,
            self.transient_threshold,
            self.next_deliver_seq_id,
            self.strays,
            self.delivery_counts,
        )

    def _count_missing(self, start: int) -> None:
        """Slots may be damaged: the delta has what is live from `start` on, not pending and no stray, and no more."""
        there = 0
        if start < self.delta_end:
            there = sum([count for _, count in self._live.live_runs(start, self.delta_end)])
            there -= self._pending.count_between(start, self.delta_end)
            there -= self.strays.count_between(start, self.delta_end)
        if self.delta_count > there:
            self.ready_count -= self.delta_count - there
            self.delta_count = there
            self.recount_due = True

    def lose_slots(self, seq_ids: list[int]) -> None:
        """Messages of the delta cannot be found any more."""
        for seq_id in seq_ids:
            self.lost(MsgStatus(seq_id, 1, None, None, 0, 0, places.QUEUE_STORE))
        self._count_missing(self.delta_start)

    def closed_up(self) -> None:
        """Messages were taken out of the middle: what stands behind an empty zone takes its place."""
        if not self.delta_count:
            self.q3.extend(self.q2)
            self.q2.clear()
        self._after_q3()

    # --- all of it --------------------------------------------------------------------------------------

    def refill(self, betas: list[MsgStatus], count: int, size: int) -> None:
        """Fill empty zones after a start: `betas` in order, and what only the index knows, `count` in all."""
        self.ready_count = count
        self.ready_bytes = size
        self.delta_count = max(0, count - sum([status.count for status in betas]))
        uncovered = self._uncovered(betas)
        if uncovered:
            self.delta_start, self.delta_end = uncovered[0][0], uncovered[-1][0] + uncovered[-1][1]
        there = sum([length for _, length in uncovered])
        if self.delta_count > there:
            # More was counted than there is: slots had been damaged.
            self.ready_count -= self.delta_count - there
            self.delta_count = there
            self.recount_due = True
        if not self.delta_count:
            self.q3.extend(betas)
            return
        for status in betas:
            if status.seq_id < self.delta_start:
                self.q3.append(status)
            elif status.seq_id >= self.delta_end:
                self.q2.append(status)
            else:
                self.to_delta(status)
        if not self.q3:
            self.deltas_to_betas()

    def _uncovered(self, betas: list[MsgStatus]) -> list[tuple[int, int]]:
        """(seq_id, count) of live messages that no beta stands for."""
        uncovered: list[tuple[int, int]] = []
        at = self._live.low
        for status in betas:
            uncovered.extend(self._live.live_runs(at, status.seq_id))
            at = status.last_seq_id() + 1
        uncovered.extend(self._live.live_runs(at, self.transient_threshold))
        return uncovered

    def clear(self) -> None:
        """Forget everything that is ready."""
        for zone in (self.q1, self.q2, self.q3, self.q4):
            zone.clear()
        self.delta_start = self.delta_end = self.delta_count = 0
        self.ready_count = self.ready_bytes = self.ram_count = self.ram_bytes = 0

    def positions(self) -> int:
        """Return runs in q2 and q3."""
        return len(self.q2) + len(self.q3)
