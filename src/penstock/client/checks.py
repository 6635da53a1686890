"""Arguments of sessions, producers and consumers: what is accepted, and what is said about the rest."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from penstock.limits import EXPIRATION_MS_MAX, MESSAGE_BYTES_MAX

# A queue's name travels in every call and stands in two indexes.
NAME_BYTES_MAX: Final = 1_024
# Messages of one put_many, reserve_many or finalize_many: each is one transaction, held in memory on both sides.
BATCH_MAX: Final = 10_000
# Ten years, as in AMQP.
SECONDS_MAX: Final = EXPIRATION_MS_MAX / 1000

Payload = bytes | bytearray | memoryview | str


def queue_name(name: str) -> str:
    """Return the name, if it can be one."""
    if not isinstance(name, str):
        raise TypeError(f"a queue's name is a str, not {type(name).__name__}")
    size = len(name.encode("utf-8"))
    if not 1 <= size <= NAME_BYTES_MAX:
        raise ValueError(f"a queue's name has 1 to {NAME_BYTES_MAX} bytes in UTF-8, this one has {size}")
    if "\0" in name:
        raise ValueError("a queue's name cannot have a NUL character")
    return name


def ordering(value: str | None) -> str | None:
    if value not in (None, "fuzzy", "strict"):
        raise ValueError(f"a queue's ordering is 'fuzzy' or 'strict', not {value!r}")
    return value


def payload_bytes(payload: Payload) -> bytes:
    """Return the payload as bytes; text is UTF-8."""
    if isinstance(payload, str):
        octets = payload.encode("utf-8")
    elif isinstance(payload, (bytes, bytearray, memoryview)):
        octets = bytes(payload)
    else:
        raise TypeError(
            f"a payload is bytes or str, not {type(payload).__name__}; put_json puts dicts, lists and numbers as JSON"
        )
    if len(octets) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a payload has at most {MESSAGE_BYTES_MAX} bytes, this one has {len(octets)}")
    return octets


def payloads_bytes(payloads: Iterable[Payload]) -> list[bytes]:
    """Return a batch of payloads as bytes."""
    if isinstance(payloads, (str, bytes, bytearray, memoryview)):
        raise TypeError("put_many takes a list of payloads; put takes a single one")
    octets = [payload_bytes(payload) for payload in payloads]
    if len(octets) > BATCH_MAX:
        raise ValueError(f"a batch has at most {BATCH_MAX} messages, this one has {len(octets)}")
    if sum(map(len, octets)) > MESSAGE_BYTES_MAX:
        raise ValueError(f"the payloads of a batch have at most {MESSAGE_BYTES_MAX} bytes together")
    return octets


def json_bytes(value: Any) -> bytes:
    """Return the value as compact JSON."""
    return payload_bytes(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def batch_count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"a count is an int, not {type(count).__name__}")
    if not 1 <= count <= BATCH_MAX:
        raise ValueError(f"a count is 1 to {BATCH_MAX}, not {count}")
    return count


def seconds(value: float | None, what: str) -> float | None:
    """Return a span of time in seconds; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number of seconds, not {type(value).__name__}")
    if math.isnan(value) or not 0 <= value <= SECONDS_MAX:
        raise ValueError(f"{what} is 0 to {SECONDS_MAX:.0f} seconds (ten years), not {value}")
    return float(value)


def positive_seconds(value: float | None, what: str) -> float | None:
    """Like `seconds`, and more than none."""
    span = seconds(value, what)
    if span == 0:
        raise ValueError(f"{what} is more than 0 seconds")
    return span


def wait_seconds(value: float | None) -> float:
    """Return how long to wait; None = for ever. A wait that is over already is none."""
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"wait is a number of seconds or None, not {type(value).__name__}")
    if math.isnan(value):
        raise ValueError("wait is a number of seconds or None, not NaN")
    return max(0.0, float(value))


def ready_time(ready_at: datetime | None, delay: float | None) -> datetime | None:
    """Return the time given; it must have a time zone."""
    if ready_at is None:
        return None
    if delay is not None:
        raise ValueError("give delay or ready_at, not both")
    return aware(ready_at, "ready_at")


def aware(moment: datetime, what: str) -> datetime:
    """Return the moment, if it has a time zone."""
    if not isinstance(moment, datetime):
        raise TypeError(f"{what} is a datetime, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise ValueError(f"{what} has no time zone: make it with datetime.now(timezone.utc), or call its astimezone()")
    return moment


def note_text(note: str | None) -> str | None:
    """Return the note, with what no database takes written out: a note never keeps a message from being finalized."""
    if note is None:
        return None
    if not isinstance(note, str):
        raise TypeError(f"a note is a str or None, not {type(note).__name__}")
    return note.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
