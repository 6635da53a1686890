"""Orders with the names of their customers, as they come: from one queue to another. README.md has the commands."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.session import spark_session

CUSTOMERS = str(Path(__file__).with_name("customers.csv"))


def enrich(spark: SparkSession, source: str, broker: str, checkpoint: str) -> StreamingQuery:
    """The pipeline, in ten lines. It reads along: `orders` keeps its messages for whoever consumes them."""
    customers = spark.read.csv(CUSTOMERS, header=True)
    messages = spark.readStream.format("penstock").options(source=source, view="messages", queue="orders").load()
    order = f.from_json(f.col("body").cast("string"), "id long, customer string, amount double").alias("order")
    orders = messages.select(order, f.col("message_id").alias("correlation_id")).select("order.*", "correlation_id")
    body = f.to_json(f.struct("id", "amount", "name", "country")).alias("body")
    headers = f.create_map(f.lit("country"), f.col("country")).alias("headers")
    enriched = orders.join(customers, "customer").select(body, headers, "correlation_id")
    target = {"broker": broker, "declareQueue": "orders.enriched", "checkpointLocation": checkpoint}
    return enriched.writeStream.format("penstock").options(**target).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, help="data folder of the broker, or its http:// URL")
    parser.add_argument("--broker", default="amqp://guest:guest@127.0.0.1:5672/%2F")
    parser.add_argument("--checkpoint", required=True, help="a folder that says how far the stream is")
    given = parser.parse_args()
    enrich(spark_session("enrich"), given.source, given.broker, given.checkpoint).awaitTermination()


if __name__ == "__main__":
    main()
