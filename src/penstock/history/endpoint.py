"""History over HTTP: an ASGI application that answers with the log of one data folder, and with the broker's counters.

Two threads, each with a log of its own, work with files, so that the event loop does not wait. `counters` and
`messages` are asked on the loop, in one call each.

Every request is authenticated, and errors are {"error": text}. The text tells the client what it can do; what the
machine says about its files goes to the program's log alone.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from enum import Enum
from typing import Any, Final

from penstock.history.log import HistoryError, Log, SegmentGone
from penstock.history.requests import (
    Answer,
    BadAnswer,
    Receive,
    Scope,
    Send,
    body_of,
    bytes_answer,
    credentials,
    json_answer,
    lsn_in,
    number_of,
    path_parts,
    query_of,
    range_of,
    send_answer,
)
from penstock.store.retention.reader_cursors import ReaderRefused

log = logging.getLogger("penstock.history")

PREFIX: Final = ["", "api", "history"]
THREADS: Final = 2
MESSAGES_MAX: Final = 1000
REQUEST_S: Final = 120.0
_INT_MAX: Final = 2**31 - 1
_SALUTE: Final = [(b"www-authenticate", b'Basic realm="penstock", charset="UTF-8"')]


class Access(Enum):
    """What a user may do here."""

    GRANTED = 1
    # Wrong name or password.
    UNKNOWN = 2
    # Known, but not with all rights.
    FORBIDDEN = 3


class NoSuchQueue(Exception):
    """There is no queue of that name."""


LogFactory = Callable[[], Log]
# Name, password, address of the peer.
Authenticate = Callable[[str, bytes, str], Awaitable[Access]]
Counters = Callable[[], dict[str, Any]]
# vhost, queue, from seq, count -> {"messages": […], "next": seq or None, …}, with bytes where the answer has base64.
Messages = Callable[[str, str, int, int], dict[str, Any]]


class HistoryEndpoint:
    def __init__(
        self,
        log_factory: LogFactory | None,
        authenticate: Authenticate,
        counters: Counters,
        messages: Messages,
        refused_delay_s: float = 0.0,
        request_s: float = REQUEST_S,
    ) -> None:
        """Without a `log_factory` there is no log. Without a right password a request waits for `refused_delay_s`."""
        self._log_factory = log_factory
        self._authenticate = authenticate
        self._counters = counters
        self._messages = messages
        self._refused_delay_s = refused_delay_s
        self._request_s = request_s
        self._threads = ThreadPoolExecutor(THREADS, "penstock-history")
        self._of_thread = threading.local()
        self._logs: list[Log] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        # A client that does not read the answer loses the connection: the server sees that the answer did not end.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._request_s):
                await send_answer(send, await self._answer(scope, receive))

    def close(self) -> None:
        """Wait for what is under way, and give the files back."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for each in self._logs:
            each.close()

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        try:
            await self._check_access(scope)
            return await self._route(scope, receive)
        except BadAnswer as refusal:
            answer = json_answer(refusal.content, refusal.status)
            answer.headers += refusal.headers
            return answer
        except SegmentGone:
            return json_answer({"error": "the segment is not there any more", "gone": True}, 404)
        except HistoryError as error:
            if isinstance(error.__cause__, ReaderRefused):
                return json_answer({"error": str(error)}, 400)
            log.error("history cannot be served: %s", ascii(str(error)))
        except Exception:
            log.exception("a request for history failed")
        return json_answer({"error": "history cannot be read; the broker's log says why"}, 500)

    async def _check_access(self, scope: Scope) -> None:
        given = credentials(scope)
        peer = scope.get("client")
        access = Access.UNKNOWN
        if given is not None:
            access = await self._authenticate(given[0], given[1], peer[0] if peer else "")
            if access is Access.UNKNOWN:
                log.warning("history: user %s was refused", ascii(given[0][:64]))
        if access is Access.UNKNOWN:
            # A connection has one request under way at a time: a client without the right password gets few
            # answers in a second, and takes little of the loop's time from the broker's clients.
            await asyncio.sleep(self._refused_delay_s)
            raise BadAnswer(401, "give the name and the password of a user of this broker", _SALUTE)
        if access is Access.FORBIDDEN:
            raise BadAnswer(
                403, "history shows everything: only users who may configure, write and read .* in every vhost see it"
            )

    # --- routes -----------------------------------------------------------------------------------------

    async def _route(self, scope: Scope, receive: Receive) -> Answer:
        parts = path_parts(scope)
        if parts[:3] != PREFIX:
            raise _unknown_path()
        method: str = scope["method"]
        match parts[3:]:
            case []:
                _allow(method, "GET")
                return await self._in_thread(_state)
            case ["segments", number, "index"]:
                _allow(method, "GET")
                return await self._in_thread(_index, number_of(number, "the segment"))
            case ["segments", number]:
                _allow(method, "GET")
                return await self._in_thread(_bytes, number_of(number, "the segment"), *range_of(scope))
            case ["bodies", queue_no, address, size]:
                _allow(method, "GET")
                numbers = (
                    number_of(queue_no, "the queue", _INT_MAX),
                    number_of(address, "the address"),
                    number_of(size, "the size", _INT_MAX),
                )
                return await self._in_thread(_body, *numbers)
            case ["readers"]:
                _allow(method, "GET")
                return await self._in_thread(_readers)
            case ["readers", name]:
                _allow(method, "PUT", "DELETE")
                if method == "PUT":
                    return await self._in_thread(_set_cursor, name, lsn_in(await body_of(receive)))
                return await self._in_thread(_forget_reader, name)
            case ["counters"]:
                _allow(method, "GET")
                return json_answer(self._counters())
            case ["messages"]:
                _allow(method, "GET")
                return await self._messages_page(query_of(scope))
        raise _unknown_path()

    async def _messages_page(self, query: dict[str, str]) -> Answer:
        unknown = query.keys() - {"vhost", "queue", "from", "count"}
        if unknown or "queue" not in query:
            raise BadAnswer(400, "ask with vhost, queue, from and count; the queue has to be named")
        from_seq = number_of(query.get("from", "0"), "from")
        count = number_of(query.get("count", "100"), "count", MESSAGES_MAX)
        if count == 0:
            raise BadAnswer(400, f"count is a number from 1 to {MESSAGES_MAX}")
        try:
            page = self._messages(query.get("vhost", "/"), query["queue"], from_seq, count)
        except NoSuchQueue:
            raise BadAnswer(404, "there is no such queue") from None
        # Away from the loop: there may be megabytes to encode.
        return await asyncio.get_running_loop().run_in_executor(self._threads, _encoded_page, page)

    # --- the log ----------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        if self._log_factory is None:
            raise BadAnswer(404, "this broker keeps nothing on disk, so it has no history: start it with --data-dir")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._with_log, self._log_factory, work, arguments)

    def _with_log(self, factory: LogFactory, work: Callable[..., Answer], arguments: tuple[Any, ...]) -> Answer:
        mine: Log | None = getattr(self._of_thread, "log", None)
        if mine is None:
            mine = self._of_thread.log = factory()
            self._logs.append(mine)
        return work(mine, *arguments)


def _state(of: Log) -> Answer:
    return json_answer(asdict(of.state()))


def _index(of: Log, number: int) -> Answer:
    return json_answer(asdict(of.index(number)))


def _bytes(of: Log, number: int, offset: int, size: int) -> Answer:
    data = of.read(number, offset, size)
    if not data:
        raise BadAnswer(416, "the segment ends before these bytes")
    answer = bytes_answer(data, 206)
    # How long the newest segment will be is not known.
    answer.headers.append((b"content-range", b"bytes %d-%d/*" % (offset, offset + len(data) - 1)))
    return answer


def _body(of: Log, queue_no: int, address: int, size: int) -> Answer:
    body = of.shared_body(queue_no, address, size)
    if body is None:
        raise BadAnswer(404, "this body is not on the disk any more")
    return bytes_answer(body)


def _readers(of: Log) -> Answer:
    return json_answer([asdict(reader) for reader in of.readers()])


def _set_cursor(of: Log, name: str, lsn: int) -> Answer:
    of.set_cursor(name, lsn)
    return Answer(204)


def _forget_reader(of: Log, name: str) -> Answer:
    if not of.forget_reader(name):
        raise BadAnswer(404, "there is no such reader")
    return Answer(204)


def _encoded_page(page: dict[str, Any]) -> Answer:
    messages = [{name: _jsonable(value) for name, value in message.items()} for message in page["messages"]]
    return json_answer({**page, "messages": messages})


def _jsonable(value: object) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _allow(method: str, *allowed: str) -> None:
    if method not in allowed:
        names = ", ".join(allowed)
        raise BadAnswer(405, f"here one can {names}", [(b"allow", names.encode())])


def _unknown_path() -> BadAnswer:
    return BadAnswer(404, "there is nothing here; /api/history is where the log begins")
