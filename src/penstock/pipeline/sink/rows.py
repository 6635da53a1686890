"""Rows as messages: which columns there are, what types they may have, and how each becomes part of a message.

A row's `properties`, when it has any, are the base: octets as in an AMQP content header. What other columns say stands
above them, and a null says nothing. A row without `delivery_mode` and `persistent` is persistent.

The key of a message is `<query>/<batch>/<partition>/<row>`, the same each time a batch is made: it becomes the header
by which a queue with deduplication knows it again, and the message-id of a row that has none. Column `dedup_key` is for
keys of one's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.errors import AmqpError
from penstock.fields import Table
from penstock.limits import MESSAGE_BYTES_MAX, SHORT_STRING_BYTES_MAX
from penstock.pipeline.sink.options import SinkError, SinkOptions
from penstock.pipeline.sink.publisher import OutgoingMessage
from penstock.wire.properties import Properties, decode_properties, encode_properties

PERSISTENT: Final = 2
TRANSIENT: Final = 1

_TEXT: Final = (StringType,)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_OCTETS: Final = (BinaryType, StringType)

COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": _OCTETS,
    "exchange": _TEXT,
    "routing_key": _TEXT,
    "headers": (MapType,),
    "content_type": _TEXT,
    "content_encoding": _TEXT,
    "message_id": _TEXT,
    "correlation_id": _TEXT,
    "type": _TEXT,
    "reply_to": _TEXT,
    # Milliseconds.
    "expiration": (*_TEXT, *_WHOLE),
    "priority": _WHOLE,
    "delivery_mode": _WHOLE,
    "persistent": (BooleanType,),
    # A point in time, or seconds since 1970.
    "timestamp": (TimestampType, *_WHOLE),
    "user_id": _TEXT,
    "app_id": _TEXT,
    "properties": (BinaryType,),
    "dedup_key": _TEXT,
}
# Columns that are a text of the message's properties under the same name.
_TEXT_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "message_id",
    "correlation_id",
    "type",
    "reply_to",
    "user_id",
    "app_id",
)


def check_schema(schema: StructType) -> None:
    """SinkError when rows of this schema cannot be published."""
    for column in schema.fields:
        allowed = COLUMNS.get(column.name)
        if allowed is None:
            raise SinkError(
                f"the sink does not know column {column.name!r}; it knows {', '.join(COLUMNS)}. Drop it or rename it"
            )
        kind = column.dataType
        if not isinstance(kind, allowed) or (isinstance(kind, MapType) and not _is_text_by_text(kind)):
            names = " or ".join("map<string,string>" if one is MapType else one.typeName() for one in allowed)
            raise SinkError(f"column {column.name!r} is {kind.simpleString()}, and must be {names}")
    if "body" not in schema.fieldNames():
        raise SinkError(f"rows have no column 'body'; there are {', '.join(schema.fieldNames()) or 'none'}")


def _is_text_by_text(kind: MapType) -> bool:
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


@dataclass(frozen=True, slots=True)
class RowKeys:
    """What the keys of a task's rows begin with."""

    query: str
    batch: str
    partition: int

    def key(self, row: int) -> str:
        return f"{self.query}/{self.batch}/{self.partition}/{row}"


class RowReader:
    """Makes the messages of one task, in the order of its rows."""

    def __init__(self, options: SinkOptions, keys: RowKeys) -> None:
        self._options = options
        self._keys = keys
        self._count = 0

    def messages(self, batch: pa.RecordBatch) -> Iterator[OutgoingMessage]:
        """The messages of a batch. The next batch's rows are numbered on from here."""
        names = batch.schema.names
        columns = [_values(name, batch.column(index)) for index, name in enumerate(names)]
        for values in zip(*columns, strict=True):
            key = self._keys.key(self._count)
            self._count += 1
            try:
                yield self._message(dict(zip(names, values, strict=True)), key)
            except (SinkError, ValueError, AmqpError) as error:
                words = error.reply_text if isinstance(error, AmqpError) else str(error)
                raise SinkError(f"row {key} cannot be published: {words}") from None

    def _message(self, row: dict[str, Any], key: str) -> OutgoingMessage:
        options = self._options
        body = row["body"]
        if body is None:
            raise SinkError("its body is null; an empty message has an empty body")
        if isinstance(body, str):
            body = body.encode()
        if len(body) > MESSAGE_BYTES_MAX:
            raise SinkError(f"its body has {len(body)} bytes, and a broker takes {MESSAGE_BYTES_MAX}")
        raw = row.get("properties")
        properties = Properties() if raw is None else decode_properties(raw)
        _fill_in(properties, row)
        if properties.delivery_mode is None:
            properties.delivery_mode = PERSISTENT
        key = row.get("dedup_key") or key
        if properties.message_id is None:
            properties.message_id = key
        if options.dedup_header is not None:
            headers: Table = {} if properties.headers is None else properties.headers
            headers[options.dedup_header] = ("S", key.encode())
            properties.headers = headers
        exchange = row.get("exchange")
        routing_key = row.get("routing_key")
        if routing_key is None:
            routing_key = options.routing_key
        if exchange is None:
            exchange = options.exchange
        if routing_key is None:
            if not exchange:
                raise SinkError("it has no routing_key: give it a column, or set option 'routingkey'")
            routing_key = ""
        for name, text in (("exchange", exchange), ("routing_key", routing_key)):
            if len(text.encode()) > SHORT_STRING_BYTES_MAX:
                raise SinkError(f"its {name} has {len(text.encode())} bytes, and at most {SHORT_STRING_BYTES_MAX} fit")
        return OutgoingMessage(exchange, routing_key, encode_properties(properties), properties.message_id, body)


def _values(name: str, column: pa.Array) -> list[Any]:
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        seconds = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if value is None else value // 1_000_000 for value in seconds]
    return list(column.to_pylist())


def _fill_in(properties: Properties, row: dict[str, Any]) -> None:
    """Set what the row says by name."""
    for name in _TEXT_PROPERTIES:
        text = row.get(name)
        if text is not None:
            setattr(properties, name, text)
    expiration = row.get("expiration")
    if expiration is not None:
        properties.expiration = str(expiration)
    if row.get("priority") is not None:
        properties.priority = _whole(row, "priority", 0, 255)
    if row.get("delivery_mode") is not None:
        properties.delivery_mode = _whole(row, "delivery_mode", TRANSIENT, PERSISTENT)
    if row.get("persistent") is not None:
        properties.delivery_mode = PERSISTENT if row["persistent"] else TRANSIENT
    if row.get("timestamp") is not None:
        properties.timestamp = _whole(row, "timestamp", 0, 2**63 - 1)
    given = row.get("headers")
    if given is not None:
        headers: Table = {} if properties.headers is None else properties.headers
        for name, value in given:
            headers[name] = ("V", None) if value is None else ("S", value.encode())
        properties.headers = headers


def _whole(row: dict[str, Any], name: str, least: int, most: int) -> int:
    value = int(row[name])
    if not least <= value <= most:
        raise SinkError(f"its {name} is {value}, and must be from {least} to {most}")
    return value
