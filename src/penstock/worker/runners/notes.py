"""What is written beside a message when its job has ended: the result, or what went wrong. Short, and safe to store."""

from __future__ import annotations

import json
import traceback
from types import TracebackType
from typing import Any

# A note is read by people and kept in the history for each message: a page of it is enough.
NOTE_CHARS_MAX = 4000
_CUT = "\n[...]\n"


def result_note(result: Any) -> str:
    """Return the result as JSON; what is no JSON as a string that shows it."""
    try:
        text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(_shown(result), ensure_ascii=False)
    return shortened(text)


def exception_note(error: BaseException, own_frames: int) -> str:
    """Return the exception's line first, then where it came from without the worker's own `own_frames` frames."""
    trace: TracebackType | None = error.__traceback__
    for _ in range(own_frames):
        if trace is not None:
            trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(error), error, trace)
        last = traceback.format_exception_only(type(error), error)[-1].strip()
    except Exception:  # an exception whose __str__ fails must not cost the worker its report
        return type(error).__name__
    return shortened(f"{shortened(last, NOTE_CHARS_MAX // 4)}\n{''.join(lines).rstrip()}")


def shortened(text: str, chars_max: int = NOTE_CHARS_MAX) -> str:
    """At most so many characters, the middle cut out; nothing in it that a database refuses."""
    # PostgreSQL's text has no NUL, and half a surrogate pair is no UTF-8.
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    if len(text) <= chars_max:
        return text
    # The end of a traceback tells more than its beginning.
    head = (chars_max - len(_CUT)) // 3
    return f"{text[:head]}{_CUT}{text[head + len(_CUT) - chars_max :]}"


def first_line(text: str) -> str:
    """For one line of a log. What a message or a job says cannot end the line, nor steer a terminal."""
    line = text.split("\n", 1)[0][:200]
    return line if line.isprintable() else "".join([one if one.isprintable() else ascii(one)[1:-1] for one in line])


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # a __repr__ that fails must not make a failure of a job that was done
        return f"<{type(value).__name__}>"
