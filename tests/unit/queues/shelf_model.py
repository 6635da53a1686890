"""What every selection over a shelf must do, told in the simplest way: a list of messages, searched each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

READY, DELIVERED, GONE = "ready", "delivered", "gone"

# A consumer's name; None is basic.get.
Owner = str | None


@dataclass
class Message:
    seq_id: int
    key: str | int | float | None
    colour: str
    body: bytes
    expiry_ms: int
    state: str = READY
    redelivered: bool = False
    owner: Owner = None
    superseded: bool = False

    def has_expired(self, now_ms: int) -> bool:
        return 0 <= self.expiry_ms <= now_ms


class ShelfModel:
    """FIFO; the subclasses say what is different."""

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}

    def in_state(self, state: str) -> list[Message]:
        found = [message for message in self.messages.values() if message.state == state]
        return sorted(found, key=lambda message: message.seq_id)

    def ready_ids(self) -> set[int]:
        return {message.seq_id for message in self.in_state(READY)}

    def delivered_ids(self) -> set[int]:
        return {message.seq_id for message in self.in_state(DELIVERED)}

    # --- the order ------------------------------------------------------------------------------------

    def rank(self, message: Message) -> tuple[object, ...]:
        return (message.seq_id,)

    def group(self, message: Message) -> object:
        return None

    def groups_of_others(self, owner: Owner) -> set[object]:
        """Groups of which the consumer may have nothing now."""
        return set()

    def expected(self, owner: Owner, colours: str | None, now_ms: int) -> Message | None:
        """What the consumer must get next."""
        return min(self.candidates(owner, colours, now_ms), key=self.rank, default=None)

    def candidates(self, owner: Owner, colours: str | None, now_ms: int) -> list[Message]:
        """All that the consumer may have now."""
        others = self.groups_of_others(owner)
        return [
            message
            for message in self.in_state(READY)
            if (colours is None or message.colour in colours)
            and self.group(message) not in others
            and not message.has_expired(now_ms)
        ]

    # --- what happens -----------------------------------------------------------------------------------

    def publish(self, message: Message) -> None:
        assert message.seq_id not in self.messages
        self.messages[message.seq_id] = message

    def deliver(self, owner: Owner, message: Message, ack_required: bool) -> None:
        assert message.state == READY
        message.state = DELIVERED if ack_required else GONE
        message.owner = owner

    def forget(self, seq_id: int) -> None:
        self.messages[seq_id].state = GONE

    def give_back(self, message: Message) -> bool:
        """Whether it is wanted."""
        message.state = READY
        message.redelivered = True
        message.owner = None
        return True

    def consumer_gone(self, owner: Owner) -> None:
        pass


class SortedModel(ShelfModel):
    def rank(self, message: Message) -> tuple[object, ...]:
        key = message.key
        if key is None:
            return (0, message.seq_id)
        return (2 if isinstance(key, str) else 1, key, message.seq_id)


class LastValueModel(ShelfModel):
    def publish(self, message: Message) -> None:
        super().publish(message)
        if message.key is None:
            return
        for older in self.messages.values():
            if older is message or older.key != message.key:
                continue
            if older.state == READY:
                older.state = GONE
            older.superseded = True

    def give_back(self, message: Message) -> bool:
        if message.superseded:
            message.state = GONE
            return False
        return super().give_back(message)


class SharedModel(ShelfModel):
    def group(self, message: Message) -> object:
        return "qpid.no-group" if message.key is None else message.key

    def groups_of_others(self, owner: Owner) -> set[object]:
        return {self.group(message) for message in self.in_state(DELIVERED) if message.owner != owner}


class StandardModel(SharedModel):
    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[object, Owner] = {}

    def group(self, message: Message) -> object:
        return None if message.key is None else crc32(str(message.key).encode()) % 255

    def groups_of_others(self, owner: Owner) -> set[object]:
        # A group that somebody owns is his alone, whoever holds what of it; without a group everything is free.
        unowned = super().groups_of_others(owner) - {None, *self.owners}
        return unowned | {group for group, other in self.owners.items() if other != owner}

    def deliver(self, owner: Owner, message: Message, ack_required: bool) -> None:
        super().deliver(owner, message, ack_required)
        if owner is not None and self.group(message) is not None:
            self.owners[self.group(message)] = owner

    def consumer_gone(self, owner: Owner) -> None:
        self.owners = {group: other for group, other in self.owners.items() if other != owner}


MODELS: dict[str, Callable[[], ShelfModel]] = {
    "fifo": ShelfModel,
    "sorted": SortedModel,
    "last-value": LastValueModel,
    "shared": SharedModel,
    "standard": StandardModel,
}
