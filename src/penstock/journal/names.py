"""The names behind the numbers in rows: queues and consumers, and which of them the newest segment has been told."""

from __future__ import annotations

from typing import Final, final

# Of the text that names a consumer.
ACTOR_NAME_BYTES_MAX: Final = 1024
# The highest number of a consumer that fits in a row.
ACTOR_MAX: Final = (1 << 31) - 1


@final
class Names:
    """A name is written when its number is used, once in each segment; the journal does that."""

    __slots__ = ("_last_actor", "actors", "named_actors", "named_queues", "queues")

    def __init__(self) -> None:
        self.queues: dict[int, bytes] = {}
        self.actors: dict[int, bytes] = {}
        # Those whose NAME row is in the segment already.
        self.named_queues: set[int] = set()
        self.named_actors: set[int] = set()
        self._last_actor = 0

    def name_queue(self, queue_no: int, text: bytes) -> None:
        """Say what the number of a queue stands for."""
        assert queue_no >= 0
        if self.queues.get(queue_no) != text:
            self.queues[queue_no] = text
            self.named_queues.discard(queue_no)

    def forget_queue(self, queue_no: int) -> None:
        """The queue is deleted: no row will name it again."""
        del self.queues[queue_no]
        self.named_queues.discard(queue_no)

    def name_actor(self, text: bytes) -> int:
        """Return a number for a consumer, never the same twice; 0 when there are no more."""
        assert len(text) <= ACTOR_NAME_BYTES_MAX
        if self._last_actor == ACTOR_MAX:
            return 0
        self._last_actor += 1
        self.actors[self._last_actor] = text
        return self._last_actor

    def forget_actor(self, actor: int) -> None:
        """The consumer is gone, and no row will name it again. A number that is not known is ignored."""
        self.actors.pop(actor, None)
        self.named_actors.discard(actor)

    def begin_segment(self) -> None:
        """Names are repeated in the next segment."""
        self.named_queues.clear()
        self.named_actors.clear()
