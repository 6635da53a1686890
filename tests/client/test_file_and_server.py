"""One folder, used by a session over file:// and by a server in turn: what one left, the other reads."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from penstock.client.errors import ConnectionLost
from penstock.client.sync.session import Session
from penstock.testing import Broker

PATIENCE_S = 60.0


def test_a_server_delivers_what_a_session_has_put(tmp_path: Path) -> None:
    with Session(tmp_path.as_uri()) as session:
        session.producer_for("orders").put_many(["a", "b"])
    with Broker(data_dir=tmp_path) as broker, Session(broker.url) as session:
        consumer = session.consumer_for("orders")
        first, second = [consumer.reserve(wait=PATIENCE_S) for _ in range(2)]
        assert (first.text, second.text) == ("a", "b")
        consumer.finalize(first)
    with Session(tmp_path.as_uri()) as session:
        (again,) = session.consumer_for("orders").reserve_many(5)
        assert again.text == "b"
        assert again.id == second.id
        assert again.deliveries == 2


def test_a_session_reserves_what_an_amqp_client_has_published(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        properties = pika.BasicProperties(
            delivery_mode=2, message_id="same", content_type="text/plain", headers={"colour": "red", "n": 5}
        )
        for body in (b"a", b"b"):
            channel.basic_publish("", "orders", body, properties)
        channel.basic_publish("", "orders", b"bare", pika.BasicProperties(delivery_mode=2))
        connection.close()
    with Session(tmp_path.as_uri()) as session:
        consumer = session.consumer_for("orders")
        first, second, bare = consumer.reserve_many(5)
        assert [first.payload, second.payload, bare.payload] == [b"a", b"b", b"bare"]
        assert first.properties["content_type"] == "text/plain"
        assert first.properties["headers"] == {"colour": "red", "n": 5}
        # Two messages with one id are told apart.
        assert len({first.id, second.id, bare.id}) == 3
        consumer.finalize(second, note="the second")
        consumer.bury(bare)
        (kept,) = session.history("orders")
        assert (kept.payload, kept.finalized_note) == (b"b", "the second")
        assert kept.properties["headers"] == {"colour": "red", "n": 5}
        assert session.stats("orders").buried_count == 1


def test_what_a_session_has_buried_is_kicked_over_amqp(tmp_path: Path) -> None:
    with Session(tmp_path.as_uri()) as session:
        session.producer_for("orders").put_many(["a", "b"])
        consumer = session.consumer_for("orders")
        for message in consumer.reserve_many(2):
            consumer.bury(message, note="why")
    with Broker(data_dir=tmp_path) as broker, Session(broker.url) as session:
        consumer = session.consumer_for("orders")
        assert consumer.kick() == 1
        kicked = consumer.reserve(wait=PATIENCE_S)
        assert (kicked.text, kicked.deliveries, kicked.note) == ("a", 2, "why")
        consumer.bury(kicked, note="again")
    with Session(tmp_path.as_uri()) as session:
        consumer = session.consumer_for("orders")
        assert consumer.kick(5) == 2
        found = {message.text: (message.deliveries, message.note) for message in consumer.reserve_many(5)}
        assert found == {"a": (3, "again"), "b": (2, "why")}


def test_a_message_that_waits_is_released_by_a_server(tmp_path: Path) -> None:
    with Session(tmp_path.as_uri()) as session:
        session.producer_for("orders").put("soon", delay=0.2)
        session.producer_for("orders").put("late", delay=3600)
    with Broker(data_dir=tmp_path) as broker, Session(broker.url) as session:
        assert session.consumer_for("orders").reserve(wait=PATIENCE_S).text == "soon"
    with Session(tmp_path.as_uri()) as session:
        assert session.stats("orders").scheduled_count == 1


@pytest.mark.parametrize("name", ["plain", "new\nline", "ü" * 120, "x" * 250])
def test_names_mean_the_same_queue_to_both(tmp_path: Path, name: str) -> None:
    with Session(tmp_path.as_uri()) as session:
        session.producer_for(name).put_many(["a", "b"])
        consumer = session.consumer_for(name)
        consumer.bury(consumer.reserve())
    with Broker(data_dir=tmp_path) as broker, Session(broker.url) as session:
        consumer = session.consumer_for(name)
        assert consumer.reserve(wait=PATIENCE_S).text == "b"
        assert consumer.kick(5) == 1
        assert consumer.reserve(wait=PATIENCE_S).text == "a"


def test_a_folder_whose_queues_are_in_postgresql_is_left_to_its_server(tmp_path: Path, penstock_url: str) -> None:
    broker = Broker(data_dir=tmp_path, postgres_url=penstock_url)
    with broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        connection.channel().queue_declare("rows", durable=True, arguments={"x-backing": "postgres"})
        connection.close()
    with Session(tmp_path.as_uri()) as session, pytest.raises(ConnectionLost, match="PostgreSQL"):
        session.queues()
    # Nothing holds the folder.
    with broker:
        assert broker.queue_depth("rows") == 0
