"""How a message of the past looks when it is published once more.

It begins a new life. What the broker had written about the old one is taken off (`x-death` and its like, the delivery
count), and the expiration too: most of these messages are older than that, and are still to be handled. So does the
broker's own redrive. `CC` and `BCC` go, or a message would reach queues that were not named; and a user-id that is
not the publisher's, which the broker would refuse. Everything else keeps its octets' meaning.

What is added says where it comes from: `x-penstock-replayed` (the name of the replay), `-lsn` and `-queue`.

The sink adds the key for deduplication, from the column `dedup_key`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.pipeline.publishing.selection import LSN_HEADER, NAME_HEADER
from penstock.wire.properties import Properties, decode_properties, encode_properties

QUEUE_HEADER: Final = "x-penstock-replayed-queue"
TAKEN_OFF: Final = (
    *("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"),
    *("x-last-death-exchange", "x-last-death-queue", "x-last-death-reason"),
    *("x-delivery-count", "CC", "BCC"),
)
NO_PROPERTIES: Final = b"\x00\x00"

OUTGOING: Final = pa.schema(
    [
        pa.field("body", pa.binary()),
        pa.field("exchange", pa.string()),
        pa.field("routing_key", pa.string()),
        pa.field("properties", pa.binary()),
        pa.field("dedup_key", pa.string()),
    ]
)
OUTGOING_DDL: Final = "body binary, exchange string, routing_key string, properties binary, dedup_key string"
INCOMING: Final = ("lsn", "queue", "exchange", "routing_key", "properties", "body")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where messages go. With nothing set: each into the queue that it was in."""

    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    # To the exchange they were published to, with their key.
    original: bool = False

    def __post_init__(self) -> None:
        ways = [self.queue is not None, self.exchange is not None, self.original]
        if sum(ways) > 1:
            raise ValueError("messages go to a queue, to an exchange, or where they were published: choose one")
        if self.routing_key is not None and self.exchange is None:
            raise ValueError("a routing key goes with an exchange: give both, or a queue")

    def address(self, queue: str | None, exchange: str | None, routing_key: str | None) -> tuple[str, str]:
        """Exchange and routing key for a message that was in this queue, and came by this exchange and key."""
        if self.queue is not None:
            return "", self.queue
        if self.exchange is not None:
            return self.exchange, routing_key or "" if self.routing_key is None else self.routing_key
        if self.original:
            return exchange or "", routing_key or ""
        return "", queue or ""

    def __str__(self) -> str:
        if self.queue is not None:
            return f"queue {self.queue}"
        if self.exchange is not None:
            key = "their own keys" if self.routing_key is None else f"key {self.routing_key}"
            return f"exchange {self.exchange}, {key}"
        return "their exchanges and keys" if self.original else "the queues they were in"


def replay_key(name: str, lsn: int) -> str:
    """By which a queue with deduplication knows the message again, in each run of the same replay."""
    return f"replay/{name}/{lsn}"


def replayed_properties(raw: bytes | None, name: str, lsn: int, queue: str | None, user: str) -> bytes:
    """Return the properties of the message as it is published again."""
    properties: Properties = decode_properties(raw or NO_PROPERTIES)
    headers = {} if properties.headers is None else properties.headers
    headers = {header: field for header, field in headers.items() if header not in TAKEN_OFF}
    headers[NAME_HEADER] = ("S", name.encode())
    headers[LSN_HEADER] = ("l", lsn)
    headers[QUEUE_HEADER] = ("S", (queue or "").encode("utf-8", "surrogateescape"))
    properties.headers = headers
    properties.expiration = None
    if properties.user_id not in (None, user):
        properties.user_id = None
    return encode_properties(properties)


def replaying(
    name: str, destination: Destination, user: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: columns INCOMING to columns OUTGOING, row by row, in their order."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield replayed_batch(batch, name, destination, user)

    return work


def replayed_batch(batch: pa.RecordBatch, name: str, destination: Destination, user: str) -> pa.RecordBatch:
    columns = [batch.column(batch.schema.get_field_index(column)).to_pylist() for column in INCOMING]
    exchanges, keys, properties, dedup_keys = [], [], [], []
    for lsn, queue, exchange, routing_key, raw, _ in zip(*columns, strict=True):
        to_exchange, to_key = destination.address(queue, exchange, routing_key)
        exchanges.append(to_exchange)
        keys.append(to_key)
        properties.append(replayed_properties(raw, name, lsn, queue, user))
        dedup_keys.append(replay_key(name, lsn))
    values = (columns[-1], exchanges, keys, properties, dedup_keys)
    arrays = [pa.array(value, field.type) for value, field in zip(values, OUTGOING, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=OUTGOING)
