"""A write whose task fails in the middle of its first attempt: `python -m tests.pipeline.sink.retried_task URL`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pika
import pyarrow as pa
from pyspark import TaskContext

ROWS = 3_000
# Rows of one batch that go to the sink before the task fails.
BATCH = 1_500
# Small rows would wait in Spark's buffers for the end of the task.
WIDTH = 500


def depth(url: str, queue: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)
    finally:
        connection.close()


def failing(url: str, queue: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hands on the rows; on the first attempt it waits until some are in the queue, and fails then."""
    context = TaskContext.get()
    assert context is not None
    sent = 0
    for batch in batches:
        yield batch
        sent += batch.num_rows
        if context.attemptNumber() == 0 and sent >= BATCH * 2:
            deadline = time.monotonic() + 120
            while depth(url, queue) == 0:
                assert time.monotonic() < deadline, "nothing was published"
                time.sleep(0.05)
            raise RuntimeError("as the test wants it")


def main(url: str) -> None:
    from penstock.pipeline.session import spark_session

    settings = {"spark.driver.memory": "1g", "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH)}
    spark = spark_session("retried task", "local[2,3]", settings)
    rows = spark.range(0, ROWS * 2, 1, 1).selectExpr(f"lpad(cast(id as string), {WIDTH}, '0') as body")
    rows = rows.mapInArrow(lambda batches: failing(url, "orders", batches), "body string")
    rows.write.format("penstock").mode("append").options(broker=url, routingKey="orders").save()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
