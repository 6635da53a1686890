"""Which bytes of the log to read: ranges that tasks can read alone, cut at the marks of the segments' indexes.

The ranges of a plan follow each other and cover [from_lsn, to_lsn), LSNs that are lost on disk included: the range in
which a loss begins reports it. Only what the request cannot match is left out. Byte positions are a hint, LSNs decide:
an event belongs to the range that has its LSN.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.history.log import HistoryError, Log, Mark, SegmentGone, SegmentIndex, SegmentInfo
from penstock.journal.format.layout import FIRST_BATCH_AT, BatchHeader, decode_header
from penstock.pipeline.decode.request import Request

# Of a range, about. Rows with bodies take long, and the cores should share them evenly; without bodies a small task is
# over before it was worth starting.
TARGET_BYTES: Final = 64 * 1024 * 1024
TARGET_BYTES_WITH_BODIES: Final = 32 * 1024 * 1024
_TRIES: Final = 4

T = TypeVar("T")


class BehindRetention(HistoryError):
    """What is to be read has been removed already."""

    def __init__(self, from_lsn: int, first_lsn: int) -> None:
        super().__init__(
            f"events {from_lsn} to {first_lsn - 1} are no longer in the log: the reader was behind retention."
            " Read with failOnDataLoss=false to go on without them, and give the reader a name so that the broker"
            " keeps what it has not read"
        )
        self.from_lsn = from_lsn
        self.first_lsn = first_lsn

    def __reduce__(self) -> tuple[type[BehindRetention], tuple[int, int]]:
        return BehindRetention, (self.from_lsn, self.first_lsn)


@dataclass(frozen=True, slots=True)
class LogRange:
    """Events [from_lsn, to_lsn), in the bytes [from_pos, to_pos) of a segment or lost behind them."""

    segment: int
    from_pos: int
    to_pos: int
    from_lsn: int
    to_lsn: int


class Plan(list[LogRange]):
    """The ranges, oldest first."""

    # Events that were removed before they were read; more than 0 only without `fail_on_data_loss`.
    lost_events: int = 0


def plan(
    log: Log,
    from_lsn: int,
    to_lsn: int,
    target_bytes: int | None = None,
    request: Request | None = None,
    fail_on_data_loss: bool = True,
) -> Plan:
    """Cut [from_lsn, to_lsn) into ranges of about `target_bytes`. BehindRetention when its beginning is gone."""
    wanted = request if request is not None else Request()
    if target_bytes is None:
        target_bytes = TARGET_BYTES_WITH_BODIES if wanted.wants_bodies else TARGET_BYTES
    return _again_when_gone(lambda: _planned(log, from_lsn, to_lsn, target_bytes, wanted, fail_on_data_loss))


def _again_when_gone(work: Callable[[], T]) -> T:
    """Segments that are removed after the log was listed are not in the next listing."""
    for _ in range(_TRIES):
        with suppress(SegmentGone):
            return work()
    return work()


def _planned(
    log: Log, from_lsn: int, to_lsn: int, target_bytes: int, request: Request, fail_on_data_loss: bool
) -> Plan:
    state = log.state()
    ranges = Plan()
    if from_lsn < min(state.first_lsn, to_lsn):
        if fail_on_data_loss:
            raise BehindRetention(from_lsn, state.first_lsn)
        ranges.lost_events = min(state.first_lsn, to_lsn) - from_lsn
        from_lsn += ranges.lost_events
    to_lsn = min(to_lsn, state.end_lsn)
    for at, segment in enumerate(state.segments):
        # What is missing between two segments is reported by who reads the end of the first.
        is_last = at + 1 == len(state.segments)
        next_lsn = segment.next_lsn if is_last else max(segment.next_lsn, state.segments[at + 1].first_lsn)
        if segment.first_lsn < to_lsn and from_lsn < next_lsn and from_lsn < to_lsn:
            ranges += _cut(log.index(segment.number), segment, next_lsn, (from_lsn, to_lsn), target_bytes, request)
    return ranges


def _cut(
    index: SegmentIndex,
    segment: SegmentInfo,
    next_lsn: int,
    bounds: tuple[int, int],
    target_bytes: int,
    request: Request,
) -> list[LogRange]:
    """Return the ranges of one segment, whose LSNs end in front of `next_lsn`."""
    if not _names_a_queue(index, request):
        return []
    marks = marks_of(index, segment.begun_us)
    ranges: list[LogRange] = []
    for mark, to_pos, mark_end in _stretches(index, marks):
        from_lsn = max(mark.lsn, bounds[0])
        to_lsn = min(next_lsn if mark is marks[-1] else mark_end, bounds[1])
        if from_lsn >= to_lsn or not _may_match(mark, request):
            continue
        last = ranges[-1] if ranges else None
        goes_on = last is not None and last.to_pos == mark.pos and last.to_lsn == from_lsn
        # Where the stretch begins decides, not where it ends: the last one of a log grows, and the same events must be
        # cut in the same way each time. Keys of messages that a sink publishes are made of task and row.
        if last is not None and goes_on and mark.pos - last.from_pos < target_bytes:
            ranges[-1] = LogRange(segment.number, last.from_pos, to_pos, last.from_lsn, to_lsn)
        else:
            ranges.append(LogRange(segment.number, mark.pos, to_pos, from_lsn, to_lsn))
    return ranges


def marks_of(index: SegmentIndex, begun_us: int) -> list[Mark]:
    """Return the marks, the first of which has the segment's first LSN even if its first batches are unreadable."""
    marks = list(index.marks)
    if not marks or marks[0].lsn > index.first_lsn:
        marks.insert(0, Mark(FIRST_BATCH_AT, index.first_lsn, begun_us, begun_us))
    return marks


def _names_a_queue(index: SegmentIndex, request: Request) -> bool:
    if request.queues is None and request.vhost is None:
        return True
    return any(is_wanted(name, request) for name in index.queues.values())


def is_wanted(name: dict[str, object], request: Request) -> bool:
    """Return whether the filters let a queue pass."""
    if request.vhost is not None and name.get("vhost") != request.vhost:
        return False
    return request.queues is None or name.get("queue") in request.queues


def _may_match(mark: Mark, request: Request) -> bool:
    if request.min_us is not None and mark.max_us < request.min_us:
        return False
    return request.max_us is None or mark.min_us < request.max_us


# --- positions ----------------------------------------------------------------------------------------


def lsn_at_time(log: Log, us: int) -> int:
    """LSN of the first batch that was written at this wall clock or later; the end of the log when there is none."""
    state = log.state()
    for segment in state.segments:
        index = log.index(segment.number)
        for mark, to_pos, _ in _stretches(index, list(index.marks)):
            if mark.max_us < us:
                continue
            for header in _headers(log, segment.number, mark.pos, to_pos):
                if header.wall_us >= us:
                    return header.first_lsn
    return state.end_lsn


def bytes_until(log: Log, from_lsn: int, max_bytes: int) -> int:
    """Return an LSN behind `from_lsn`, where a batch ends, with at most about `max_bytes` of the log between the two.

    At least one batch, however large it is; the end of the log when there is less.
    """
    return _again_when_gone(lambda: _bytes_until(log, from_lsn, max_bytes))


def _bytes_until(log: Log, from_lsn: int, max_bytes: int) -> int:
    state = log.state()
    left = max_bytes
    begin = reached = max(from_lsn, state.first_lsn)
    for segment in state.segments:
        if segment.next_lsn <= reached:
            continue
        index = log.index(segment.number)
        marks = marks_of(index, segment.begun_us)
        at = max(bisect_right([mark.lsn for mark in marks], reached) - 1, 0)
        for mark, to_pos, to_lsn in _stretches(index, marks)[at:]:
            if to_pos - mark.pos > left:
                for header in _headers(log, segment.number, mark.pos, to_pos):
                    if reached > begin and header.end - mark.pos > left:
                        return reached
                    reached = max(reached, header.first_lsn + header.events)
                return max(reached, to_lsn)
            left -= to_pos - mark.pos
            reached = max(reached, to_lsn)
    return max(state.end_lsn, begin)


def _stretches(index: SegmentIndex, marks: list[Mark]) -> list[tuple[Mark, int, int]]:
    """Return each mark with the position and the LSN of the next one."""
    ends = [(mark.pos, mark.lsn) for mark in marks[1:]]
    # An empty mapping of marks has no end either.
    ends += [(max(index.end_pos, FIRST_BATCH_AT), index.next_lsn)] if marks else []
    return [(mark, pos, lsn) for mark, (pos, lsn) in zip(marks, ends, strict=True)]


def _headers(log: Log, segment: int, from_pos: int, to_pos: int) -> list[BatchHeader]:
    """Return the batches with events between two marks, as far as they can be followed."""
    data = log.read(segment, from_pos, to_pos - from_pos)
    found = []
    pos = from_pos
    while pos < to_pos:
        header = decode_header(data, pos - from_pos, segment, pos)
        if header is None:
            break
        if header.events > 0:
            found.append(header)
        pos = header.end
    return found
