"""Reading the audit log, of a broker that runs or of one that does not.

`records` reads all of it, oldest first, for a program of its own. `read_page` reads backwards from the end, a bounded
number of bytes at a time, for the loop of a running broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from penstock.broker.audit.audit_log import file_numbers, file_path
from penstock.disk.files import Files

# What one page looks at: some milliseconds.
PAGE_BYTES: Final = 512 * 1024
BLOCK_BYTES: Final = 1024 * 1024

Record = dict[str, Any]
# A file of the log, and an offset in it.
Position = tuple[int, int]


class Filter:
    def __init__(self, since_ms: int = 0, until_ms: int | None = None, user: str = "", event: str = "") -> None:
        """An empty user or event is any; an event that ends with * is all that begin so."""
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._user = user
        self._event = event

    def matches(self, record: Record) -> bool:
        time_ms = record["time_ms"]
        if time_ms < self._since_ms or (self._until_ms is not None and time_ms >= self._until_ms):
            return False
        if self._user and record.get("user") != self._user:
            return False
        if self._event.endswith("*"):
            return str(record["event"]).startswith(self._event[:-1])
        return not self._event or record["event"] == self._event


def records(files: Files, wanted: Filter) -> Iterator[Record]:
    """Every record that matches, the oldest first."""
    for number in file_numbers(files):
        try:
            file = files.open(file_path(number))
        except FileNotFoundError:
            # Removed meanwhile, as the oldest one.
            continue
        try:
            offset = 0
            while block := file.pread(BLOCK_BYTES, offset):
                end = block.rfind(b"\n") + 1
                if not end:
                    break
                offset += end
                yield from _matching(block[:end], wanted)
        finally:
            file.close()


def read_page(files: Files, wanted: Filter, before: Position | None) -> tuple[list[Record], Position | None]:
    """Return the records that match among the last ones before a position, newest first; and where to go on.

    A page may be empty although there are more; None as the position says that there are none.
    """
    numbers = file_numbers(files)
    if before is not None:
        numbers = [number for number in numbers if number <= before[0]]
    if not numbers:
        return [], None
    number = numbers[-1]
    file = files.open(file_path(number))
    try:
        end = min(file.size(), before[1]) if before is not None and before[0] == number else file.size()
        start = max(0, end - PAGE_BYTES)
        block = file.pread(end - start, start)
    finally:
        file.close()
    if start:
        # From the first line that is whole.
        start += block.find(b"\n") + 1
        block = block[len(block) - (end - start) :]
    found = list(_matching(block, wanted))
    found.reverse()
    if start:
        return found, (number, start)
    return found, (numbers[-2], 2**62) if len(numbers) > 1 else None


def _matching(block: bytes, wanted: Filter) -> Iterator[Record]:
    for line in block.splitlines():
        record = _parse(line)
        if record is not None and wanted.matches(record):
            yield record


def _parse(line: bytes) -> Record | None:
    """Return None for a line that a crash has left torn."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    is_record = isinstance(record, dict) and isinstance(record.get("time_ms"), int) and "event" in record
    return record if is_record else None
