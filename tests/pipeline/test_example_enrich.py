"""The example of a pipeline of one's own, from end to end."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from penstock.testing import Broker
from tests.pipeline.past_messages import send
from tests.pipeline.sink.queues import declare, take_all
from tests.postgres_server import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipeline" / "enrich.py"


def example() -> ModuleType:
    spec = spec_from_file_location("enrich", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def order(number: int, customer: str) -> bytes:
    return json.dumps({"id": number, "customer": customer, "amount": 9.5}).encode()


def test_orders_come_out_with_the_names_of_their_customers_also_after_a_restart(
    spark: SparkSession, broker: Broker, data_dir: Path, tmp_path: Path
) -> None:
    declare(broker.url, "orders")
    send(broker, "orders", [order(1, "c-1"), order(2, "c-2"), order(3, "nobody")], message_id="m-1")
    enrich = example().enrich
    arguments = (spark, str(data_dir), broker.url, str(tmp_path / "checkpoint"))
    query = enrich(*arguments)
    wait_until(lambda: query.exception() is not None or depth(broker, "orders.enriched") == 2, 300)
    query.stop()
    send(broker, "orders", [b"no order", order(4, "c-3")], message_id="m-2")
    query = enrich(*arguments)
    wait_until(lambda: query.exception() is not None or depth(broker, "orders.enriched") == 3, 300)
    query.stop()
    found = take_all(broker.url, "orders.enriched")
    assert [json.loads(body)["name"] for _, _, body in found] == ["Ada Lovelace", "Grace Hopper", "Emmy Noether"]
    _, properties, body = found[2]
    assert json.loads(body) == {"id": 4, "amount": 9.5, "name": "Emmy Noether", "country": "DE"}
    assert (properties.correlation_id, properties.headers["country"]) == ("m-2", "DE")
    # It has read along.
    assert broker.queue_depth("orders") == 5


def depth(broker: Broker, queue: str) -> int:
    try:
        return broker.queue_depth(queue)
    except KeyError:
        return 0
