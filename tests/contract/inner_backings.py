"""Volatile backing queues for tests of the priority queue: they confirm late, come back, and take notes."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.backing.backing_queue import (
    NOT_DELIVERED,
    TIMEOUT_NONE,
    TIMEOUT_TIMED,
    AsyncCallback,
    BackingQueue,
    Recovery,
)
from penstock.backing.volatile import VolatileBackingQueue, VolatileBackingQueues
from penstock.message import ConfirmToken, Incoming, MessageProps, unlike


class NotingQueue(VolatileBackingQueue):
    """Confirms only what it was told to, and remembers its hints."""

    def __init__(self, queue_id: str, callback: AsyncCallback) -> None:
        super().__init__()
        self.queue_id = queue_id
        self.callback = callback
        self.is_safe = True
        self.hints: list[tuple[str, float]] = []
        self.duration_s = 0.0
        self.terminated = False
        self.last_incoming: Incoming | None = None

    def publish(self, incoming: Incoming, props: MessageProps | None, delivered: int = NOT_DELIVERED) -> int:
        self.last_incoming = incoming
        return super().publish(incoming, props, delivered)

    def drain_confirmed(self) -> list[ConfirmToken]:
        return super().drain_confirmed() if self.is_safe else []

    def take_owed(self) -> list[ConfirmToken]:
        return super().drain_confirmed()

    def refuse_all(self) -> None:
        for token in super().drain_confirmed():
            token.refuse()

    def needs_timeout(self) -> int:
        return TIMEOUT_NONE if self.is_safe else TIMEOUT_TIMED

    def timeout(self) -> None:
        self.hints.append(("timeout", 0.0))

    def set_ram_duration_target(self, seconds: float) -> None:
        self.hints.append(("seconds", seconds))

    def set_ram_bytes_target(self, bytes_max: int) -> None:
        self.hints.append(("bytes", bytes_max))

    def set_queue_mode(self, lazy: bool) -> None:
        self.hints.append(("lazy", float(lazy)))

    def ram_duration(self) -> float:
        return self.duration_s

    def terminate(self) -> None:
        self.terminated = True


class NotingQueues(VolatileBackingQueues):
    """Hands out what was left by the queues of `before`: those that were terminated come back cleanly."""

    def __init__(self, before: dict[str, NotingQueue] | None = None) -> None:
        self.left = before or {}
        self.opened: dict[str, NotingQueue] = {}
        self.recoveries: dict[str, Recovery | None] = {}
        self.started: list[str] = []
        self.deleted: list[str] = []
        self.stopped = False

    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        self.started = list(queue_ids)
        return [Recovery(queue_id not in self.left or self.left[queue_id].terminated) for queue_id in queue_ids]

    def stop(self) -> None:
        self.stopped = True

    def open(self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback) -> BackingQueue:
        assert queue_id not in self.opened, "opened twice"
        self.recoveries[queue_id] = recovery
        opened = self.opened[queue_id] = NotingQueue(queue_id, callback)
        if recovery is not None and queue_id in self.left:
            entries = []
            self.left[queue_id].fold(lambda _, entry, pending: entries.append(entry) or True)  # type: ignore[func-returns-value]
            opened.publish(unlike(entries), None)
        return opened

    def delete_crashed(self, queue_id: str) -> None:
        self.deleted.append(queue_id)

    def exists(self, queue_id: str) -> bool:
        return queue_id in self.left
