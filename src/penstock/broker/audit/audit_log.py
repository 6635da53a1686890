"""The audit log: one JSON object a line, in `audit/` of the data folder.

A record is written at the end of the turn of the loop in which it was noted, before an answer to an operation is given;
it is synced when its file is full and when the broker stops. So a crash of the broker loses no record of an act that
was answered, and a loss of power may lose the last ones. Only the oldest files are ever removed, when all together
take more than `bytes_max`. A record that could not be written (the disk is full) is counted, and the count is the next
record that can be written: the broker goes on.

A crash may leave a line without its end. The next start ends it, and readers pass over it.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock import limits
from penstock.broker.audit.event import Event
from penstock.broker.audit.event_exchange import EventExchange
from penstock.broker.operations.actor import Actor
from penstock.clock import Clock
from penstock.disk.files import File, Files, write_all

log: Final = logging.getLogger("penstock.audit")

FOLDER: Final = "audit"
# Counted where records were lost.
LOST: Final = "audit.lost"

Record = dict[str, Any]

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True)


class AuditLog:
    def __init__(
        self,
        clock: Clock,
        files: Files | None = None,
        bytes_max: int = limits.AUDIT_BYTES_MAX,
        file_bytes_max: int = limits.AUDIT_FILE_BYTES_MAX,
    ) -> None:
        self.files = files
        # The last records of a broker that keeps nothing on disk.
        self.recent: deque[Record] = deque(maxlen=limits.AUDIT_RECENT_MAX)
        # Called when there is something to flush.
        self.wake: Callable[[], None] | None = None
        self.exchange: EventExchange | None = None
        self._clock = clock
        self._bytes_max = bytes_max
        self._file_bytes_max = file_bytes_max
        self._noted: list[bytes] = []
        self._lost = 0
        self._file: File | None = None
        self._number = 0
        self._end = 0

    def note(self, actor: Actor, event: Event) -> None:
        """Record what an actor did."""
        now_ms = self._clock.date_ms()
        record: Record = {"time_ms": now_ms, "event": event.name, "user": actor.name, "via": actor.via}
        if actor.address:
            record["address"] = actor.address
        record.update(event.properties)
        if self.exchange is not None:
            self.exchange.publish(event.name, record, now_ms)
        if self.files is None:
            self.recent.append(record)
            return
        if not self._noted and self.wake is not None:
            self.wake()
        self._noted.append(_ENCODER.encode(record).encode() + b"\n")
        if len(self._noted) >= limits.AUDIT_GATHERED_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what was noted."""
        if self.files is None or not self._noted:
            return
        noted, self._noted = self._noted, []
        try:
            self._write(self.files, noted)
        except OSError as error:
            if not self._lost:
                log.error("the audit log cannot be written: %s. The broker goes on, and counts what is lost.", error)
            self._lost += len(noted)
            self._close()

    def close(self) -> None:
        """Write and sync what there is."""
        self.flush()
        if self._file is not None:
            try:
                self._file.fdatasync()
            except OSError as error:
                log.error("the audit log cannot be synced: %s", error)
            self._close()

    def abandon(self) -> None:
        """Let go of the folder as a crash would: what was noted and not written is lost, and so is what comes."""
        self._noted.clear()
        self._close()
        self.files = None

    def _write(self, files: Files, lines: list[bytes]) -> None:
        file = self._file or self._open(files)
        if self._lost:
            record = {"time_ms": self._clock.date_ms(), "event": LOST, "count": self._lost}
            lines.insert(0, _ENCODER.encode(record).encode() + b"\n")
        self._end = write_all(file, lines, self._end)
        self._lost = 0
        if self._end >= self._file_bytes_max:
            file.fdatasync()
            self._close()
            self._number += 1
            self._remove_old(files)

    def _open(self, files: Files) -> File:
        files.make_dir(FOLDER)
        numbers = file_numbers(files)
        self._number = max(self._number, numbers[-1] if numbers else 1)
        file = files.open(file_path(self._number), create=True)
        self._file = file
        self._end = file.size()
        if self._end and file.pread(1, self._end - 1) != b"\n":
            self._end = write_all(file, [b"\n"], self._end)
        return file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _remove_old(self, files: Files) -> None:
        kept_max = max(1, self._bytes_max // self._file_bytes_max)
        for number in file_numbers(files)[:-kept_max]:
            files.unlink(file_path(number))


def file_path(number: int) -> str:
    return f"{FOLDER}/{number:08d}.jsonl"


def file_numbers(files: Files) -> list[int]:
    """The files of the log, the oldest first."""
    names = [name.partition(".") for name in files.list_dir(FOLDER)]
    return sorted(int(stem) for stem, _, ending in names if ending == "jsonl" and stem.isdecimal())
