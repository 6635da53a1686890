"""The verbs of a session over file://, on a broker of this process. Synchronous and thread-safe; nothing here waits.

    put        a persistent message in a durable queue; held in the queue's companion until it is ready
    reserve    fetched, not acked
    finalize   acked, and a copy with its note in the history: one batch of the journal, so both or neither
    requeue    back to its place; or, with a delay, to the companion
    bury       moved to the queue of the buried: one batch
    kick       moved back: one batch

put, finalize, bury, kick and a delayed requeue return after the sync. A reservation ends with its lease, with its
consumer, or with the process.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime

from penstock.broker.companions import HELD_FOR_QUEUE
from penstock.broker.refusal_room import RefusalRooms
from penstock.client.engine import names, records
from penstock.client.engine.history import History
from penstock.client.engine.records import Finalized, milliseconds
from penstock.client.engine.reservations import Holder, Reservation
from penstock.client.engine.reserving import Reserving, chosen_of
from penstock.client.engine.schedules import Schedules
from penstock.client.errors import ClientError, NotReserved
from penstock.client.message import Message, QueueStats
from penstock.clock import Clock
from penstock.fields import Table
from penstock.message import FRAME_END, ConfirmToken
from penstock.queues.queue import Queue
from penstock.queues.taking import drop_taken


class _Refused(ConfirmToken):
    """Knows whether a queue has refused what was put."""

    __slots__ = ("is_refused",)

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.is_refused = False

    def refuse(self) -> None:
        self.is_refused = True


class Engine(Reserving):
    """All sessions of this process on one folder."""

    def __init__(
        self, folder: str, clock: Clock | None = None, history_arguments: Table = names.HISTORY_ARGUMENTS
    ) -> None:
        super().__init__(folder, clock)
        # Ids are unique over all folders and times: they name messages that move from place to place.
        self._id_head = secrets.token_hex(8)
        self._id_number = 0
        self._history = History(self._vhost, history_arguments)
        self._schedules = Schedules(self._vhost)

    def _durable(self, kept_name: str) -> Queue:
        """A queue beside others; as it is, if it is there."""
        found = self._vhost.queues.get(kept_name)
        return self._vhost.declare_queue(kept_name, True, False, None, {}) if found is None else found

    # --- queues -----------------------------------------------------------------------------------------

    def use_queue(self, name: str) -> None:
        with self._inside():
            self._queue(name)
            self._sync()

    def drop_queue(self, name: str) -> bool:
        with self._inside():
            names.check_name(name)
            queue = self._vhost.queues.get(names.fitted(name))
            if queue is None:
                return False
            for holder in self._holders.values():
                self._end_reservations([one for one in holder.reserved.values() if one.queue is queue])
            self._seen.pop(queue.queue_id, None)
            self._history.forget(name)
            for kept_name in (queue.name, names.history_of(name), names.buried_of(name)):
                if kept_name in self._vhost.queues:
                    self._vhost.delete_queue(self._vhost.queues[kept_name], False, False)
            self._sync()
            return True

    def queues(self) -> list[str]:
        with self._inside():
            return [
                names.whole_name(name, queue.arguments)
                for name, queue in self._vhost.queues.items()
                if not names.is_beside(name)
            ]

    def stats(self, name: str) -> QueueStats:
        with self._inside():
            queue = self._vhost.queues.get(names.fitted(name))
            held = self._vhost.companions.find(HELD_FOR_QUEUE, names.fitted(name))
            buried = self._vhost.queues.get(names.buried_of(name))
            return QueueStats(
                queue=name,
                ready_count=0 if queue is None or queue.crashed else len(queue),
                reserved_count=sum([len(one.reserved) for one in self._holders.values() if one.queue_name == name]),
                scheduled_count=0 if held is None else held.ready_count(),
                buried_count=0 if buried is None else buried.ready_count(),
                finalized_count=self._history.total(name),
                producer_count=len([one for one in self._producers.values() if one == name]),
                consumer_count=len([one for one in self._holders.values() if one.queue_name == name]),
            )

    def history(self, name: str, limit: int) -> list[Message]:
        with self._inside():
            return self._history.last(name, limit)

    # --- putting ----------------------------------------------------------------------------------------

    def attach_producer(self, name: str) -> int:
        """A producer; its number."""
        with self._inside():
            self._queue(name)
            self._sync()
            self._member_number += 1
            self._producers[self._member_number] = name
            return self._member_number

    def put(self, name: str, payloads: Sequence[bytes], ready_at: datetime | None, ttl_s: float | None) -> list[str]:
        """All of them in one batch of the journal; their ids."""
        with self._inside():
            if not payloads:
                return []
            ids, token = self._put(name, payloads, ready_at, ttl_s)
            self._settle_put(name, token)
            return ids

    def put_at_slot(self, schedule: str, slot: datetime, name: str, payload: bytes) -> str | None:
        with self._inside():
            if not self._schedules.is_new(schedule, slot):
                return None
            ids, token = self._put(name, [payload], None, None)
            self._schedules.note(self._durable(names.SCHEDULES), schedule, slot)
            self._settle_put(name, token)
            return ids[0]

    def _put(
        self, name: str, payloads: Sequence[bytes], ready_at: datetime | None, ttl_s: float | None
    ) -> tuple[list[str], _Refused]:
        self._check_room()
        queue = self._queue(name)
        rooms = RefusalRooms(may_serve=False)
        if not all(rooms.promise(queue, len(payload)) for payload in payloads):
            raise ClientError(f"queue {name!r} is full, and its arguments say that it refuses what does not fit")
        now_ms = self._clock.wall_ms()
        due_ms = now_ms if ready_at is None else max(now_ms, milliseconds(ready_at))
        ids = self._new_ids(len(payloads))
        envelopes = records.new_envelopes(queue.name, ids, due_ms, now_ms, ttl_s)
        token = _Refused(len(ids))
        held = self._held(queue) if due_ms > now_ms else None
        for envelope, payload in zip(envelopes, payloads, strict=True):
            if held is not None:
                held.hold(envelope, [payload + FRAME_END], token, due_ms)
            else:
                queue.publish(envelope, [payload + FRAME_END], token)
        return ids, token

    def _settle_put(self, name: str, token: _Refused) -> None:
        self._sync()
        if token.is_refused:
            raise ClientError(f"queue {name!r} has refused what was put")

    def _new_ids(self, count: int) -> list[str]:
        first = self._id_number
        self._id_number += count
        return [f"{self._id_head}-{number:012d}" for number in range(first, first + count)]

    def _held(self, queue: Queue) -> Queue:
        """Where messages of the queue wait for their time."""
        return self._vhost.companions.get(HELD_FOR_QUEUE, queue.name, True)

    # --- settling ---------------------------------------------------------------------------------------

    def finalize(self, number: int, ids: Sequence[str], note: str | None) -> list[str]:
        with self._inside():
            return self._finalize(self._holder(number), ids, note)

    def finalize_and_reserve(self, number: int, ids: Sequence[str], note: str | None, count: int) -> list[Message]:
        with self._inside():
            holder = self._holder(number)
            if len(chosen_of(holder, ids)) < len(set(ids)):
                raise NotReserved("one of the messages is not, or no longer, reserved by this consumer")
            self._finalize(holder, ids, note)
            return self._reserve(holder, count)

    def _finalize(self, holder: Holder, ids: Sequence[str], note: str | None) -> list[str]:
        now_ms = self._clock.wall_ms()
        chosen = chosen_of(holder, ids)
        for one in chosen:
            self._history.add(holder.queue_name, one.envelope, one.body, Finalized(one.handed, now_ms, note))
            one.queue.ack([one.seq_id])
        return self._settled(chosen)

    def requeue(self, number: int, ids: Sequence[str], delay_s: float | None, note: str | None) -> list[str]:
        with self._inside():
            chosen = chosen_of(self._holder(number), ids)
            for one in chosen:
                one.handed.note = note if note is not None else one.handed.note
            if not delay_s:
                self._give_back(chosen)
                return [one.id for one in chosen]
            # Rounded up: never too early.
            due_ms = self._clock.wall_ms() - int(-delay_s * 1000 // 1)
            envelopes = [records.returning_envelope(one.envelope, due_ms, one.expires_ms, one.handed) for one in chosen]
            for one, envelope in zip(chosen, envelopes, strict=True):
                self._held(one.queue).hold(envelope, [one.body], None, due_ms)
                drop_taken(one.queue, [one.seq_id])
            return self._settled(chosen)

    def bury(self, number: int, ids: Sequence[str], note: str | None) -> list[str]:
        with self._inside():
            holder = self._holder(number)
            chosen = chosen_of(holder, ids)
            for one in chosen:
                one.handed.note = note if note is not None else one.handed.note
            envelopes = [records.buried_envelope(one.envelope, one.handed) for one in chosen]
            buried = self._durable(names.buried_of(holder.queue_name))
            for one, envelope in zip(chosen, envelopes, strict=True):
                buried.publish(envelope, [one.body], None)
                drop_taken(one.queue, [one.seq_id])
            return self._settled(chosen)

    def kick(self, name: str, count: int) -> int:
        """Buried ones, oldest first, to the tail of the queue; how many."""
        with self._inside():
            buried = self._vhost.queues.get(names.buried_of(name))
            kicked = 0
            now_ms = self._clock.wall_ms()
            while buried is not None and kicked < count:
                run = buried.get(False)
                if run is None:
                    break
                envelope, body, _ = run.entries[0]
                self._queue(name).enter(records.kicked_envelope(envelope, now_ms), [body], None)
                drop_taken(buried, [run.first_seq_id])
                kicked += 1
            if kicked:
                self._sync()
            return kicked

    def _settled(self, chosen: Sequence[Reservation]) -> list[str]:
        """They are elsewhere, or gone: on disk too."""
        self._end_reservations(chosen)
        if chosen:
            self._sync()
        return [one.id for one in chosen]
