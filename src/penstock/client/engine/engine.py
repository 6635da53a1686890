"""The verbs of a session over file://, on a broker of this process. Synchronous and thread-safe; nothing here waits.

    put        a persistent message in a durable queue; held in the queue's companion until it is ready
    reserve    fetched, not acked
    finalize   acked, and a copy with its note in the history: one batch of the journal, so both or neither
    requeue    back to its place; or, with a delay, to the companion
    bury       moved to the queue of the buried: one batch
    kick       moved back: one batch

put, finalize, bury, kick and a delayed requeue return after the sync. A reservation ends with its lease, with its
consumer, or with the process. What comes back goes to its own place; how often it was handed out, and why it came back,
is remembered here and ends with the process.

There is no loop and no thread. Each call takes the lock, does what has come due in the meantime (expiries, held
messages, leases, consumers that were forgotten), does its work, writes the journal, and wakes the callers that wait on
a queue with something ready. Waiting happens outside.

An error in the middle of a call may leave RAM and folder different. Then the engine is given up as a crash would do it:
nothing more is written, and the next call opens the folder anew and finds what was synced.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from penstock import limits
from penstock.broker.vhost.companions import HELD_FOR_QUEUE
from penstock.broker.vhost.refusal_room import RefusalRooms
from penstock.client.engine import names, records
from penstock.client.engine.history import History
from penstock.client.engine.opening import open_folder
from penstock.client.engine.records import Finalized, Handed, milliseconds
from penstock.client.engine.reservations import Holder, Leases, Reservation, Seen
from penstock.client.engine.schedules import Schedules
from penstock.client.engine.watchers import Wake, Watchers
from penstock.client.errors import ClientError, Closed, ConnectionLost, NotReserved
from penstock.client.message import Message, QueueStats
from penstock.clock import Clock, SystemClock
from penstock.errors import AmqpError
from penstock.fields import Table
from penstock.message import FRAME_END, ConfirmToken, Entry, Incoming, Run
from penstock.queues.queue import Queue
from penstock.queues.taking import drop_taken

VHOST: Final = "/"
# A waiting caller looks again after so long even if nothing comes due: forgotten consumers are noticed then.
LOOK_AGAIN_S: Final = 1.0
# A moment in which something is due has begun when it is over.
MOMENT_S: Final = 0.001
# Remembered deliveries of messages that may be gone, however few messages there are.
SEEN_MIN: Final = 64


class _Refused(ConfirmToken):
    """Knows whether a queue has refused what was put."""

    __slots__ = ("is_refused",)

    def __init__(self, waiting: int) -> None:
        super().__init__(waiting)
        self.is_refused = False

    def refuse(self) -> None:
        self.is_refused = True


class Engine:
    def __init__(
        self, folder: str, clock: Clock | None = None, history_arguments: Table = names.HISTORY_ARGUMENTS
    ) -> None:
        """Open the folder. Raises ConnectionLost with words that say what to do."""
        self.folder = folder
        self._clock = clock or SystemClock()
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._is_inside = False
        self._end = ""
        self._broker, self._node = open_folder(folder, self._clock)
        self._vhost = self._broker.vhosts[VHOST]
        self._tended_s = self._clock.monotonic_s()
        self._watchers = Watchers()
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
        # Ids are unique over all folders and times: they name messages that move from place to place.
        self._id_head = secrets.token_hex(8)
        self._id_number = 0
        self._history = History(self._vhost, history_arguments)
        self._schedules = Schedules(self._vhost)
        self._node.end_turn()

    # --- life -------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether it was closed or given up, or belongs to the process that this one was forked from."""
        return bool(self._end) or self._pid != os.getpid()

    def close(self) -> None:
        """Leave the folder as a clean stop leaves it."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._check_not_inside()
            if self._end:
                return
            self._end = "it was closed"
            try:
                self._broker.stop()
            except OSError as error:
                self._node.abandon()
                raise ConnectionLost(f"{self.folder} could not be left cleanly: {error}") from error
            finally:
                self._watchers.wake_all()

    def _give_up(self, why: str) -> None:
        """Let go of the folder as a crash would."""
        self._end = why
        self._node.abandon()
        self._watchers.wake_all()

    # --- calls ------------------------------------------------------------------------------------------

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Everything that a verb does is done in here."""
        if self._pid != os.getpid():
            raise ConnectionLost(
                f"{self.folder} is open in the process that this one was forked from; only that uses it"
            )
        with self._lock:
            self._check_not_inside()
            if self._end:
                raise ConnectionLost(f"{self.folder}: {self._end}")
            self._is_inside = True
            first_lsn = self._node.journal.next_lsn
            try:
                self._begin_turn()
                first_lsn = self._node.journal.next_lsn
                yield
                self._node.end_turn()
                self._check_disk()
            except ClientError:
                raise
            except AmqpError as error:
                if self._node.journal.next_lsn != first_lsn:
                    # Refused half-way: what is gathered must not be written.
                    self._give_up(f"it was given up after {error!r}")
                raise ClientError(str(error)) from error
            except Exception as error:
                self._give_up(f"it was given up after {error!r}")
                raise ConnectionLost(f"{self.folder} failed: {error!r}. The next call opens it anew") from error
            except BaseException:
                self._give_up("a call was interrupted")
                raise
            finally:
                self._is_inside = False
                self._wake_ready()

    def _check_not_inside(self) -> None:
        """The lock lets its thread in again: a signal handler may run in the middle of a call."""
        if self._is_inside:
            raise ClientError("a session over file:// was used by a signal handler, in the middle of another call")

    def _begin_turn(self) -> None:
        now_s = self._clock.monotonic_s()
        self._broker.expiries.run_due(self._clock.wall_ms())
        if now_s - self._tended_s >= limits.MEMORY_CHECK_S:
            self._tended_s = now_s
            self._broker.tend_memory()
            for alarm in self._broker.alarms:
                alarm.check()
        while self._forgotten:
            self._detach(self._forgotten.popleft())
        self._give_back(self._leases.ended(self._clock.monotonic_s()))

    def _sync(self) -> None:
        """Everything up to here is on disk, or this raises."""
        answers: list[bool] = []
        self._node.journal.when_durable(answers.append)
        # The syncer answers before `commit` returns.
        self._node.journal.commit(urgent=True)
        self._check_disk()
        if answers != [True]:
            raise ClientError(f"the disk of {self.folder} is full: what was asked for may be undone by a crash")

    def _check_disk(self) -> None:
        error = self._node.failed
        if error is not None:
            self._give_up(f"the disk has failed: {error}")
            raise ConnectionLost(f"the disk of {self.folder} has failed: {error}. The next call opens the folder anew")

    def _check_room(self) -> None:
        """Whether the disk has room for more messages."""
        alarm = self._broker.disk_alarm
        if alarm is not None and alarm.active:
            raise ClientError(
                f"the disk of {self.folder} is nearly full: {alarm.bytes_min} bytes are kept free, so that messages can"
                " still be finalized. Make room there"
            )

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

    def _queue(self, name: str) -> Queue:
        """Return the queue; made when it is not there."""
        found = self._vhost.queues.get(names.fitted(name))
        if found is None:
            names.check_name(name)
            return self._vhost.declare_queue(names.fitted(name), True, False, None, names.arguments_of(name))
        if found.crashed:
            raise ClientError(f"{found.describe()} cannot be read; `penstock fsck {self.folder}` says more")
        return found

    def _durable(self, kept_name: str) -> Queue:
        """Return a queue beside others; as it is, if it is there."""
        found = self._vhost.queues.get(kept_name)
        return self._vhost.declare_queue(kept_name, True, False, None, {}) if found is None else found

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
                held.hold(Incoming(envelope, [payload + FRAME_END]), token, due_ms)
            else:
                queue.publish(Incoming(envelope, [payload + FRAME_END]), token)
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
        # A caller may wait for what it would reserve.
        self._watchers.wake_all()

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

    # --- reserving --------------------------------------------------------------------------------------

    def reserve(self, number: int, count: int) -> tuple[list[Message], float]:
        """Return up to `count` messages, without waiting; and when to look again, by the monotonic clock."""
        with self._inside():
            messages = self._reserve(self._holder(number), count)
            return messages, self._look_again_s()

    def unreserve(self, number: int, ids: Sequence[str]) -> None:
        """Give messages back that no consumer has seen, as if they had not been handed out."""
        with self._inside():
            holder = self._holders.get(number)
            chosen = [] if holder is None else chosen_of(holder, ids)
            for one in chosen:
                one.handed.deliveries -= 1
            self._give_back(chosen)

    def look(self, numbers: Sequence[int]) -> tuple[bool, float]:
        """Return whether one of the consumers would get something, and when to look again."""
        with self._inside():
            is_ready = any(self._ready_count(self._holder(number).queue_name) > 0 for number in numbers)
            return is_ready, self._look_again_s()

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
        """Return the message's own id, unless it has none or a client has given it to several."""
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
            due_ms = self._clock.wall_ms() - int(-delay_s * 1000 // 1)
            envelopes = [records.returning_envelope(one.envelope, due_ms, one.expires_ms, one.handed) for one in chosen]
            for one, envelope in zip(chosen, envelopes, strict=True):
                self._held(one.queue).hold(Incoming(envelope, [one.body]), None, due_ms)
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
                buried.publish(Incoming(envelope, [one.body]), None)
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
                self._queue(name).enter(Incoming(records.kicked_envelope(envelope, now_ms), [body]), None)
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

    # --- waiting ----------------------------------------------------------------------------------------

    def watch(self, queue_names: list[str], wake: Wake) -> int:
        """Call `wake` when one of the queues may have something, on any thread; a number for `unwatch`.

        Who watches looks afterwards, and then waits.
        """
        return self._watchers.add(queue_names, wake)

    def unwatch(self, number: int) -> None:
        self._watchers.remove(number)

    def _wake_ready(self) -> None:
        """Whatever a call has done, who waits on a queue that has more to give than before is told."""
        if not self._end:
            self._watchers.wake_ready(self._ready_count)

    def _ready_count(self, name: str) -> int:
        queue = self._vhost.queues.get(names.fitted(name))
        return 0 if queue is None or queue.crashed else queue.ready_count()

    def _look_again_s(self) -> float:
        """Return when it is worth looking again, by the monotonic clock, although nothing was called."""
        now_s = self._clock.monotonic_s()
        look_s = now_s + LOOK_AGAIN_S
        lease_end_s = self._leases.next_s()
        if lease_end_s is not None:
            look_s = min(look_s, lease_end_s)
        due_ms = self._broker.expiries.next_due_ms()
        if due_ms >= 0:
            look_s = min(look_s, now_s + max(0, due_ms - self._clock.wall_ms()) / 1000 + MOMENT_S)
        return look_s


def chosen_of(holder: Holder, ids: Sequence[str]) -> list[Reservation]:
    """Return those that are this consumer's, each once; but not those whose queue is gone."""
    found = [holder.reserved[one] for one in dict.fromkeys(ids) if one in holder.reserved]
    return [one for one in found if not one.queue.deleted]
