"""The large body at the head of a queue, read beside the loop before it is fetched.

A queue has one at most. It is read when a consumer or a basic.get wants it, and is fetched in the turn in which it has
come. One that nobody takes then, because its consumer is gone, is forgotten a little later.

Invariants
  1. What is kept is the body of the key, checked; another head begins anew, and what was under way is ignored.
  2. Who waits is told when a reading ends, also when another body is wanted by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from penstock.message import Envelope
from penstock.store.shared.message_store import MessageStore

# Looks (some a second) after which a body that nobody has taken is forgotten.
LOOKS_MAX: Final = 2

# Where it is: in the persistent store or not, and the address there.
Key = tuple[bool, int]
NO_KEY: Final[Key] = (False, -1)


@final
class BodyAhead:
    __slots__ = ("_came", "_found", "_is_shared", "_key", "_looks", "is_reading")

    def __init__(self, came: Callable[[], None], is_shared: bool = False) -> None:
        """`came` is called at the end of each reading; if it is shared, also when a body is forgotten."""
        self._came = came
        self._is_shared = is_shared
        self._key = NO_KEY
        self._found: tuple[Envelope, bytes] | None = None
        self._looks = 0
        self.is_reading = False

    def begin(self, store: MessageStore, is_persistent: bool, address: int) -> bool:
        """Return whether the body is being read, from now on if need be. False: it is there, or is read at once."""
        key = (is_persistent, address)
        if key != self._key:
            self.forget()
            if store.read_later(address, Coming(self, key).came):
                self._key = key
                self.is_reading = True
        return self.is_reading

    def begin_in_turn(self, store: MessageStore, is_persistent: bool, address: int) -> bool:
        """As `begin`, for several who want different bodies: True also while another one is read, or waits to be taken.

        `came` is called when that is over.
        """
        is_free = not self.is_reading and self._found is None
        return (
            True if (is_persistent, address) != self._key and not is_free else self.begin(store, is_persistent, address)
        )

    def came(self, key: Key, found: tuple[Envelope, bytes] | None) -> None:
        if key == self._key and self.is_reading:
            self._found = found
            self._looks = 0
            self.is_reading = False
        self._came()

    def take(self, is_persistent: bool, address: int) -> tuple[Envelope, bytes] | None:
        """Return the message if it was read; then it is not kept any longer."""
        if (is_persistent, address) != self._key or self.is_reading:
            return None
        found = self._found
        self.forget()
        return found

    def look(self) -> None:
        """Called now and then: forget a body that nobody takes."""
        self._looks += 1
        if not self.is_reading and self._looks >= LOOKS_MAX:
            was_kept = self._found is not None
            self.forget()
            if was_kept and self._is_shared:
                self._came()

    def forget(self) -> None:
        self._key = NO_KEY
        self._found = None
        self.is_reading = False

    def ram_bytes(self) -> int:
        return 0 if self._found is None else len(self._found[1])


@final
class Coming:
    """Brings one body."""

    __slots__ = ("_ahead", "_key")

    def __init__(self, ahead: BodyAhead, key: Key) -> None:
        self._ahead = ahead
        self._key = key

    def came(self, found: tuple[Envelope, bytes] | None) -> None:
        self._ahead.came(self._key, found)
