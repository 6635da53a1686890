"""Whether queues that refuse what does not fit have room, asked before messages are taken to be moved there."""

from __future__ import annotations

from penstock.broker.definitions.feature_arguments import read_features
from penstock.queues.intake.overflow import RoomLimits
from penstock.queues.queue import Queue


class RefusalRooms:
    """The room in the targets of one call, and what was promised to it."""

    def __init__(self, may_serve: bool) -> None:
        """`may_serve`: waiting consumers of a full queue may take what they have credit for. Not in a dry run."""
        self._may_serve = may_serve
        # None for queues that refuse nothing.
        self._limits: dict[str, RoomLimits | None] = {}
        self._promised: dict[str, tuple[int, int]] = {}

    def promise(self, queue: Queue, size_bytes: int) -> bool:
        """Return whether one more message finds room; then there is as much less for the next one."""
        room = self._room_of(queue)
        if room is None:
            return True
        count, size = self._promised.get(queue.name, (0, 0))
        count += 1
        size += size_bytes
        if not self._fits(queue, room, count, size):
            if self._may_serve:
                queue.serve_waiting(queue.ready_count())
            if not self._fits(queue, room, count, size):
                return False
        self._promised[queue.name] = (count, size)
        return True

    def _room_of(self, queue: Queue) -> RoomLimits | None:
        if queue.name not in self._limits:
            features = read_features(queue.effective_arguments)
            refuses = features.overflow in ("reject-publish", "reject-publish-dlx")
            self._limits[queue.name] = RoomLimits(features.length_max, features.length_bytes_max) if refuses else None
        return self._limits[queue.name]

    def _fits(self, queue: Queue, room: RoomLimits, count: int, size_bytes: int) -> bool:
        return not room.is_over(queue.ready_count() + count, queue.ready_bytes() + size_bytes)
