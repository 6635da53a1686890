"""Questions to a broker over HTTP: one kept connection, a few more tries, and errors that say what to do.

A connection that the other side has closed meanwhile is made anew, once, without a word. Requests that can be repeated
are, with growing pauses, when there is no connection or the broker has too many. An answer that is larger than what was
asked for is not read.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.history.log import HistoryError, SegmentGone

TRIES: Final = 3
PAUSE_S: Final = 0.1
TIMEOUT_S: Final = 30.0
JSON_BYTES_MAX: Final = 256 * 1024 * 1024
_ERROR_BYTES_MAX: Final = 64 * 1024
_REPEATABLE: Final = ("GET", "PUT")
_PORTS: Final = {"http": 80, "https": 443}


class HttpConnection:
    def __init__(self, url: str, user: str, password: str, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        parts = urlsplit(url)
        self._scheme = parts.scheme
        self._host = parts.hostname or ""
        self._port = parts.port or _PORTS[parts.scheme]
        self._path = parts.path
        self._timeout_s = timeout_s
        self._user = user
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Accept": "*/*"}
        self._connection: http.client.HTTPConnection | None = None

    def json(self, path: str, size_max: int = JSON_BYTES_MAX) -> Any:
        """Return the answer to a GET, decoded."""
        _, data = self.request("GET", path, size_max)
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise self.not_ours() from None

    def request(
        self,
        method: str,
        path: str,
        size_max: int = _ERROR_BYTES_MAX,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        accepted: tuple[int, ...] = (200,),
    ) -> tuple[int, bytes]:
        """Status and body of an answer with one of the accepted statuses. Raises HistoryError."""
        tries = TRIES if method in _REPEATABLE else 1
        why: Exception | str = ""
        for attempt in range(tries):
            if attempt > 0:
                time.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                status, data = self._once(method, path, size_max, body, headers or {}, accepted)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                why = error
                continue
            if status in accepted:
                return status, data
            if status != 503:
                raise self._refusal(status, data)
            why = "the broker has too many HTTP connections"
        raise HistoryError(
            f"the broker at {self.url} does not answer: {_shown(why)}. Is it running with --http-port, and is this the"
            " port?"
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def not_ours(self) -> HistoryError:
        return HistoryError(
            f"{self.url} answers, but not with history: is this the port that `penstock serve --http-port` was given?"
        )

    def _once(
        self,
        method: str,
        path: str,
        size_max: int,
        body: bytes | None,
        headers: dict[str, str],
        accepted: tuple[int, ...],
    ) -> tuple[int, bytes]:
        is_kept = self._connection is not None
        try:
            response = self._send(method, path, body, headers)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, http.client.CannotSendRequest):
            self.close()
            if not is_kept:
                raise
            # The other side does not keep a quiet connection for ever.
            response = self._send(method, path, body, headers)
        limit = size_max if response.status in accepted else _ERROR_BYTES_MAX
        try:
            data = response.read(limit + 1)
            missing = response.length
        finally:
            response.close()
        if len(data) > limit:
            self.close()
            raise HistoryError(f"the broker at {self.url} answers with more than the {limit} bytes that were asked for")
        if missing:
            # The connection broke off, which a read with a limit does not say.
            raise http.client.IncompleteRead(data, missing)
        return response.status, data

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> http.client.HTTPResponse:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=self._timeout_s)
        self._connection.request(method, self._path + path, body, {**self._headers, **headers})
        return self._connection.getresponse()

    def _refusal(self, status: int, data: bytes) -> HistoryError:
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            content = None
        said = content.get("error") if isinstance(content, dict) else None
        if isinstance(content, dict) and content.get("gone") is True:
            return SegmentGone(f"{said}: retention was faster than the reader. A reader with a cursor is waited for")
        if status == 401:
            return HistoryError(
                f"the broker at {self.url} does not know user '{self._user}' with this password: give user and"
                " password, or set PENSTOCK_USER and PENSTOCK_PASSWORD. guest may only ask from the same machine"
            )
        if status == 403:
            return HistoryError(
                f"user '{self._user}' may not read the history of {self.url}: it shows everything, so it takes a user"
                " who may configure, write and read .* in every vhost"
            )
        if not isinstance(said, str):
            return self.not_ours()
        return HistoryError(f"the broker at {self.url} refuses ({status}): {said[:500]}")


def _shown(why: Exception | str) -> str:
    if isinstance(why, OSError) and why.strerror:
        return why.strerror
    return str(why) or type(why).__name__
