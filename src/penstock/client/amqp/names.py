"""Names of queues on an AMQP broker."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

from penstock.client.errors import NotSupported
from penstock.limits import SHORT_STRING_BYTES_MAX


def on_broker(queue: str) -> str:
    """What the queue is called there: the same, but that brokers leave line ends out of names, so they are escaped."""
    name = queue
    if "\n" in queue or "\r" in queue:
        name = f"penstock.name.{quote(queue, safe='')}"
    size = len(name.encode("utf-8"))
    if size > SHORT_STRING_BYTES_MAX:
        raise NotSupported(f"AMQP's names have at most {SHORT_STRING_BYTES_MAX} bytes in UTF-8, this one has {size}")
    return name


def buried(queue: str) -> str:
    """Where the buried messages of a queue of the broker's are: `<queue>.buried`, or a hash where that is too long."""
    name = f"{queue}.buried"
    if len(name.encode("utf-8")) <= SHORT_STRING_BYTES_MAX:
        return name
    return f"penstock.buried.{sha256(queue.encode('utf-8')).hexdigest()}"
