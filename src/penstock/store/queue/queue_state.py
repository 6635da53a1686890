"""What has to be known about a queue to open it again, without its messages.

A state has counters, the live map, and the places of messages that the index does not know. A `RunPlace` says where
consecutive messages are: side by side in one journal batch or in the queue's store, or each in the shared store. A
queue makes a `QueueState` of itself for a checkpoint; recovery decodes it and applies the rows of the journal behind
it; the queue is opened from that.

Invariants
  1. `runs` are in the order of seq_ids, do not overlap, and stand for persistent messages only.
  2. Every live persistent message is in a run, or has a slot in an index segment that is named in `index_segments`.
  3. `count` and `size_bytes` are those of the live persistent messages.
  4. It is true for all journal rows below `lsn`, and for none from there on.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Final, final

from penstock.store.queue import places
from penstock.store.queue.live_map import LiveMap

_HEAD: Final = struct.Struct("<iqqqqqqqIIIII")
_RUN: Final = struct.Struct("<qIBBHiqiqi")
_MASK: Final = struct.Struct("<qI")
_PAIR: Final = struct.Struct("<qi")
# Set in a delivery count: the message may have been moved to another queue before.
_DOUBTFUL: Final = 1 << 30

# More than any configuration allows; keeps a damaged number from asking for all memory.
_SLOTS_MAX: Final = 1 << 20

# How the sizes of a run follow it.
_SIZES_EQUAL: Final = 0
_SIZES_LISTED: Final = 1


class BadState(Exception):
    """The bytes are not those of a queue's state."""


def addresses_count(kind: int, count: int) -> int:
    """Return how many numbers say where a run of messages is: the queue's store has the end of the last record too."""
    if kind == places.JOURNAL:
        return 0
    return count + 1 if kind == places.QUEUE_STORE else count


@final
class RunPlace:
    """Where consecutive messages are."""

    __slots__ = ("addresses", "count", "entry", "expiry_ms", "kind", "pos", "segment", "seq_id", "size_each", "sizes")

    def __init__(
        self,
        seq_id: int,
        count: int,
        kind: int,
        segment: int,
        pos: int,
        entry: int,
        expiry_ms: int,
        size_each: int,
        sizes: array[int] | None = None,
        addresses: array[int] | None = None,
    ) -> None:
        self.seq_id = seq_id
        self.count = count
        # places.JOURNAL, QUEUE_STORE or MSG_STORE.
        self.kind = kind
        # JOURNAL: the batch and its first entry. QUEUE_STORE: the file is `segment`.
        self.segment = segment
        self.pos = pos
        self.entry = entry
        # -1 = never.
        self.expiry_ms = expiry_ms
        # Payload bytes of each message, when they are all equal; else -1 and `sizes` tells.
        self.size_each = size_each
        self.sizes = sizes
        # MSG_STORE: the address of each message. QUEUE_STORE: where each record begins, and where the last one ends.
        self.addresses = addresses

    def size_bytes(self) -> int:
        return self.count * self.size_each if self.sizes is None else sum(self.sizes)

    def part(self, start: int, count: int) -> RunPlace:
        return RunPlace(
            self.seq_id + start,
            count,
            self.kind,
            self.segment,
            self.pos,
            self.entry + start,
            self.expiry_ms,
            self.size_each,
            None if self.sizes is None else self.sizes[start : start + count],
            None if self.addresses is None else self.addresses[start : start + addresses_count(self.kind, count)],
        )


@final
class QueueState:
    __slots__ = (
        "count",
        "delivery_counts",
        "doubtful",
        "doubtful_below",
        "home_below",
        "index_segments",
        "live",
        "lsn",
        "next_deliver_seq_id",
        "next_seq_id",
        "queue_id",
        "queue_no",
        "runs",
        "size_bytes",
        "vhost_id",
    )

    def __init__(self, vhost_id: str, queue_id: str, queue_no: int, slots: int) -> None:
        self.vhost_id = vhost_id
        self.queue_id = queue_id
        self.queue_no = queue_no
        self.lsn = 0
        self.next_seq_id = 0
        # Everything below it was handed out at least once.
        self.next_deliver_seq_id = 0
        self.live = LiveMap(slots)
        self.count = 0
        self.size_bytes = 0
        self.runs: list[RunPlace] = []
        # Failed deliveries of messages that came back, by seq_id.
        self.delivery_counts: dict[int, int] = {}
        # Messages that may have been moved to another queue before: these, each with a delivery count, and all below.
        self.doubtful: set[int] = set()
        self.doubtful_below = 0
        # Index segments that hold slots of persistent messages → how many of the slots lead to the shared store.
        self.index_segments: dict[int, int] = {}
        # Up to here messages have moved out of the journal. A moved slot behind it may lead to a record that was lost.
        self.home_below = 0

    # --- replay -------------------------------------------------------------------------------------

    def apply_published(
        self,
        seq_id: int,
        kind: int,
        segment: int,
        pos: int,
        entry: int,
        expiry_ms: int,
        sizes: array[int],
        addresses: array[int] | None = None,
    ) -> None:
        """A run was published. Seq_ids that were left out belonged to transient messages, and are gone."""
        count = len(sizes)
        if seq_id > self.next_seq_id:
            self.live.remove(self.next_seq_id, seq_id - self.next_seq_id)
        self.next_seq_id = seq_id + count
        total = sum(sizes)
        equal = sizes[0] * count == total and min(sizes) == sizes[0]
        run = RunPlace(
            seq_id,
            count,
            kind,
            segment,
            pos,
            entry,
            expiry_ms,
            sizes[0] if equal else -1,
            None if equal else sizes,
            addresses,
        )
        self.runs.append(run)
        self.count += count
        self.size_bytes += total

    def apply_gone(self, seq_id: int, count: int, size_bytes: int) -> None:
        """Persistent messages were settled."""
        self.live.remove(seq_id, count)
        self.count -= count
        self.size_bytes -= size_bytes
        if self.live.low >= self.next_seq_id:
            # Nothing is left. A purge says so with one row, without having counted.
            self.count = self.size_bytes = 0

    def apply_requeued(self, seq_ids: Sequence[int]) -> None:
        """Deliveries failed."""
        for seq_id in seq_ids:
            self.delivery_counts[seq_id] = self.delivery_counts.get(seq_id, 0) + 1

    def prune(self) -> None:
        """Leave out of the runs, and of the delivery counts, what is gone."""
        pruned: list[RunPlace] = []
        live = self.live
        for run in self.runs:
            for seq_id, count in live.live_runs(run.seq_id, run.seq_id + run.count):
                pruned.append(run if count == run.count else run.part(seq_id - run.seq_id, count))
        self.runs = pruned
        for seq_id in [seq_id for seq_id in self.delivery_counts if not live.is_live(seq_id)]:
            del self.delivery_counts[seq_id]
        self.doubtful.intersection_update(self.delivery_counts)

    # --- the checkpoint -------------------------------------------------------------------------------

    def encode(self) -> bytes:
        masks = self.live.masks()
        vhost_id = self.vhost_id.encode()
        queue_id = self.queue_id.encode()
        pieces = [
            _HEAD.pack(
                self.queue_no,
                self.lsn,
                self.next_seq_id,
                self.next_deliver_seq_id,
                self.live.low,
                self.count,
                self.size_bytes,
                self.home_below,
                self.live.slots,
                len(self.runs),
                len(masks),
                len(self.index_segments),
                len(self.delivery_counts) + (1 if self.doubtful_below else 0),
            ),
            b"%c%b%c%b" % (len(vhost_id), vhost_id, len(queue_id), queue_id),
        ]
        for segment, mask in masks.items():
            raw = mask.to_bytes((mask.bit_length() + 7) // 8, "little")
            pieces.append(_MASK.pack(segment, len(raw)))
            pieces.append(raw)
        pieces.extend([_PAIR.pack(segment, shared) for segment, shared in self.index_segments.items()])
        for seq_id, times in self.delivery_counts.items():
            times = min(times, _DOUBTFUL - 1)
            pieces.append(_PAIR.pack(seq_id, times | _DOUBTFUL if seq_id in self.doubtful else times))
        if self.doubtful_below:
            pieces.append(_PAIR.pack(-self.doubtful_below, 0))
        for run in self.runs:
            _encode_run(run, pieces)
        return b"".join(pieces)


def _encode_run(run: RunPlace, pieces: list[bytes]) -> None:
    how = _SIZES_EQUAL if run.sizes is None else _SIZES_LISTED
    pieces.append(
        _RUN.pack(
            run.seq_id,
            run.count,
            run.kind,
            how,
            0,
            run.segment,
            run.pos,
            run.entry,
            run.expiry_ms,
            run.size_each,
        )
    )
    if run.sizes is not None:
        pieces.append(run.sizes.tobytes())
    if run.addresses is not None:
        pieces.append(run.addresses.tobytes())


def decode_state(data: bytes) -> QueueState:
    """What `encode` made; the caller has checked that the bytes are whole."""
    try:
        return _decode(data)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise BadState(f"the state of a queue cannot be read: {error}") from error


def _decode(data: bytes) -> QueueState:
    head = _HEAD.unpack_from(data, 0)
    pos = _HEAD.size
    vhost_id, pos = _short_text(data, pos)
    queue_id, pos = _short_text(data, pos)
    if not 0 < head[8] <= _SLOTS_MAX:
        raise ValueError(f"{head[8]} messages per segment")
    state = QueueState(vhost_id, queue_id, head[0], head[8])
    state.lsn, state.next_seq_id, state.next_deliver_seq_id = head[1], head[2], head[3]
    state.live.low = head[4]
    state.count, state.size_bytes, state.home_below = head[5], head[6], head[7]
    for _ in range(head[10]):
        segment, length = _MASK.unpack_from(data, pos)
        pos += _MASK.size
        state.live.set_mask(segment, int.from_bytes(_exactly(data, pos, length), "little"))
        pos += length
    for _ in range(head[11]):
        segment, shared = _PAIR.unpack_from(data, pos)
        state.index_segments[segment] = shared
        pos += _PAIR.size
    for _ in range(head[12]):
        seq_id, times = _PAIR.unpack_from(data, pos)
        pos += _PAIR.size
        if seq_id < 0:
            state.doubtful_below = -seq_id
            continue
        if times & _DOUBTFUL:
            state.doubtful.add(seq_id)
        state.delivery_counts[seq_id] = times & ~_DOUBTFUL
    for _ in range(head[9]):
        run, pos = _decode_run(data, pos)
        state.runs.append(run)
    if pos != len(data):
        raise ValueError(f"{len(data) - pos} bytes too many")
    return state


def _decode_run(data: bytes, pos: int) -> tuple[RunPlace, int]:
    seq_id, count, kind, how, _, segment, place, entry, expiry_ms, size_each = _RUN.unpack_from(data, pos)
    pos += _RUN.size
    if count == 0 or kind not in (places.JOURNAL, places.QUEUE_STORE, places.MSG_STORE):
        raise ValueError(f"a run of {count} messages in place {kind}")
    sizes: array[int] | None = None
    addresses: array[int] | None = None
    if how == _SIZES_LISTED:
        sizes = array("i")
        sizes.frombytes(_exactly(data, pos, count * 4))
        pos += count * 4
    if kind != places.JOURNAL:
        addresses = array("q")
        length = addresses_count(kind, count) * 8
        addresses.frombytes(_exactly(data, pos, length))
        pos += length
    return RunPlace(seq_id, count, kind, segment, place, entry, expiry_ms, size_each, sizes, addresses), pos


def _exactly(data: bytes, pos: int, size: int) -> bytes:
    piece = data[pos : pos + size]
    if len(piece) != size:
        raise ValueError("the state ends too early")
    return piece


def _short_text(data: bytes, pos: int) -> tuple[str, int]:
    size = data[pos]
    return _exactly(data, pos + 1, size).decode(), pos + 1 + size
