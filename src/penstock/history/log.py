"""The contract of a log: what a reader of history asks, wherever the journal is.

A *log* is the journal of one data folder, from its oldest segment that is still there to the last event that is
known to be durable. Positions are LSNs: every event has one, they have no gaps, and an event keeps its own for ever.
So [from_lsn, to_lsn) names the same events each time it is read. What is not yet known to be durable is not in the
log: a crash could take it away, and give its LSNs to other events.

A *reader* is a name with a cursor: everything below the cursor it has put somewhere safe. The broker keeps what a
reader has not read, up to a limit (`store.reader_cursors`, `store.retention`).

Two implementations: `folder_log.FolderLog` reads the folder of a broker that runs or does not, `http_log.HttpLog` asks
a running broker (`endpoint`). Both are made by `opening.open_log` from a text, so that another process can open the
same log again. A log is used by one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any


class HistoryError(Exception):
    """A log cannot be read or a cursor cannot be set. The text is for people, and says what to do next."""


class SegmentGone(HistoryError):
    """A segment that was there has been removed since: retention was faster than the reader."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment of the log, without a look inside."""

    number: int
    first_lsn: int
    # Behind its last durable event. For the newest segment this grows.
    next_lsn: int
    # Bytes that hold durable batches: nothing is to be read behind them.
    bytes: int
    begun_us: int


@dataclass(frozen=True, slots=True)
class LogState:
    """What there is to read now."""

    # Of the data folder; another one is another log. Empty as long as no broker has given it one.
    log_id: str
    # [first_lsn, end_lsn) can be read.
    first_lsn: int
    end_lsn: int
    # Wall clock of the last durable batch, µs; 0 when there is none.
    end_us: int
    # Oldest first.
    segments: tuple[SegmentInfo, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A batch in a segment at which reading can begin. There is one every `MARK_BYTES` or so, and at the first."""

    pos: int
    lsn: int
    # The smallest and the largest wall clock of the batches from this mark to the next one, µs.
    min_us: int
    max_us: int


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """What has to be known to read any part of a segment alone."""

    number: int
    first_lsn: int
    next_lsn: int
    # Behind the last durable batch.
    end_pos: int
    marks: tuple[Mark, ...]
    # Texts of NAME rows by number: queues {"vhost": …, "queue": …, "vhost_id": …}, consumers {"consumer": …,
    # "connection": …}. The vhost is None where the text is of another form.
    queues: dict[int, dict[str, Any]] = field(default_factory=dict)
    consumers: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A named reader, as the broker sees it."""

    name: str
    # Everything below is safe with the reader.
    lsn: int
    updated_us: int
    # Events and bytes of the log that it has not read, and how far behind in time it is.
    lag_events: int
    lag_bytes: int
    lag_s: float
    # Events that were removed before it had read them; 0 as long as it keeps up.
    lost_events: int


class Log(ABC):
    @property
    @abstractmethod
    def source(self) -> str:
        """The text that `open_log` makes it from again; without a password."""

    @abstractmethod
    def state(self) -> LogState:
        """What there is now. Costs little when nothing has changed."""

    @abstractmethod
    def index(self, number: int) -> SegmentIndex:
        """Return the index of a segment, as far as it is durable. SegmentGone when it was removed."""

    @abstractmethod
    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return bytes of a segment; fewer at its end. SegmentGone when it was removed."""

    def view(self, number: int, offset: int, size: int) -> memoryview:
        """Return the same as `read`, without a copy where the log can. What is durable does not change under a view.

        For processes that may end when a disk fails (`mapped_segment`).
        """
        return memoryview(self.read(number, offset, size))

    @abstractmethod
    def shared_body(self, queue_no: int, address: int, size: int) -> bytes | None:
        """A body that stands in the shared store, by its address in a reference; None when it is not there any more.

        Large bodies leave the disk when their message is settled: history then has their size alone.
        """

    @abstractmethod
    def set_cursor(self, name: str, lsn: int) -> None:
        """Everything below `lsn` is safe with the reader. A cursor only grows; a smaller one changes nothing.

        The first call makes the reader. HistoryError when the name is not allowed or there are too many readers.
        """

    @abstractmethod
    def readers(self) -> list[ReaderState]:
        """Return all readers, by name."""

    @abstractmethod
    def forget_reader(self, name: str) -> bool:
        """The reader is gone, and holds nothing any more; False when it was not known."""

    @abstractmethod
    def close(self) -> None:
        """Give back files or connections."""
