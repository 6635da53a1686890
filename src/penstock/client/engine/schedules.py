"""The last slot of each schedule, one message each in a durable queue of the folder.

A new slot is published and the old one dropped, in the same batch as the message that the slot is about: so a slot is
noted exactly when its message is there.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from penstock.backing.outcomes import DROPPED
from penstock.broker.vhost.vhost import VHost
from penstock.client.engine.names import SCHEDULES
from penstock.message import FRAME_END, Entry, Envelope, Incoming, body_bytes
from penstock.queues.queue import Queue
from penstock.queues.taking import drop_taken, take
from penstock.wire.properties import Properties, encode_properties

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Schedules:
    def __init__(self, vhost: VHost) -> None:
        # Microseconds since the epoch, and the number of the message that says so.
        self._slots: dict[str, tuple[int, int]] = {}
        queue = vhost.queues.get(SCHEDULES)
        if queue is not None:
            queue.backing.fold(self._read)

    def _read(self, seq_id: int, entry: Entry, is_pending: bool) -> bool:
        try:
            noted = json.loads(body_bytes(entry[1]))
            schedule, slot = str(noted["schedule"]), int(noted["slot"])
        except (ValueError, KeyError, TypeError):
            # Not one of ours: an AMQP client can publish there.
            return True
        if schedule not in self._slots or self._slots[schedule][0] < slot:
            self._slots[schedule] = (slot, seq_id)
        return True

    def is_new(self, schedule: str, slot: datetime) -> bool:
        """Return whether neither this slot nor a later one was put."""
        return schedule not in self._slots or self._slots[schedule][0] < _microseconds(slot)

    def note(self, queue: Queue, schedule: str, slot: datetime) -> None:
        """The slot is put, in this turn. The queue is that of the schedules."""
        noted = json.dumps({"schedule": schedule, "slot": _microseconds(slot)})
        properties = encode_properties(Properties(delivery_mode=2, content_type="application/json"))
        seq_id = queue.enter(Incoming(Envelope("", SCHEDULES, properties, True), [noted.encode() + FRAME_END]), None)
        old = self._slots.get(schedule)
        if old is not None:
            drop_taken(queue, take(queue, [old[1]]), DROPPED)
        self._slots[schedule] = (_microseconds(slot), seq_id)


def _microseconds(slot: datetime) -> int:
    return (slot - _EPOCH) // timedelta(microseconds=1)
