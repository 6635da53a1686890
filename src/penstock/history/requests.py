"""What an HTTP request says, checked: who asks, which bytes, which numbers. And how an answer is put.

Everything here comes from outside. Each part has a form and a limit, and the rest is a `BadAnswer` with the status and
a text for the client.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

RANGE_BYTES_MAX: Final = 8 * 1024 * 1024
BODY_BYTES_MAX: Final = 64 * 1024
NUMBER_MAX: Final = 2**63 - 1
_CREDENTIALS_BYTES_MAX: Final = 4096
_QUERY_FIELDS_MAX: Final = 16
_RANGE: Final = re.compile(r"bytes=([0-9]{1,19})-([0-9]{0,19})", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


class BadAnswer(Exception):
    """A request that is not answered as it hoped."""

    def __init__(self, status: int, text: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.headers = list(headers)
        self.content: dict[str, Any] = {"error": text}


class Answer:
    """What goes back."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.status = status
        self.body = body
        self.headers = list(headers)


def json_answer(content: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(content).encode(), [(b"content-type", b"application/json")])


def bytes_answer(data: bytes, status: int = 200) -> Answer:
    return Answer(status, data, [(b"content-type", b"application/octet-stream")])


async def send_answer(send: Send, answer: Answer) -> None:
    headers = [(b"content-length", b"%d" % len(answer.body)), (b"cache-control", b"no-store"), *answer.headers]
    if answer.status == 204:
        headers = headers[1:]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def header_of(scope: Scope, name: bytes) -> bytes | None:
    """Return the only header of that name; None when there is none. Several are refused."""
    found = [value for key, value in scope["headers"] if key == name]
    if len(found) > 1:
        raise BadAnswer(400, f"the header {name.decode()} is given more than once")
    return found[0] if found else None


def path_parts(scope: Scope) -> list[str]:
    """Return the parts of the path, each decoded by itself: a name may have an encoded slash in it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    parts = [unquote_to_bytes(part) for part in raw.partition(b"?")[0].split(b"/")]
    try:
        return [part.decode() for part in parts]
    except UnicodeDecodeError:
        raise BadAnswer(400, "the path is not UTF-8") from None


def query_of(scope: Scope) -> dict[str, str]:
    try:
        text = scope["query_string"].decode("ascii")
        fields = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError:
        raise BadAnswer(400, "the query is not of the form name=value&name=value, in percent-encoded UTF-8") from None
    if len(dict(fields)) != len(fields):
        raise BadAnswer(400, "a field of the query is given more than once")
    return dict(fields)


def credentials(scope: Scope) -> tuple[str, bytes] | None:
    """Return user and password by Basic authentication; None when there are none, or none of that form."""
    header = header_of(scope, b"authorization")
    if header is None or len(header) > _CREDENTIALS_BYTES_MAX:
        return None
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def range_of(scope: Scope) -> tuple[int, int]:
    """Offset and size of the one range that is asked for."""
    header = header_of(scope, b"range")
    if header is None:
        raise BadAnswer(400, "say which bytes, with the header Range: bytes=FIRST-LAST")
    found = _RANGE.fullmatch(header.decode("latin-1").strip())
    if found is None:
        raise BadAnswer(400, "the header Range is not of the form bytes=FIRST-LAST, with one range")
    first = int(found[1])
    last = int(found[2]) if found[2] else first + RANGE_BYTES_MAX - 1
    if last < first or last > NUMBER_MAX:
        raise BadAnswer(400, "the header Range is not of the form bytes=FIRST-LAST with FIRST up to LAST")
    if last - first >= RANGE_BYTES_MAX:
        raise BadAnswer(400, f"a range has at most {RANGE_BYTES_MAX} bytes: ask for it in parts")
    return first, last - first + 1


def number_of(text: str, what: str, most: int = NUMBER_MAX) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > most:
        raise BadAnswer(400, f"{what} is not a number from 0 to {most}")
    return int(text)


async def body_of(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadAnswer(400, "the request ended before its body did")
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise BadAnswer(413, f"the body of a request has at most {BODY_BYTES_MAX} bytes")
        if not message.get("more_body", False):
            return bytes(body)


def lsn_in(body: bytes) -> int:
    """Return the position in {"lsn": n}."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise BadAnswer(400, 'the body is not JSON: send {"lsn": n}') from None
    lsn = fields.get("lsn") if isinstance(fields, dict) else None
    if not isinstance(lsn, int) or isinstance(lsn, bool) or not 0 <= lsn <= NUMBER_MAX:
        raise BadAnswer(400, f'the body has to be {{"lsn": n}} with n from 0 to {NUMBER_MAX}')
    return lsn
