"""What a channel has delivered and the client has not yet settled, by delivery tag.

Tags of a delivered run are consecutive, as are its seq_ids, so a stretch only keeps the difference between the two.
Adding a run makes one stretch, and settling it as a whole costs the same for one tag and for hundreds; settling a part
cuts it. Tags in the middle of a stretch are found through buckets of neighbouring tags. What a client says about a tag
that has lapsed is accepted once, and settles nothing.

One act may settle any number of stretches. What is too many for one turn is detached, which costs little for each of
them, and is then taken a few at a time.

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

# Deliveries that were settled together in a transaction, what was detached of them because they are so many, and how.
TxSettled = tuple[list[Span], "Unacked | None", int]

# Tags per bucket: as many as are delivered at once.
BUCKET: Final = 256


@final
class Unacked:
    __slots__ = ("_lapsed", "_left", "_lowest", "_starts", "_stretches", "_undone")

    def __init__(self) -> None:
        # None: no tag of this channel has ever lapsed.
        self._lapsed: LapsedTags | None = None
        self._stretches: dict[int, Stretch] = {}
        # A bit for each first tag, by bucket.
        self._starts: dict[int, int] = {}
        self._lowest = 1
        # First tags of what `take_oldest` has still to take, the oldest last.
        self._left: list[int] = []
        # What a transaction that ended with its channel had settled. It is restored before any is taken.
        self._undone: list[TxSettled] = []

    def __len__(self) -> int:
        """Return how many deliveries there are. It counts them: an answer for tests."""
        return sum([count for _, count in self._stretches.values()])

    def add(self, first_tag: int, count: int, run: UnackedRun) -> None:
        while count > BUCKET:
            self._put(first_tag, BUCKET, run)
            first_tag += BUCKET
            count -= BUCKET
        self._put(first_tag, count, run)

    def _put(self, first_tag: int, count: int, run: UnackedRun) -> None:
        self._stretches[first_tag] = (run, count)
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

    def take_through(self, tag: int, stretches_max: int) -> list[Span]:
        """Settle every tag up to this one, which must be known; 0 stands for all there are.

        No more stretches than `stretches_max` are taken; `detach_through` has the others.
        """
        if tag == 0:
            self._lapsed = None
            return self.take_some(stretches_max)
        if self._start_of(tag) < 0 and (self._lapsed is None or tag not in self._lapsed):
            raise unknown_tag(tag)
        if self._lapsed is not None:
            self._lapsed.discard(1, tag)
        return self._take_through(tag, stretches_max)

    def take_some(self, stretches_max: int) -> list[Span]:
        """Settle the oldest, whatever their tags."""
        if not self._stretches:
            return []
        return self._take_through(self._last_tag(), stretches_max)

    def _last_tag(self) -> int:
        bucket = max(self._starts)
        start = bucket * BUCKET + self._starts[bucket].bit_length() - 1
        return start + self._stretches[start][1] - 1

    def detach_through(self, tag: int) -> Unacked | None:
        """Take what is left up to this tag as an object of its own, from which it is settled; None: nothing is left.

        0 stands for all there are, which costs nothing; else about a tenth of a microsecond for each stretch.
        """
        if not self._stretches or 0 < tag < self._lowest:
            return None
        detached = Unacked()
        detached._lowest = self._lowest
        if tag == 0:
            self._lowest = self._last_tag() + 1
            detached._stretches, self._stretches = self._stretches, {}
            detached._starts, self._starts = self._starts, {}
            return detached
        start = self._start_of(tag)
        if start >= 0:
            # What the stretch has behind the tag stays.
            run, _, count = self._cut(start, start, tag)
            self._put(start, count, run)
        # The smaller part is moved.
        stretches = self._stretches
        low = [first for first in stretches if first <= tag]
        if 2 * len(low) <= len(stretches):
            detached._stretches = {first: stretches.pop(first) for first in low}
        else:
            high = [first for first in stretches if first > tag]
            self._stretches = {first: stretches.pop(first) for first in high}
            detached._stretches = stretches
        self._divide_starts(detached, tag)
        self._lowest = tag + 1
        return detached

    def _divide_starts(self, detached: Unacked, tag: int) -> None:
        """Let a detached part have the buckets up to a tag."""
        last = tag // BUCKET
        detached._starts = {bucket: starts for bucket, starts in self._starts.items() if bucket < last}
        shared = self._starts.get(last, 0)
        self._starts = {bucket: starts for bucket, starts in self._starts.items() if bucket > last}
        below = shared & ((2 << tag % BUCKET) - 1)
        if below:
            detached._starts[last] = below
        if shared != below:
            self._starts[last] = shared ^ below

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

    def lapse(self, now_ms: int, stretches_max: int) -> list[Span]:
        """Take what the client has not settled in time, the oldest first and no more stretches than that."""
        due = [start for start, stretch in self._stretches.items() if 0 <= stretch[0].due_ms <= now_ms]
        if not due:
            return []
        if self._lapsed is None:
            self._lapsed = LapsedTags()
        spans: list[Span] = []
        for start in sorted(due)[:stretches_max]:
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
            self._starts = {}
        return spans

    def is_empty(self) -> bool:
        return not self._stretches and not self._undone

    def queues(self) -> dict[Queue, None]:
        found = dict.fromkeys([stretch[0].queue for stretch in self._stretches.values()])
        found.update(dict.fromkeys([run.queue for spans, _, _ in self._undone for run, _, _ in spans]))
        for detached in [detached for _, detached, _ in self._undone if detached is not None]:
            found.update(detached.queues())
        return found

    def _take_through(self, last_tag: int, stretches_max: int) -> list[Span]:
        spans: list[Span] = []
        tag = self._lowest
        # Clients that settle in order have no holes: one stretch follows the other.
        while tag <= last_tag and tag in self._stretches and len(spans) < stretches_max:
            span = self._cut(tag, tag, last_tag)
            spans.append(span)
            tag += span[2]
        self._lowest = tag
        if tag > last_tag:
            return joined(spans)
        # One more than is taken, to know where the rest begins.
        starts = self._oldest_through(last_tag, stretches_max - len(spans) + 1)
        self._lowest = last_tag + 1
        if len(spans) + len(starts) > stretches_max:
            self._lowest = starts.pop()
        for start in starts:
            spans.append(self._cut(start, start, last_tag))
        return joined(spans)

    def _oldest_through(self, last_tag: int, count: int) -> list[int]:
        """Return the first tags of the oldest stretches that begin up to a tag, in order."""
        first_bucket, last_bucket = self._lowest // BUCKET, last_tag // BUCKET
        if last_bucket - first_bucket < len(self._starts):
            buckets = list(range(first_bucket, last_bucket + 1))
        else:
            buckets = sorted([bucket for bucket in self._starts if bucket <= last_bucket])
        found: list[int] = []
        for bucket in buckets:
            starts = self._starts.get(bucket, 0)
            while starts:
                lowest = starts & -starts
                start = bucket * BUCKET + lowest.bit_length() - 1
                if start > last_tag or len(found) == count:
                    return found
                found.append(start)
                starts ^= lowest
        return found

    def restore(self, spans: list[Span], detached: Unacked | None) -> None:
        """Make deliveries unsettled again that were taken together, and of which some may be detached."""
        for span in spans:
            tag = first_tag(span)
            self.add(tag, span[2], span[0])
            self._lowest = min(self._lowest, tag)
        if detached is not None:
            self._stretches.update(detached._stretches)
            for bucket, starts in detached._starts.items():
                self._starts[bucket] = self._starts.get(bucket, 0) | starts
            self._lowest = min(self._lowest, detached._lowest)

    def undo(self, settled: list[TxSettled]) -> None:
        """The transaction is over with its channel: what it had settled is unsettled again."""
        self._undone = settled

    def restore_undone(self, count: int) -> bool:
        """Restore some of what was undone; return whether there was any."""
        undone = self._undone
        if not undone:
            return False
        for spans, detached, _ in undone[-count:]:
            self.restore(spans, detached)
        del undone[-count:]
        return True


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
