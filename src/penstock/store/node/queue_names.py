"""Which queue a number in the journal stands for.

A number stands for the ids of a vhost and of a queue, which name the folder, and a text for people. Rows carry the
number; NAME rows and checkpoints carry the *label*: `<vhost_id>/<queue_id> <text>`. A queue gets its number when it is
first opened, and keeps it until it is deleted. After a start the table is that of the checkpoint, with the NAME rows
behind it.

Invariants
  1. A number is never given to a second queue: `next_number` only grows, also over restarts.
  2. An id contains neither "/" nor a space, so that a label can be taken apart whatever the text contains.
  3. At most one number for each queue id.

A crash may lose a number that no synced row used. It is then given again, and nothing can tell.
"""

from __future__ import annotations

from typing import Final, final

# A row of the journal has 31 bits for the number of its queue.
NUMBER_MAX: Final = (1 << 31) - 1
# Numbers that are kept for queues which are declared and get theirs with their first message.
NUMBERS_KEPT: Final = 1 << 24


@final
class QueueName:
    """The queue that a number stands for."""

    __slots__ = ("queue_id", "text", "vhost_id")

    def __init__(self, vhost_id: str, queue_id: str, text: bytes) -> None:
        self.vhost_id = vhost_id
        self.queue_id = queue_id
        # For people; whatever a client chose.
        self.text = text

    def label(self) -> bytes:
        return b"%b/%b %b" % (self.vhost_id.encode(), self.queue_id.encode(), self.text)

    def folder(self) -> str:
        return queue_folder(self.vhost_id, self.queue_id)

    def shown(self) -> str:
        return f"{self.text.decode('utf-8', 'replace')!r} ({self.queue_id})"


def parse_label(label: bytes) -> QueueName | None:
    """What `QueueName.label` made; None when it is something else."""
    ids, space, text = label.partition(b" ")
    vhost_id, slash, queue_id = ids.partition(b"/")
    if not space or not slash or not ids.isascii():
        return None
    return QueueName(vhost_id.decode(), queue_id.decode(), text)


def queues_folder(vhost_id: str) -> str:
    return f"vhosts/{vhost_id}/queues"


def queue_folder(vhost_id: str, queue_id: str) -> str:
    return f"vhosts/{vhost_id}/queues/{queue_id}"


@final
class QueueNames:
    __slots__ = ("_by_id", "_by_number", "next_number")

    def __init__(self) -> None:
        # Rows that belong to no queue carry 0.
        self.next_number = 1
        self._by_number: dict[int, QueueName] = {}
        self._by_id: dict[str, int] = {}

    def put(self, number: int, name: QueueName) -> None:
        """A number that is known from disk."""
        known = self._by_number.get(number)
        if known is not None:
            self._by_id.pop(known.queue_id, None)
        self._by_number[number] = name
        self._by_id[name.queue_id] = number
        self.next_number = max(self.next_number, number + 1)

    def number(self, queue_id: str) -> int | None:
        return self._by_id.get(queue_id)

    def name(self, number: int) -> QueueName | None:
        return self._by_number.get(number)

    def new_number(self, name: QueueName) -> int:
        assert "/" not in name.queue_id + name.vhost_id and " " not in name.queue_id + name.vhost_id
        number = self.next_number
        if number > NUMBER_MAX:
            raise OverflowError("the journal has no number left for a durable queue")
        self.put(number, name)
        return number

    def are_scarce(self) -> bool:
        """Whether no more durable queues should be declared: a number is never given twice, and there are 2³¹."""
        return self.next_number > NUMBER_MAX - NUMBERS_KEPT

    def forget(self, number: int) -> None:
        name = self._by_number.pop(number, None)
        if name is not None and self._by_id.get(name.queue_id) == number:
            del self._by_id[name.queue_id]

    def items(self) -> list[tuple[int, QueueName]]:
        return sorted(self._by_number.items())

    def shown(self, number: int) -> str:
        name = self._by_number.get(number)
        return f"queue number {number}" if name is None else name.shown()
