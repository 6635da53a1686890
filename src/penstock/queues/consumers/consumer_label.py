"""What history calls a consumer: the text behind the number in the journal's rows.

A label is JSON in UTF-8, {"consumer": tag, "connection": name, "channel": number}, whatever a client chose as tag or
name. It has at most 1024 bytes; longer tags and names are cut. The backing (`BackingQueue.name_actor`)
writes it into each segment in which the consumer gets something.
"""

from __future__ import annotations

import json
from typing import Final

# Of a tag or name as it stands in the label, with its quotes.
TEXT_BYTES_MAX: Final = 450


def consumer_label(tag: str, connection: str, channel: int) -> bytes:
    label = {"consumer": _fitted(tag), "connection": _fitted(connection), "channel": channel}
    return json.dumps(label, ensure_ascii=False, separators=(",", ":")).encode()


def _fitted(text: str) -> str:
    """Return a text that can be written as UTF-8 and is not too long. Clients may send any bytes."""
    text = text[:TEXT_BYTES_MAX].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    while len(json.dumps(text, ensure_ascii=False).encode()) > TEXT_BYTES_MAX:
        text = text[: len(text) * 7 // 8]
    return text
