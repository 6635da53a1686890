"""The entries of the batch that is gathered: properties and bodies, one entry for each message or text.

Nothing here looks at a single message: lists are extended, and lengths and heap are made of whole lists by C code when
the batch is encoded. Bodies are joined a few thousand at a time as they come, so that a large batch is not joined in
one go when it is written.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, final

from penstock.journal.format.encoding import Stamp, encode_batch
from penstock.message import Entry

# Bodies that are joined at a time.
FOLD_AFTER: Final = 4096


@final
class Entries:
    """Properties and bodies of one batch, numbered from 0."""

    __slots__ = (
        "_bodies",
        "_folded",
        "_folded_count",
        "_folded_len",
        "_props",
        "_props_len",
        "body_bytes",
        "props_bytes",
    )

    def __init__(self) -> None:
        self._props: list[bytes] = []
        self._props_len = array("i")
        self._bodies: list[bytes] = []
        # The bodies before these, joined, with their number and their lengths.
        self._folded: list[bytes] = []
        self._folded_count = 0
        self._folded_len = array("i")
        self.props_bytes = 0
        self.body_bytes = 0

    def add(self, properties: bytes, bodies: Sequence[bytes]) -> int:
        """Add entries of which the first has the properties; return its number."""
        first = self._next()
        self._bodies.extend(bodies)
        if properties:
            self._props.append(properties)
        self._props_len.append(len(properties))
        count = len(bodies)
        if count > 1:
            self._props_len.frombytes(bytes(4 * (count - 1)))
        self.props_bytes += len(properties)
        self.body_bytes += sum(map(len, bodies))
        return first

    def add_each(self, properties: Sequence[bytes], bodies: Sequence[bytes]) -> int:
        """Add entries that have properties of their own; return the number of the first."""
        first = self._next()
        self._bodies.extend(bodies)
        self._props.extend(properties)
        self._props_len.extend(map(len, properties))
        self.props_bytes += sum(map(len, properties))
        self.body_bytes += sum(map(len, bodies))
        return first

    def _next(self) -> int:
        """Return the number of the entry that is added next."""
        if len(self._bodies) >= FOLD_AFTER:
            self._folded.append(b"".join(self._bodies))
            self._folded_len.extend(map(len, self._bodies))
            self._folded_count += len(self._bodies)
            self._bodies = []
        return self._folded_count + len(self._bodies)

    def encode(self, stamp: Stamp, first_lsn: int, events: int, rows: list[bytes]) -> tuple[list[bytes], int]:
        """Return the batch of these rows and entries as a few pieces, and the checksum of its header."""
        body_len = array("i", self._folded_len)
        body_len.extend(map(len, self._bodies))
        bodies = self._folded + self._bodies
        return encode_batch(stamp, first_lsn, events, rows, self._props, self._props_len, bodies, body_len)


def stretch_end(entries: Sequence[Entry], start: int) -> int:
    """Return where the messages that can share a row with the first one end."""
    envelope = entries[start][0]
    at = start + 1
    while at < len(entries):
        other = entries[at][0]
        if other is not envelope and (
            other.address != envelope.address
            or other.priority != envelope.priority
            or other.persistent != envelope.persistent
        ):
            break
        at += 1
    return at
