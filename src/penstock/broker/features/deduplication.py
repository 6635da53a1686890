"""Deduplication: a message whose key was seen within the window is not enqueued again.

The window is bounded by a count and by a time. Its keys are messages of a companion queue: durable as the queue and the
message are, written in the same batch as the message, so after a crash both are there or neither is.

A duplicate is confirmed like the first one, but not before that is safe: the publisher of the second may rely on it.

Keys whose time is over leave with those that come, a few with each; and in slices, every second while there are some.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from penstock.fields import Field
from penstock.limits import DEDUP_KEY_OVERHEAD_BYTES
from penstock.message import FRAME_END, ConfirmToken, Entry, Envelope, Incoming, body_bytes
from penstock.queues.delayed.next_turn import NextTurn
from penstock.queues.delayed.timetable import DUE_MS_MAX
from penstock.queues.intake.dedup_window import DedupWindow
from penstock.queues.intake.intake import Gate
from penstock.queues.leaving.expiry import ExpirySchedule
from penstock.queues.queue import Queue
from penstock.wire.property_edits import header_of

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost

# A header by which a message says for how long its own key counts, in milliseconds.
TTL_HEADER: Final = "x-cache-ttl"
NO_PROPERTIES: Final = b"\x00\x00"
DROPPED: Final = "window"
# Longer texts are remembered by their digest: ten million keys must not take what a client cares to send.
TEXT_BYTES_MAX: Final = 64
# Keys that leave in one turn.
EXPIRED_AT_ONCE: Final = 1000
# How often the window is looked at; at least so often, since the schedule must not keep a window whose queue is gone.
LOOK_MS_MIN: Final = 1000
LOOK_MS_MAX: Final = 60_000


def key_of(field: Field | None) -> bytes | None:
    """Return a header's value as bytes; None for one that cannot be a key. 5 and "5" are different keys."""
    if field is None:
        return None
    value = field[1]
    if isinstance(value, bytes):
        return b"S" + value if len(value) <= TEXT_BYTES_MAX else b"H" + sha256(value).digest()
    if isinstance(value, (bool, int, float)) and value == value:
        return f"{type(value).__name__[0]}{value}".encode()
    return None


class DedupGate(Gate):
    """Lets a key in once."""

    def __init__(
        self, vhost: VHost, companion: Queue, header: str, count_max: int, ttl_ms: int, expiries: ExpirySchedule
    ) -> None:
        self._vhost = vhost
        self._companion = companion
        self._header = header
        self._ttl_ms = ttl_ms
        self._window = DedupWindow(count_max)
        # What the window is to have room for: it becomes smaller in slices.
        self._count_max = count_max
        # What a key is stored with: it lasts as its message does.
        self._lasting = Envelope("", "", NO_PROPERTIES, persistent=companion.durable)
        self._transient = Envelope("", "", NO_PROPERTIES)
        self._expiring = NextTurn(self._expire, expiries)
        self._remember_recovered()

    def admit(self, envelope: Envelope, body: bytes, confirm: ConfirmToken | None, delivered: int) -> bool:
        key = key_of(header_of(envelope, self._header))
        if key is None:
            return True
        now_ms = self._companion.wall_ms()
        if self._window.is_known(key, now_ms):
            if confirm is not None and self._companion.durable:
                self._vhost.settle_when_durable(confirm)
            elif confirm is not None:
                confirm.settle()
            return False
        ttl_ms = self._ttl_of(envelope)
        # No time to live in the queue itself: the window alone says what leaves, so that both stay in step.
        expiry_ms = -1 if ttl_ms < 0 else min(now_ms + ttl_ms, DUE_MS_MAX)
        key_envelope = self._lasting if envelope.persistent else self._transient
        self._companion.hold(Incoming(key_envelope, [key + FRAME_END]), None, expiry_ms)
        self._drop(self._window.add(key, now_ms, expiry_ms))
        if not self._expiring.is_awaited:
            self._look_later(now_ms)
        return True

    def change(self, header: str, count_max: int, ttl_ms: int) -> None:
        """Go on with another header, size or time. Keys that are known stay, with their times, as far as they fit."""
        self._header = header
        self._ttl_ms = ttl_ms
        self._count_max = count_max
        self._shrink(self._companion.wall_ms())

    def _shrink(self, now_ms: int) -> None:
        surplus = len(self._window) - self._count_max
        if surplus > 0:
            self._drop(self._window.forget(min(surplus, EXPIRED_AT_ONCE)))
            self._expiring.soon(now_ms)
        self._window.resize(max(len(self._window), self._count_max))

    def ram_bytes(self) -> int:
        return len(self._window) * DEDUP_KEY_OVERHEAD_BYTES

    def stop(self) -> None:
        self._expiring.stop()

    def _look_later(self, now_ms: int) -> None:
        due_ms = self._window.next_expiry_ms()
        if due_ms >= 0:
            self._expiring.at(min(max(due_ms, now_ms + LOOK_MS_MIN), now_ms + LOOK_MS_MAX))

    def _expire(self, now_ms: int) -> None:
        if self._companion.deleted or self._companion.crashed:
            return
        self._shrink(now_ms)
        expired = self._window.expire(now_ms, EXPIRED_AT_ONCE)
        self._drop(expired)
        if expired == EXPIRED_AT_ONCE:
            self._expiring.soon(now_ms)
        else:
            self._look_later(now_ms)

    def _drop(self, count: int) -> None:
        """As many as left the window leave the companion."""
        while count > 0:
            dropped = self._companion.leaving.drop_head(count, DROPPED)
            if dropped == 0:
                return
            count -= dropped

    def _ttl_of(self, envelope: Envelope) -> int:
        field = header_of(envelope, TTL_HEADER)
        value = None if field is None else field[1]
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        return self._ttl_ms

    def _remember_recovered(self) -> None:
        now_ms = self._companion.wall_ms()
        gone = 0

        def note(seq_id: int, entry: Entry, is_pending: bool) -> bool:
            nonlocal gone
            _, body, props = entry
            gone += self._window.add(body_bytes(body), now_ms, -1 if props is None else props.expiry_ms)
            return True

        self._companion.backing.fold(note)
        self._drop(gone)
        self._look_later(now_ms)
