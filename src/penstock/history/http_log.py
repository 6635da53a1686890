"""The log of a running broker, over HTTP (`endpoint` is the other side).

The same contract as a folder's, and two questions more that only a running broker can answer: its counters, and the
messages that are in a queue now.
"""

from __future__ import annotations

import base64
from typing import Any, Final
from urllib.parse import quote, urlencode

from penstock.history.http_connection import HttpConnection
from penstock.history.log import HistoryError, Log, LogState, Mark, ReaderState, SegmentIndex, SegmentInfo
from penstock.history.requests import RANGE_BYTES_MAX

PREFIX: Final = "/api/history"


class HttpLog(Log):
    """A broker that was started with --http-port."""

    def __init__(self, url: str, user: str, password: str) -> None:
        """`url` has no user and no password in it; `opening.open_log` takes them out."""
        self._connection = HttpConnection(url, user, password)

    @property
    def source(self) -> str:
        return self._connection.url

    def state(self) -> LogState:
        fields = self._connection.json(PREFIX)
        try:
            segments = tuple(SegmentInfo(**segment) for segment in fields["segments"])
            return LogState(**{**fields, "segments": segments})
        except (KeyError, TypeError):
            raise self._connection.not_ours() from None

    def index(self, number: int) -> SegmentIndex:
        fields = self._connection.json(f"{PREFIX}/segments/{number:d}/index")
        try:
            return index_of(fields)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._connection.not_ours() from None

    def read(self, number: int, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0:
            raise HistoryError(f"{size} bytes from {offset} on are no part of a segment: neither can be negative")
        parts: list[bytes] = []
        while size > 0:
            part = self._read_range(number, offset, min(size, RANGE_BYTES_MAX))
            parts.append(part)
            if len(part) < min(size, RANGE_BYTES_MAX):
                break
            offset += len(part)
            size -= len(part)
        return b"".join(parts)

    def shared_body(self, queue_no: int, address: int, size: int) -> bytes | None:
        path = f"{PREFIX}/bodies/{queue_no:d}/{address:d}/{size:d}"
        status, data = self._connection.request("GET", path, max(size, 4096), accepted=(200, 404))
        return data if status == 200 and len(data) == size else None

    def set_cursor(self, name: str, lsn: int) -> None:
        headers = {"Content-Type": "application/json"}
        body = b'{"lsn": %d}' % lsn
        self._connection.request("PUT", _reader_path(name), body=body, headers=headers, accepted=(204,))

    def readers(self) -> list[ReaderState]:
        found = self._connection.json(f"{PREFIX}/readers")
        try:
            return [ReaderState(**reader) for reader in found]
        except TypeError:
            raise self._connection.not_ours() from None

    def forget_reader(self, name: str) -> bool:
        status, _ = self._connection.request("DELETE", _reader_path(name), accepted=(204, 404))
        return status == 204

    def close(self) -> None:
        self._connection.close()

    def counters(self) -> dict[str, Any]:
        """{"lsn": n, "queues": […]}: what durable queues hold, true for all events below the LSN."""
        found = self._connection.json(f"{PREFIX}/counters")
        if not isinstance(found, dict) or not isinstance(found.get("queues"), list):
            raise self._connection.not_ours()
        return found

    def messages(
        self, vhost: str, queue: str, from_seq: int = 0, count: int = 1000
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return a page of the messages that are in a queue now, and where the next page begins; None at the end.

        `properties` and `body` are bytes.
        """
        query = urlencode({"vhost": vhost, "queue": queue, "from": from_seq, "count": count})
        page = self._connection.json(f"{PREFIX}/messages?{query}")
        try:
            found = [_decoded(message) for message in page["messages"]]
            return found, page["next"]
        except (KeyError, TypeError, ValueError):
            raise self._connection.not_ours() from None

    def _read_range(self, number: int, offset: int, size: int) -> bytes:
        headers = {"Range": f"bytes={offset}-{offset + size - 1}"}
        path = f"{PREFIX}/segments/{number:d}"
        status, data = self._connection.request("GET", path, max(size, 4096), headers=headers, accepted=(206, 416))
        if status == 416:
            return b""
        if len(data) > size:
            raise self._connection.not_ours()
        return data


def _reader_path(name: str) -> str:
    if not name.isprintable() or not name:
        raise HistoryError("a reader's name is 1 to 128 printable characters: choose another")
    return f"{PREFIX}/readers/{quote(name, safe='')}"


def index_of(fields: Any) -> SegmentIndex:
    """An index that was written as JSON. AttributeError, KeyError, TypeError, ValueError when it is something else."""
    return SegmentIndex(
        **{
            **fields,
            "marks": tuple(Mark(**mark) for mark in fields["marks"]),
            "queues": _by_number(fields["queues"]),
            "consumers": _by_number(fields["consumers"]),
        }
    )


def _by_number(names: dict[str, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {int(number): name for number, name in names.items()}


def _decoded(message: dict[str, Any]) -> dict[str, Any]:
    return {
        **message,
        "properties": base64.b64decode(message["properties"]),
        "body": base64.b64decode(message["body"]),
    }
