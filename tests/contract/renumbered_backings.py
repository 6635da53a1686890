"""Backing queues that are opened behind other numbers, as if they had been moved before."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.backing.backing_queue import AsyncCallback, BackingQueue, BackingQueues, Recovery
from penstock.backing.renumbered import RenumberedBackingQueue


class RenumberedBackingQueues(BackingQueues):
    def __init__(self, inner: BackingQueues) -> None:
        self._inner = inner

    def start(self, queue_ids: Sequence[str]) -> list[Recovery]:
        return self._inner.start(queue_ids)

    def stop(self) -> None:
        self._inner.stop()

    def open(self, queue_id: str, durable: bool, recovery: Recovery | None, callback: AsyncCallback) -> BackingQueue:
        return RenumberedBackingQueue(self._inner.open(queue_id, durable, recovery, callback), 1, {})

    def delete_crashed(self, queue_id: str) -> None:
        self._inner.delete_crashed(queue_id)
