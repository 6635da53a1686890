"""The entries of a group: properties and bodies by number, as Arrow arrays, and which of them are damaged.

Entries are numbered through the whole group. A body on disk ends with one octet more than the payload has; a reference
is the address of a body in the shared store.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from penstock.journal.format.layout import BLOCK_BYTES, REFERENCE_BODY
from penstock.message import FRAME_END
from penstock.pipeline.decode.group.group import Bools, Group, Ints

INT32_MAX: Final = 2**31 - 1


@final
class Entries:
    def __init__(self, group: Group) -> None:
        self._group = group
        # Counting events needs no more of them than this.
        self.disk_lengths = group.lengths()
        self.count = len(self.disk_lengths[0])
        self.counts: Ints = np.array([batch.entries for batch in group.batches])
        self._first: Ints = np.cumsum(self.counts) - self.counts
        self._properties: Any = None
        self._bodies: Any = None

    @cached_property
    def props_len(self) -> Ints:
        return self.disk_lengths[0].astype(np.int64)

    @cached_property
    def body_len(self) -> Ints:
        return self.disk_lengths[1].astype(np.int64)

    @cached_property
    def _body_at(self) -> Ints:
        """In all bodies together."""
        return np.cumsum(self.body_len) - self.body_len

    @property
    def payload_len(self) -> Ints:
        """Payload bytes of those that are no references."""
        return self.body_len - len(FRAME_END)

    def body(self, number: int, entry: int) -> bytes | None:
        """What is on disk as the body of an entry, checked; None when it is damaged."""
        start = self._group.batches[number].props_bytes + int(self._body_at[entry] - self._body_at[self._first[number]])
        return self._group.stretch(number, start, int(self.body_len[entry]))

    def reference(self, number: int, entry: int) -> tuple[int, int] | None:
        """Return address and payload bytes of a body in the shared store; None when they are damaged."""
        octets = self.body(number, entry)
        if octets is None or len(octets) != REFERENCE_BODY.size:
            return None
        address, size = REFERENCE_BODY.unpack(octets)
        return address, size

    def names(self, batches: Ints, entries: Ints) -> list[bytes | None]:
        """What is on disk as the bodies of a few entries of these batches; None for those that are damaged."""
        if not self._group.is_whole:
            return [self.body(batch, entry) for batch, entry in zip(batches.tolist(), entries.tolist(), strict=True)]
        window = self._group.window
        starts = self._body_starts[entries]
        bounds = zip(starts.tolist(), (starts + self.body_len[entries]).tolist(), strict=True)
        return [bytes(window[start:end]) for start, end in bounds]

    @property
    def window(self) -> memoryview:
        """What holds them all."""
        return self._group.window

    def property_bounds(self, entries: Ints) -> tuple[Ints, Ints]:
        """Where the properties of some entries begin and end in the window."""
        starts = self._property_starts[entries]
        return starts, starts + self.props_len[entries]

    def distinct_properties(self, entries: Ints) -> pa.Array:
        """Return the octets of the properties of some entries, which come in their order and each once."""
        return _evens(cut_out(self._group.window, *self.property_bounds(entries)))

    def properties(self, entries: Ints, mask: Bools | None = None) -> pa.Array:
        """Return the octets of the properties of some entries; null where the mask is set."""
        if self._properties is None:
            self._properties = cut_out(self._group.window, *self.property_bounds(np.arange(self.count)))
        return _taken(self._properties, entries, mask)

    def bodies(self, entries: Ints, mask: Bools | None = None) -> pa.Array:
        """Return the payloads of some entries; null where the mask is set."""
        if self._bodies is None:
            starts = self._body_starts
            # The text of a name may be empty; it is no message, and is not asked for.
            self._bodies = cut_out(self._group.window, starts, starts + np.maximum(self.payload_len, 0))
        return _taken(self._bodies, entries, mask)

    @cached_property
    def _property_starts(self) -> Ints:
        heap_at = np.array([batch.heap_at for batch in self._group.batches])
        return self._starts(np.cumsum(self.props_len) - self.props_len, heap_at)

    @cached_property
    def _body_starts(self) -> Ints:
        heap_at = np.array([batch.heap_at + batch.props_bytes for batch in self._group.batches])
        return self._starts(self._body_at, heap_at)

    def _starts(self, before: Ints, section_at: Ints) -> Ints:
        """Where entries begin in the window, if `before` is what all entries before them take."""
        first = np.minimum(self._first, max(self.count - 1, 0))
        base = section_at - before[first] if self.count else section_at
        return before + np.repeat(base, self.counts)

    def bad_properties(self) -> Bools | None:
        """Return entries whose own properties touch a damaged block; None when there are none."""
        return self._bad(self.props_len, [0] * len(self._first))

    def bad_bodies(self) -> Bools | None:
        return self._bad(self.body_len, [batch.props_bytes for batch in self._group.batches])

    def _bad(self, lengths: Ints, section_at: list[int]) -> Bools | None:
        if not self._group.bad_blocks:
            return None
        bad = np.zeros(self.count, dtype=np.bool_)
        for number, blocks in self._group.bad_blocks.items():
            batch = self._group.batches[number]
            first = int(self._first[number])
            part = lengths[first : first + batch.entries]
            ends = np.cumsum(part) + section_at[number]
            # Blocks that were not checked are those of bodies that are not wanted.
            bad_before = np.zeros(batch.heap_bytes // BLOCK_BYTES + 2, dtype=np.int64)
            bad_before[1 : len(blocks) + 1] = np.cumsum(blocks)
            bad_before[len(blocks) + 1 :] = bad_before[len(blocks)]
            touched = bad_before[(ends - 1) // BLOCK_BYTES + 1] - bad_before[(ends - part) // BLOCK_BYTES]
            bad[first : first + len(part)] = (part > 0) & (touched > 0)
        return bad


def cut_out(window: memoryview, starts: Ints, ends: Ints) -> pa.Array:
    """Return the stretches of a window at the even places of an array; what stands between them is at the odd ones."""
    offsets = np.empty(2 * len(starts), dtype=np.int64)
    offsets[0::2] = starts
    offsets[1::2] = ends
    size = max(len(offsets) - 1, 0)
    if not size:
        return pa.array([], pa.binary())
    if offsets[-1] > INT32_MAX:
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), size, [None, pa.py_buffer(offsets), pa.py_buffer(window)]
        )
    return pa.BinaryArray.from_buffers(
        pa.binary(), size, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(window)]
    )


def taken(values: pa.Array, places: Ints) -> pa.Array:
    """Return some of the values; null where the place is negative."""
    if len(places) and places[0] >= 0 and (np.diff(places) == 1).all():
        return values.slice(int(places[0]), len(places))
    return values.take(pa.array(places, mask=places < 0))


def _evens(values: pa.Array) -> pa.Array:
    """What `cut_out` has cut out."""
    return values.take(pa.array(np.arange(0, len(values), 2))).cast(pa.binary())


def _taken(values: pa.Array, entries: Ints, mask: Bools | None) -> pa.Array:
    return values.take(pa.array(entries * 2, mask=mask)).cast(pa.binary())
