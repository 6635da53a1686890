"""The log of a data folder, read from its files: beside the broker that uses it, or with no broker at all.

It takes no lock and writes nothing but cursors (`store.reader_cursors`). The newest segment grows while it is read; a
restart of the broker begins a new one; old ones are removed. `state` lists the folder and looks at the end of the
newest segment, so asking often costs little.
"""

from __future__ import annotations

import time
from itertools import pairwise

from penstock.disk.os_files import OsFiles
from penstock.history.indexing import MARK_BYTES, SegmentWalk, batch_of
from penstock.history.log import HistoryError, Log, LogState, ReaderState, SegmentGone, SegmentIndex, SegmentInfo
from penstock.history.mapped_segment import MappedSegment, can_map
from penstock.history.open_segments import FOLDER, OpenSegments, gone
from penstock.history.read_files import ReadFiles
from penstock.history.shared_bodies import SharedBodies
from penstock.history.walked_segments import WALKED, SegmentKey, WalkedSegments
from penstock.journal.format.layout import segment_path
from penstock.journal.reading.replay import NO_LIMIT
from penstock.store.node.checkpoint import BadCheckpoint, checkpoint_numbers, read_header
from penstock.store.queue.places import UnknownVersion
from penstock.store.retention.reader_cursors import ReaderRefused, forget_cursor, log_id, read_cursors, write_cursor

# A listing that changes under our hands is made again so often.
_TRIES = 5


class FolderLog(Log):
    def __init__(self, path: str, mark_bytes: int = MARK_BYTES, walked: WalkedSegments = WALKED) -> None:
        self._files = ReadFiles(path)
        self._cursor_files = OsFiles(path)
        self._mark_bytes = mark_bytes
        self._complete = walked
        self._segments = OpenSegments(self._files)
        self._bodies = SharedBodies(self._files)
        self._mapped: MappedSegment | None = None
        # Of segments that are not complete, by number: nearly always one.
        self._growing: dict[int, SegmentWalk] = {}
        # Numbers of queues are never given twice.
        self._vhost_ids: dict[int, str] = {}
        self._log_id = ""
        self._state: LogState | None = None
        self._check_folder()

    @property
    def source(self) -> str:
        return self._files.root

    def state(self) -> LogState:
        for _ in range(_TRIES):
            try:
                return self._look()
            except SegmentGone:
                # Retention was faster; the next listing does not have it.
                continue
            except OSError as error:
                raise self._unreadable(error) from error
        raise HistoryError(f"the journal in {self.source} changes faster than it can be listed: try again")

    def index(self, number: int) -> SegmentIndex:
        try:
            self._refresh()
            return self._walked(number).index()
        except OSError as error:
            raise self._unreadable(error) from error

    def read(self, number: int, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0:
            raise HistoryError(f"{size} bytes from {offset} on are no part of a segment: neither can be negative")
        try:
            file = self._segments.reader(number).file
            # The system refuses to look for what is far behind the end.
            return file.pread(size, offset) if offset < file.size() else b""
        except OSError as error:
            raise self._unreadable(error) from error

    def view(self, number: int, offset: int, size: int) -> memoryview:
        if not can_map() or size <= 0 or offset < 0:
            return memoryview(self.read(number, offset, size))
        try:
            # Also when it is mapped: this is what notices that it was removed.
            file = self._segments.reader(number).file
            mapped = self._mapped
            if mapped is None or mapped.number != number or offset + size > len(mapped):
                if file.size() == 0:
                    return memoryview(b"")
                mapped = self._mapped = MappedSegment(number, file)
        except OSError as error:
            raise self._unreadable(error) from error
        return mapped.view(offset, size)

    def shared_body(self, queue_no: int, address: int, size: int) -> bytes | None:
        try:
            vhost_id = self._vhost_id(queue_no)
            return None if vhost_id is None else self._bodies.read(vhost_id, address, size)
        except OSError as error:
            raise self._unreadable(error) from error

    def set_cursor(self, name: str, lsn: int) -> None:
        self._check_folder()
        try:
            write_cursor(self._cursor_files, name, lsn, time.time_ns() // 1000)
        except ReaderRefused as error:
            raise HistoryError(str(error)) from error
        except OSError as error:
            raise HistoryError(
                f"the cursor of reader {name!r} cannot be written in {self.source}/readers: {error.strerror or error}."
                " Whoever reads a data folder with a cursor needs the right to write there"
            ) from error

    def readers(self) -> list[ReaderState]:
        try:
            cursors, _ = read_cursors(self._files)
        except OSError as error:
            raise self._unreadable(error) from error
        state = self.state()
        return [
            ReaderState(
                cursor.name,
                cursor.lsn,
                cursor.updated_us,
                max(0, state.end_lsn - max(cursor.lsn, state.first_lsn)),
                *self._lag(state, cursor.lsn),
                max(0, state.first_lsn - cursor.lsn),
            )
            for cursor in cursors
        ]

    def forget_reader(self, name: str) -> bool:
        try:
            return forget_cursor(self._cursor_files, name)
        except ReaderRefused:
            return False
        except OSError as error:
            raise HistoryError(
                f"reader {name!r} cannot be forgotten, {self.source}/readers cannot be changed:"
                f" {error.strerror or error}. Whoever forgets a reader needs the right to write there"
            ) from error

    def close(self) -> None:
        self._segments.close()
        self._mapped = None
        self._growing = {}
        self._state = None

    # --- looking ------------------------------------------------------------------------------------

    def _look(self) -> LogState:
        self._refresh()
        state = self._state
        if state is not None and self._is_up_to_date(state):
            return state
        numbers = self._segments.readable()
        if not numbers:
            self._check_folder()
            self._state = LogState(self._log_id, 0, 0, 0, ())
            return self._state
        newest = self._walked(numbers[-1])
        infos = [self._sealed(number, after) for number, after in pairwise(numbers)]
        begun_us = self._head_us(newest.number)
        infos.append(SegmentInfo(newest.number, newest.first_lsn, newest.next_lsn, newest.pos, begun_us))
        end_us = 0
        for number in reversed(numbers):
            # Nearly always the newest: a broker that has just started has written nothing yet.
            end_us = self._walked(number).last_us
            if end_us:
                break
        self._state = LogState(self._log_id, infos[0].first_lsn, newest.next_lsn, end_us, tuple(infos))
        return self._state

    def _is_up_to_date(self, state: LogState) -> bool:
        """Return whether the newest segment is the one that it was, and has nothing new."""
        if not state.segments or state.segments[-1].number != self._segments.numbers[-1]:
            return False
        return self._walked(state.segments[-1].number).pos == state.segments[-1].bytes

    def _refresh(self) -> None:
        """List the folder. What is known of segments that are not there any more is forgotten."""
        found = log_id(self._files)
        if self._log_id and found != self._log_id:
            # Another data folder stands in the place of the one that was read.
            self.close()
            self._vhost_ids = {}
        if self._segments.look() or found != self._log_id:
            self._state = None
            present = set(self._segments.numbers)
            self._growing = {number: walk for number, walk in self._growing.items() if number in present}
        self._log_id = found

    def _walked(self, number: int) -> SegmentWalk:
        """Return the walk of a segment, at the last durable batch."""
        if number not in self._segments.numbers:
            raise gone(number)
        try:
            key = SegmentKey(self._log_id, number, self._files.stamp(segment_path(FOLDER, number)), self._mark_bytes)
        except FileNotFoundError:
            raise gone(number) from None
        walk = self._complete.get(key)
        if walk is None:
            walk = self._growing.pop(number, None) or self._new_walk(number)
            # In this order: looking at later segments may close this one.
            limit, reader = self._segments.limit(number), self._segments.reader(number)
            if limit != NO_LIMIT or reader.file.size() != walk.pos:
                walk.advance(reader, limit, self._proven_lsn() if limit == NO_LIMIT else 0)
            if walk.is_complete:
                self._complete.add(key, walk)
            else:
                self._growing[number] = walk
        return walk

    def _new_walk(self, number: int) -> SegmentWalk:
        head = self._segments.head(number)
        if head is None:
            raise HistoryError(
                f"segment {number} of the journal in {self.source} is unreadable: both its heads are damaged."
                " `penstock fsck` says more"
            )
        return SegmentWalk(number, head.first_lsn, self._mark_bytes)

    def _proven_lsn(self) -> int:
        """What the newest checkpoint proves to be durable: after a clean stop this is all there is.

        A checkpoint is published when the journal is durable up to where it begins.
        """
        for number in reversed(checkpoint_numbers(self._files)):
            try:
                return read_header(self._files, number).replay_lsn
            except (BadCheckpoint, UnknownVersion):
                continue
        return 0

    def _sealed(self, number: int, after: int) -> SegmentInfo:
        head, next_head = self._segments.head(number), self._segments.head(after)
        assert head is not None and next_head is not None
        next_lsn = max(head.first_lsn, next_head.first_lsn)
        return SegmentInfo(number, head.first_lsn, next_lsn, self._segments.sealed_bytes(number), head.wall_us)

    def _head_us(self, number: int) -> int:
        head = self._segments.head(number)
        assert head is not None
        return head.wall_us

    def _vhost_id(self, queue_no: int) -> str | None:
        """Whose queue it is, as the names in the segments say, the newest first."""
        if queue_no not in self._vhost_ids:
            self._refresh()
            for number in reversed(self._segments.readable()):
                name = self._walked(number).queues.get(queue_no)
                if name is not None and name["vhost_id"] is not None:
                    self._vhost_ids[queue_no] = name["vhost_id"]
                    break
        return self._vhost_ids.get(queue_no)

    def _lag(self, state: LogState, lsn: int) -> tuple[int, float]:
        """Return bytes and seconds between a position and the end of the log."""
        if lsn >= state.end_lsn:
            return 0, 0.0
        size = 0
        for info in reversed(state.segments):
            if info.first_lsn > lsn and info is not state.segments[0]:
                size += info.bytes
                continue
            try:
                index = self.index(info.number)
                pos, wall_us = batch_of(self._segments.reader(info.number), index, lsn)
            except SegmentGone:
                return size, (state.end_us - info.begun_us) / 1e6
            size += max(0, index.end_pos - pos)
            return size, max(0.0, (state.end_us - (wall_us or info.begun_us)) / 1e6)
        return size, 0.0

    # --- complaints -----------------------------------------------------------------------------------

    def _check_folder(self) -> None:
        files = self._files
        try:
            if files.exists("format") or files.exists(FOLDER):
                return
            is_there = files.exists("")
        except OSError as error:
            raise self._unreadable(error) from error
        if not is_there:
            raise HistoryError(f"there is no folder {self.source}: give the data folder of a broker (--data-dir)")
        raise HistoryError(
            f"{self.source} is not a data folder: it has neither 'format' nor 'journal' in it. Give the folder that"
            " `penstock serve --data-dir` was started with"
        )

    def _unreadable(self, error: OSError) -> HistoryError:
        return HistoryError(
            f"the journal in {self.source} cannot be read: {error.strerror or error}. Whoever reads it needs the right"
            " to read the data folder; or ask the broker itself, with http://host:port as the source"
        )
