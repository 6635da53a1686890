"""The view `messages`: what is in a queue now, looked at without consuming; and as a stream, what is published to it.

A batch asks a running broker, page by page, one task for each queue. A folder cannot answer: which messages are ready,
unacked or delayed is known to the broker alone. A stream reads published events from the log, so it needs no broker,
and has each message once, whatever became of it; its state is `published`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.history.http_log import HttpLog
from penstock.pipeline.columns import EXPIRES_MS_MAX, KINDS, MESSAGES
from penstock.pipeline.decode.properties.properties import PropertyReader
from penstock.pipeline.decode.request import EVENTS_VIEW, Request
from penstock.pipeline.source import options as names
from penstock.pipeline.source.log_read import LogTask, open_source
from penstock.pipeline.source.options import OptionError, SourceOptions, refuse_stream_options
from penstock.pipeline.source.shape import arrow_schema, projection, shaped

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DEFAULT_VHOST: Final = "/"
PAGE: Final = 500
PUBLISHED: Final = KINDS[1]
# Columns that an event does not have: of a message that has just been published they are known.
OF_PUBLISHED: Final[dict[str, Any]] = {"state": PUBLISHED, "redelivered": False}


@dataclass
class QueuePartition(InputPartition):
    """A queue for one task."""

    vhost: str
    queue: str


class MessagesReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        refuse_stream_options(options)
        if not options.source.startswith(("http://", "https://")):
            raise OptionError(
                "what is in a queue now is known to a running broker alone: give its http:// URL as the source"
                " (penstock serve --http-port). A folder has the views events and runs, and streams of messages"
            )
        if options.starting is not None or options.ending != names.Position(names.LATEST):
            raise OptionError(
                "a batch of messages is what is in the queue now: it has no startingOffsets or endingOffsets"
            )
        self._options = options
        self._columns = projection(names.MESSAGES, schema)
        self._target = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        vhost = self._options.vhost or DEFAULT_VHOST
        if self._options.queue is not None:
            return [QueuePartition(vhost, self._options.queue)]
        with closing(self._opened()) as log:
            found = {(queue["vhost"], queue["queue"]) for queue in log.counters()["queues"]}
        return [QueuePartition(vhost, queue) for its_vhost, queue in sorted(found) if its_vhost == vhost]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own where there is none.
        if not isinstance(partition, QueuePartition):
            return
        wanted = pa.schema([MESSAGES.field(name) for name in self._columns])
        reader = PropertyReader()
        with closing(self._opened()) as log:
            from_seq: int | None = 0
            while from_seq is not None:
                page, from_seq = log.messages(partition.vhost, partition.queue, from_seq, PAGE)
                rows = [self._row(message, partition, reader) for message in page]
                if rows:
                    yield shaped(pa.RecordBatch.from_pylist(rows, schema=wanted), self._target)

    def _row(self, message: dict[str, Any], partition: QueuePartition, reader: PropertyReader) -> dict[str, Any]:
        """Return the wanted columns of a message as the broker has it."""
        facts = reader.read(message["properties"])
        expires_ms = message["expires"]
        whole = {
            **message,
            "vhost": partition.vhost,
            "queue": partition.queue,
            "expires": None if expires_ms is None else min(expires_ms, EXPIRES_MS_MAX) * 1000,
            "message_id": facts.message_id,
            "correlation_id": facts.correlation_id,
            "content_type": facts.content_type,
            "headers": facts.headers,
            "body": message["body"] if self._options.bodies else None,
        }
        return {name: whole[name] for name in self._columns}

    def _opened(self) -> HttpLog:
        log = open_source(self._options)
        assert isinstance(log, HttpLog)
        return log


class PublishedTask(LogTask):
    """Published events as messages, for `spark.readStream` of the view."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.target = arrow_schema(schema)
        columns = projection(names.MESSAGES, schema)
        self.request = Request(
            view=EVENTS_VIEW,
            # At least one column, so that rows can be counted.
            columns=tuple(name for name in columns if name not in OF_PUBLISHED) or ("lsn",),
            bodies=options.bodies,
            vhost=options.vhost or DEFAULT_VHOST,
            queues=None if options.queue is None else frozenset({options.queue}),
            kinds=frozenset({PUBLISHED}),
        )

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in OF_PUBLISHED.items():
            column = pa.repeat(pa.scalar(value, MESSAGES.field(name).type), batch.num_rows)
            batch = batch.append_column(MESSAGES.field(name), column)
        return shaped(batch, self.target)
