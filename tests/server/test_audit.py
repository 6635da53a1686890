"""What clients do is in the audit, and on `amq.rabbitmq.event` for whoever binds a queue to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock.broker.audit.reading import Filter, records
from penstock.config import Config
from penstock.disk.os_files import OsFiles
from penstock.testing import Broker


def events(folder: Path, name: str = "") -> list[dict[str, Any]]:
    return list(records(OsFiles(str(folder)), Filter(event=name)))


def short(record: dict[str, Any]) -> tuple[str, str, str]:
    return record["event"], record["user"], str(record.get("name", record.get("queue", record.get("exchange", ""))))


def act(channel: BlockingChannel) -> None:
    """Everything of which the audit tells, once."""
    channel.exchange_declare("ex", "fanout", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "ex", "key")
    channel.queue_bind("q", "ex", "key")
    channel.exchange_bind("ex", "amq.fanout", "")
    channel.basic_publish("ex", "key", b"m")
    channel.queue_purge("q")
    channel.queue_unbind("q", "ex", "key")
    channel.exchange_unbind("ex", "amq.fanout", "")
    channel.queue_delete("q")
    channel.exchange_delete("ex")
    channel.exchange_delete("ex")


ACTS = [
    ("exchange.created", "guest", "ex"),
    ("queue.created", "guest", "q"),
    ("binding.created", "guest", "q"),
    ("binding.created", "guest", "ex"),
    ("queue.purged", "guest", "q"),
    ("binding.deleted", "guest", "q"),
    ("binding.deleted", "guest", "ex"),
    ("queue.deleted", "guest", "q"),
    ("exchange.deleted", "guest", "ex"),
]


def test_the_audit_tells_what_a_client_declared_bound_purged_and_deleted(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        act(connection.channel())
    found = events(tmp_path)
    assert [short(record)[0] for record in found[:2]] == ["user.authentication.success", "connection.created"]
    assert [short(record) for record in found[2:-1]] == ACTS
    assert found[-1]["event"] == "connection.closed"
    assert all(record["address"].startswith("127.0.0.1:") and record["via"] == "amqp" for record in found)
    purged = next(record for record in found if record["event"] == "queue.purged")
    assert (purged["vhost"], purged["messages"]) == ("/", 1)


def test_a_failed_login_is_audited_with_its_name_and_without_its_password(tmp_path: Path) -> None:
    config = Config(login_refused_delay_s=0.0)
    with Broker(config, data_dir=tmp_path) as broker:
        parameters = pika.ConnectionParameters(
            broker.host, broker.port, credentials=pika.PlainCredentials("eve", "canary-5c1f")
        )
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(parameters)
    (failure,) = events(tmp_path, "user.authentication.failure")
    assert (failure["user"], failure["mechanism"]) == ("eve", "PLAIN")
    assert "canary" not in str(events(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"auto_delete": True}, "auto-delete"),
        ({"exclusive": True}, "exclusive"),
        ({"arguments": {"x-expires": 1}}, "expired"),
    ],
)
def test_a_queue_that_goes_by_itself_is_audited_with_the_reason(
    tmp_path: Path, arguments: dict[str, Any], reason: str
) -> None:
    with Broker(data_dir=tmp_path) as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", **arguments)
        if reason == "auto-delete":
            channel.basic_cancel(channel.basic_consume("q", lambda *_: None))
        elif reason == "expired":
            while broker.call(lambda server: "q" in server.broker.vhosts["/"].queues):
                connection.process_data_events(0.01)
    (deleted,) = events(tmp_path, "queue.deleted")
    assert (deleted["user"], deleted["name"], deleted["reason"]) == ("(broker)", "q", reason)


def test_events_come_to_queues_that_are_bound_to_the_event_exchange(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("events", durable=True)
        channel.queue_bind("events", "amq.rabbitmq.event", "queue.*")
        channel.queue_declare("q", durable=True)
        channel.queue_delete("q")
        found = [channel.basic_get("events", auto_ack=True) for _ in range(3)]
        assert found[2][0] is None
        created, deleted = found[:2]
        assert (created[0].exchange, created[0].routing_key) == ("amq.rabbitmq.event", "queue.created")
        assert (created[1].headers["name"], created[1].headers["user"], created[2]) == ("q", "guest", b"")
        assert created[1].delivery_mode == 2
        assert created[1].timestamp == created[1].headers["timestamp_in_ms"] // 1000
        assert deleted[0].routing_key == "queue.deleted"


def test_the_binding_to_the_event_exchange_outlives_a_restart(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path)
    with broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("events", durable=True)
        channel.queue_bind("events", "amq.rabbitmq.event", "user.#")
    with broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        method, _, _ = connection.channel().basic_get("events", auto_ack=True)
        assert method is not None
        assert method.routing_key == "user.authentication.success"


def test_clients_cannot_publish_to_the_event_exchange() -> None:
    with Broker() as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.basic_publish("amq.rabbitmq.event", "queue.created", b"")
        assert refused.value.reply_code == 403
