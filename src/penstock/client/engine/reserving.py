"""Consumers of an engine, and what they have reserved.

A reserved message is fetched from its queue and not acked. What comes back goes to its own place; how often it was
handed out, and why it came back, is remembered here and ends with the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.client.engine import names, records
from penstock.client.engine.records import Handed
from penstock.client.engine.reservations import Holder, Leases, Reservation, Seen
from penstock.client.engine.running import Running
from penstock.client.errors import ClientError, Closed
from penstock.client.message import Message
from penstock.clock import Clock
from penstock.message import Entry, Run
from penstock.queues.queue import Queue

# Remembered deliveries of messages that may be gone, however few messages there are.
SEEN_MIN: Final = 64


class Reserving(Running):
    """Queues and consumers; `Engine` adds what goes in and what becomes of it."""

    def __init__(self, folder: str, clock: Clock | None = None) -> None:
        super().__init__(folder, clock)
        # Consumers by their numbers, and the queues of producers by theirs.
        self._holders: dict[int, Holder] = {}
        self._producers: dict[int, str] = {}
        self._member_number = 0
        self._leases = Leases()
        # Ids that are out, with the queue that they are ids of.
        self._ids_out: set[tuple[str, str]] = set()
        # Messages that came back to their places, by queue id and number.
        self._seen: dict[str, dict[int, Seen]] = {}
        # Consumers that were forgotten without a word. Filled by the garbage collector, at any moment, on any thread.
        self._forgotten: deque[int] = deque()

    # --- queues -----------------------------------------------------------------------------------------

    def _queue(self, name: str) -> Queue:
        """The queue; made when it is not there."""
        found = self._vhost.queues.get(names.fitted(name))
        if found is None:
            names.check_name(name)
            return self._vhost.declare_queue(names.fitted(name), True, False, None, names.arguments_of(name))
        if found.crashed:
            raise ClientError(f"{found.describe()} cannot be read; `penstock fsck {self.folder}` says more")
        return found

    # --- consumers --------------------------------------------------------------------------------------

    def attach(self, name: str, lease_s: float | None) -> int:
        """A consumer; its number."""
        with self._inside():
            self._queue(name)
            self._sync()
            self._member_number += 1
            self._holders[self._member_number] = Holder(self._member_number, name, lease_s)
            return self._member_number

    def detach(self, number: int) -> None:
        """A producer or consumer leaves; what it has reserved goes back."""
        with self._inside():
            self._detach(number)
        # Somebody may wait for what it would reserve.
        self._wake_all()

    def forget(self, number: int) -> None:
        """As `detach`, without the lock and some time later: for the garbage collector."""
        self._forgotten.append(number)

    def _detach(self, number: int) -> None:
        self._producers.pop(number, None)
        holder = self._holders.pop(number, None)
        if holder is not None:
            self._give_back(list(holder.reserved.values()))

    def _holder(self, number: int) -> Holder:
        holder = self._holders.get(number)
        if holder is None:
            raise Closed("the consumer was closed")
        return holder

    def _begin_turn(self) -> None:
        super()._begin_turn()
        while self._forgotten:
            self._detach(self._forgotten.popleft())
        self._give_back(self._leases.ended(self._clock.monotonic_s()))

    # --- reserving --------------------------------------------------------------------------------------

    def reserve(self, number: int, count: int) -> tuple[list[Message], float]:
        """Up to `count` messages, without waiting; and when to look again, by the monotonic clock."""
        with self._inside():
            messages = self._reserve(self._holder(number), count)
            return messages, self._look_again_s(self._leases.next_s())

    def unreserve(self, number: int, ids: Sequence[str]) -> None:
        """Nobody has looked at them: they go back as if they had not been handed out."""
        with self._inside():
            holder = self._holders.get(number)
            chosen = [] if holder is None else chosen_of(holder, ids)
            for one in chosen:
                one.handed.deliveries -= 1
            self._give_back(chosen)

    def look(self, numbers: Sequence[int]) -> tuple[bool, float]:
        """Whether one of the consumers would get something, and when to look again."""
        with self._inside():
            is_ready = any(self._ready_count(self._holder(number).queue_name) > 0 for number in numbers)
            return is_ready, self._look_again_s(self._leases.next_s())

    def _reserve(self, holder: Holder, count: int) -> list[Message]:
        queue = self._queue(holder.queue_name)
        messages: list[Message] = []
        while len(messages) < count:
            run = queue.get(False)
            if run is None:
                break
            messages.append(self._hand_out(holder, queue, run))
        return messages

    def _hand_out(self, holder: Holder, queue: Queue, run: Run) -> Message:
        envelope, body, props = run.entries[0]
        properties = records.properties_of(envelope)
        seen = self._seen.get(queue.queue_id, {}).pop(run.first_seq_id, None)
        if seen is None:
            seen = Seen(records.count_of(properties, run.redelivered), records.note_of(properties))
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        until_ms = None if holder.lease_s is None else now_ms + round(holder.lease_s * 1000)
        reservation = Reservation(
            id=self._free_id(queue, properties.message_id, run.first_seq_id),
            queue=queue,
            seq_id=run.first_seq_id,
            envelope=envelope,
            body=body,
            expires_ms=-1 if props is None else props.expiry_ms,
            handed=Handed(
                seen.deliveries + 1, seen.note, now_ms, until_ms, f"process {self._pid} consumer {holder.number}"
            ),
            holder=holder,
            until_s=None if holder.lease_s is None else now_s + holder.lease_s,
        )
        holder.reserved[reservation.id] = reservation
        self._ids_out.add((queue.queue_id, reservation.id))
        self._leases.add(reservation)
        return records.reserved_message(
            reservation.id, holder.queue_name, envelope, properties, body, reservation.handed
        )

    def _free_id(self, queue: Queue, message_id: str | None, seq_id: int) -> str:
        """The message's own id, unless it has none or a client has given it to several."""
        chosen = message_id or f"#{seq_id}"
        while (queue.queue_id, chosen) in self._ids_out:
            chosen = f"{chosen}#{seq_id}"
        return chosen

    def touch(self, number: int, ids: Sequence[str], lease_s: float) -> list[str]:
        with self._inside():
            chosen = chosen_of(self._holder(number), ids)
            for one in chosen:
                one.until_s = self._clock.monotonic_s() + lease_s
                self._leases.add(one)
            return [one.id for one in chosen]

    # --- giving back ------------------------------------------------------------------------------------

    def _give_back(self, chosen: Sequence[Reservation]) -> None:
        """Back to their places, ready."""
        for one in chosen:
            if not one.queue.deleted:
                seen = self._seen.setdefault(one.queue.queue_id, {})
                seen[one.seq_id] = Seen(one.handed.deliveries, one.handed.note)
                one.queue.requeue([one.seq_id])
                self._forget_the_gone(one.queue, seen)
        self._end_reservations(chosen)

    def _end_reservations(self, chosen: Sequence[Reservation]) -> None:
        for one in chosen:
            one.is_over = True
            one.holder.reserved.pop(one.id, None)
            self._ids_out.discard((one.queue.queue_id, one.id))

    def _forget_the_gone(self, queue: Queue, seen: dict[int, Seen]) -> None:
        """Messages that expired while they waited for their next consumer left a trace."""
        if len(seen) <= 2 * queue.backing.depth() + SEEN_MIN:
            return
        there: set[int] = set()

        def note(seq_id: int, entry: Entry, is_pending: bool) -> bool:
            there.add(seq_id)
            return True

        queue.backing.fold(note)
        for seq_id in [seq_id for seq_id in seen if seq_id not in there]:
            del seen[seq_id]


def chosen_of(holder: Holder, ids: Sequence[str]) -> list[Reservation]:
    """Those that are this consumer's, each once; but not those whose queue is gone."""
    found = [holder.reserved[one] for one in dict.fromkeys(ids) if one in holder.reserved]
    return [one for one in found if not one.queue.deleted]
