"""What a channel has delivered and the client has not yet settled, by delivery tag.

Tags of a delivered run are consecutive, as are its seq_ids, so a stretch only keeps the difference between the two.
Adding a run makes one stretch, and settling it as a whole costs the same for one tag and for hundreds; settling a part
cuts it. Tags in the middle of a stretch are found through buckets of neighbouring tags. What a client says about a tag
that has lapsed is accepted once, and settles nothing.

Invariants
  1. A tag is in exactly one stretch from its delivery to its settling, and in none otherwise.
  2. No stretch begins below `_lowest`, and none is longer than a bucket.
  3. Tags grow: a run that is added starts above all tags that were ever added.
  4. A tag that has lapsed is in no stretch.
"""

from __future__ import annotations

from typing import Final, final

from penstock.errors import ChannelException, precondition_failed
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.queue import Queue
from penstock.server.channel.lapsed_tags import LapsedTags


@final
class UnackedRun:
    """Where the messages of consecutive tags came from."""

    __slots__ = ("consumer", "due_ms", "offset", "queue")

    def __init__(self, queue: Queue, consumer: Consumer | None, offset: int, due_ms: int = -1) -> None:
        self.queue = queue
        # None for basic.get.
        self.consumer = consumer
        # seq_id = tag + offset.
        self.offset = offset
        # When it lapses, by the wall clock; -1 = never.
        self.due_ms = due_ms


# Consecutive messages of one run: (run, first seq_id, count).
Span = tuple[UnackedRun, int, int]
# Consecutive tags: (run, count); the first tag is the key.
Stretch = tuple[UnackedRun, int]

# Tags per bucket: as many as are delivered at once.
BUCKET: Final = 256


@final
class Unacked:
    __slots__ = ("_count", "_lapsed", "_left", "_lowest", "_starts", "_stretches")

    def __init__(self) -> None:
        # None: no tag of this channel has ever lapsed.
        self._lapsed: LapsedTags | None = None
        self._stretches: dict[int, Stretch] = {}
        # A bit for each first tag, by bucket.
        self._starts: dict[int, int] = {}
        self._count = 0
        self._lowest = 1
        # First tags of what `take_oldest` has still to take, the oldest last.
        self._left: list[int] = []

    def __len__(self) -> int:
        return self._count

    def add(self, first_tag: int, count: int, run: UnackedRun) -> None:
        while count > BUCKET:
            self._put(first_tag, BUCKET, run)
            first_tag += BUCKET
            count -= BUCKET
        self._put(first_tag, count, run)

    def _put(self, first_tag: int, count: int, run: UnackedRun) -> None:
        self._stretches[first_tag] = (run, count)
        self._count += count
        bucket = first_tag // BUCKET
        self._starts[bucket] = self._starts.get(bucket, 0) | 1 << first_tag % BUCKET

    def _start_of(self, tag: int) -> int:
        """Return the first tag of the stretch that has this one; -1 when it is unknown."""
        if tag in self._stretches:
            return tag
        bucket = tag // BUCKET
        # The nearest one before it, or none: they do not overlap.
        before = self._starts.get(bucket, 0) & ((1 << tag % BUCKET) - 1)
        if not before:
            bucket -= 1
            before = self._starts.get(bucket, 0)
            if not before:
                return -1
        start = bucket * BUCKET + before.bit_length() - 1
        return start if tag < start + self._stretches[start][1] else -1

    def _cut(self, start: int, first_tag: int, last_tag: int) -> Span:
        """Take tags out of a stretch, at most up to its end; what is left of it stays."""
        run, count = self._stretches.pop(start)
        bucket = start // BUCKET
        starts = self._starts[bucket] ^ 1 << start % BUCKET
        if starts:
            self._starts[bucket] = starts
        else:
            del self._starts[bucket]
        self._count -= count
        end = start + count
        stop = min(end, last_tag + 1)
        if first_tag > start:
            self._put(start, first_tag - start, run)
        if stop < end:
            self._put(stop, end - stop, run)
        return (run, first_tag + run.offset, stop - first_tag)

    def take(self, first_tag: int, last_tag: int) -> list[Span]:
        """Settle each of the tags; all must be known, or none is settled."""
        tag = first_tag
        starts: list[int] = []
        while tag <= last_tag:
            start = self._start_of(tag)
            if start < 0:
                if self._lapsed is not None:
                    return self._take_with_lapsed(self._lapsed, first_tag, last_tag)
                raise unknown_tag(tag)
            starts.append(start)
            tag = start + self._stretches[start][1]
        spans: list[Span] = []
        tag = first_tag
        for start in starts:
            span = self._cut(start, tag, last_tag)
            spans.append(span)
            tag += span[2]
        if first_tag == self._lowest:
            self._lowest = last_tag + 1
        return spans

    def take_through(self, tag: int) -> list[Span]:
        """Settle every tag up to this one, which must be known; 0 stands for all there are."""
        if tag == 0:
            self._lapsed = None
            return self.take_all()
        if self._start_of(tag) < 0 and (self._lapsed is None or tag not in self._lapsed):
            raise unknown_tag(tag)
        if self._lapsed is not None:
            self._lapsed.discard(1, tag)
        return self._take_through(tag)

    def _take_with_lapsed(self, lapsed: LapsedTags, first_tag: int, last_tag: int) -> list[Span]:
        """Like `take`, where some of the tags may have lapsed."""
        known: list[int] = []
        for tag in range(first_tag, last_tag + 1):
            if self._start_of(tag) >= 0:
                known.append(tag)
            elif tag not in lapsed:
                raise unknown_tag(tag)
        lapsed.discard(first_tag, last_tag)
        return joined([self._cut(self._start_of(tag), tag, tag) for tag in known])

    def lapse(self, now_ms: int) -> list[Span]:
        """Take what the client has not settled in time."""
        due = [start for start, stretch in self._stretches.items() if 0 <= stretch[0].due_ms <= now_ms]
        if not due:
            return []
        if self._lapsed is None:
            self._lapsed = LapsedTags()
        spans: list[Span] = []
        for start in sorted(due):
            last_tag = start + self._stretches[start][1] - 1
            self._lapsed.add(start, last_tag)
            spans.append(self._cut(start, start, last_tag))
        return joined(spans)

    def next_due_ms(self) -> int:
        """When the next delivery lapses; -1 when none does."""
        due = [stretch[0].due_ms for stretch in self._stretches.values() if stretch[0].due_ms >= 0]
        return min(due) if due else -1

    def stretch_count(self) -> int:
        """Return how many stretches `lapse` looks at."""
        return len(self._stretches)

    def take_all(self) -> list[Span]:
        """Settle all, in the order of delivery."""
        return self.take_oldest(len(self._stretches))

    def take_oldest(self, stretches_max: int) -> list[Span]:
        """Settle some, in the order of delivery. Nothing may be added or settled until all are taken."""
        stretches = self._stretches
        if not stretches:
            return []
        left = self._left
        if not left:
            left = self._left = sorted(stretches, reverse=True)
        spans: list[Span] = []
        last_run: UnackedRun | None = None
        length = end = 0
        for _ in range(min(stretches_max, len(left))):
            tag = left.pop()
            run, count = stretches.pop(tag)
            if run is last_run and tag == end:
                length += count
                spans[-1] = (run, spans[-1][1], length)
            else:
                spans.append((run, tag + run.offset, count))
                last_run, length = run, count
            end = tag + count
        self._lowest = end
        if not stretches:
            self._starts, self._count = {}, 0
        return spans

    def queues(self) -> dict[Queue, None]:
        return dict.fromkeys([run.queue for run, _ in self._stretches.values()])

    def _take_through(self, last_tag: int) -> list[Span]:
        spans: list[Span] = []
        tag = self._lowest
        # Clients that settle in order have no holes: one stretch follows the other.
        while tag <= last_tag and tag in self._stretches:
            span = self._cut(tag, tag, last_tag)
            spans.append(span)
            tag += span[2]
        if tag <= last_tag:
            for start in sorted([start for start in self._stretches if start <= last_tag]):
                spans.append(self._cut(start, start, last_tag))
        self._lowest = last_tag + 1
        return joined(spans)

    def restore(self, spans: list[Span]) -> None:
        """Make taken deliveries unsettled again."""
        for span in spans:
            tag = first_tag(span)
            self.add(tag, span[2], span[0])
            self._lowest = min(self._lowest, tag)


def first_tag(span: Span) -> int:
    """Where the tags of a span begin."""
    return span[1] - span[0].offset


def joined(spans: list[Span]) -> list[Span]:
    """Spans that follow each other in one run as one."""
    if len(spans) < 2:
        return spans
    found = spans[:1]
    for run, first_seq_id, count in spans[1:]:
        last_run, last_first, last_count = found[-1]
        if run is last_run and last_first + last_count == first_seq_id:
            found[-1] = (run, last_first, last_count + count)
        else:
            found.append((run, first_seq_id, count))
    return found


def unknown_tag(tag: int) -> ChannelException:
    return precondition_failed(f"unknown delivery tag {tag}")
