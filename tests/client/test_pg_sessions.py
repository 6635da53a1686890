"""Sessions over PostgreSQL: setting up, being seen, names, and what else is peculiar to them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import penstock
from penstock.client.errors import ConnectionLost, SetupMissing
from penstock.client.message import Message
from penstock.wire.properties import Properties, encode_properties
from tests.client.any_driver import FACES, PATIENCE_S, Place, opened
from tests.client.calls import Call
from tests.interop.deadline import wait_until

NOWHERE = "postgresql:///x?host=/nowhere/at/all"
OTHERS = (
    "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


def names_of_others(plain: psycopg.Connection[Any]) -> list[str]:
    return sorted(name for (name,) in plain.execute(OTHERS))


# --- setting up -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("face", FACES)
def test_a_database_without_the_schema_says_how_to_make_it(postgres_url: str, face: str) -> None:
    with opened(postgres_url, face) as place, pytest.raises(SetupMissing, match="penstock pg install --url"):
        place.session().queues()


def test_the_schema_is_made_when_the_session_may(postgres_url: str) -> None:
    for _ in range(2):
        with penstock.Session(postgres_url, install=True) as session:
            session.producer_for("q").put("x")
    with penstock.Session(postgres_url) as session:
        assert session.stats("q").ready_count == 2


def test_a_session_whose_setup_was_missing_works_once_it_is_there(postgres_url: str) -> None:
    with penstock.Session(postgres_url) as session:
        with pytest.raises(SetupMissing):
            session.queues()
        with penstock.Session(postgres_url, install=True) as other:
            other.use_queue("q")
        assert session.queues() == ["q"]


def test_schemas_do_not_see_each_other(penstock_url: str) -> None:
    with (
        penstock.Session(penstock_url) as here,
        penstock.Session(penstock_url, schema="Other-schema 2", install=True) as there,
    ):
        here.producer_for("q").put("here")
        assert there.queues() == []
        there.producer_for("q").put("there")
        assert there.consumer_for("q").reserve(wait=PATIENCE_S).text == "there"
        assert here.consumer_for("q").reserve(wait=PATIENCE_S).text == "here"


def test_a_schema_with_other_things_in_it_is_left_alone(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.mine (x int)")
    with (
        penstock.Session(postgres_url, schema="public", install=True) as session,
        pytest.raises(SetupMissing, match="other things"),
    ):
        session.queues()


@pytest.mark.parametrize("face", FACES)
def test_a_server_that_is_not_there_is_a_lost_connection(face: str) -> None:
    with opened(NOWHERE, face) as place:
        # Nothing happens before the first use.
        session = place.session()
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                session.queues()


@pytest.mark.parametrize("url", ["mysql://me:secret@localhost/x", "localhost", "", "secret://"])
def test_a_url_that_nobody_speaks_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="postgresql://") as refused:
        penstock.Session(url)
    assert "secret" not in str(refused.value)


def test_a_url_that_libpq_does_not_understand_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="libpq") as refused:
        penstock.Session("postgresql://me:secret@localhost/x?no_such_option=1")
    assert "secret" not in str(refused.value)


# --- being seen -------------------------------------------------------------------------------------------


def test_participants_are_counted_and_carry_their_queues_name(database: Place, plain: psycopg.Connection[Any]) -> None:
    session = database.session()
    producer, consumer = session.producer_for("orders"), session.consumer_for("orders")
    stats = session.stats("orders")
    assert (stats.producer_count, stats.consumer_count) == (1, 1)
    assert names_of_others(plain) == ["penstock consumer 2 orders", "penstock producer 1 orders"]
    consumer.close()
    producer.close()
    stats = session.stats("orders")
    assert (stats.producer_count, stats.consumer_count) == (0, 0)


def test_a_closed_session_leaves_no_connection_and_no_participant(
    database: Place, plain: psycopg.Connection[Any]
) -> None:
    session = database.session()
    session.producer_for("q").put("x")
    first, second = session.consumer_for("q"), session.consumer_for("q")
    assert first.reserve(wait=PATIENCE_S) is not None
    session.wait_any([first, second], 0.0)
    session.close()
    wait_until(lambda: names_of_others(plain) == [], "all connections are closed")
    assert plain.execute("SELECT count(*) FROM penstock.participants").fetchone() == (0,)
    assert plain.execute("SELECT ready_count, reserved_count FROM penstock.queue_stats").fetchone() == (1, 0)


def test_a_session_shows_its_name_until_something_is_attached(
    penstock_url: str, plain: psycopg.Connection[Any]
) -> None:
    with penstock.Session(penstock_url, name="reports") as session:
        assert session.queues() == []
        assert names_of_others(plain) == ["penstock reports"]


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ['quote"quote', "it's", "Upper Case", "back\\slash", "ünï", "-- x", "x" * 1024])
def test_a_consumer_of_any_name_is_woken(penstock_url: str, plain: psycopg.Connection[Any], name: str) -> None:
    with penstock.Session(penstock_url) as session:
        consumer = session.consumer_for(name)
        call = Call(lambda: consumer.reserve(wait=PATIENCE_S))
        who = "SELECT count(*) FROM penstock.participants WHERE waiting"
        wait_until(lambda: plain.execute(who).fetchone() == (1,), "it waits")
        (channel,) = plain.execute("SELECT penstock.channel_of(%s)", (name,)).fetchone() or ("",)
        plain.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
        session.producer_for(name).put(name)
        told = list(plain.notifies(timeout=PATIENCE_S, stop_after=1))
        assert [one.channel for one in told] == [channel]
        message = call.result()
        assert (message.text, message.queue) == (name, name)


def test_twins_that_are_equal_in_63_bytes_are_two_queues(database: Place) -> None:
    one, other = "t" * 80 + "1", "t" * 80 + "2"
    session = database.session()
    session.producer_for(one).put("one")
    assert session.consumer_for(other).reserve(wait=0.05) is None
    assert session.consumer_for(one).reserve(wait=PATIENCE_S).text == "one"
    assert session.queues() == [one, other]


# --- rows of others ---------------------------------------------------------------------------------------


def put_row(plain: psycopg.Connection[Any], properties: bytes | None) -> None:
    plain.execute(
        "SELECT penstock.put_rows(ARRAY[penstock.use_queue('q')], ARRAY[%s::bytea], ARRAY['amq.topic'], ARRAY['a.b'],"
        " ARRAY[%s::bytea], ARRAY[NULL::timestamptz], ARRAY[0])",
        (b"body", properties),
    )


def reserved(url: str) -> Message:
    with penstock.Session(url) as session:
        message = session.consumer_for("q").reserve(wait=PATIENCE_S)
        assert message is not None
        return message


def test_a_message_from_amqp_has_its_properties(penstock_url: str, plain: psycopg.Connection[Any]) -> None:
    headers: Any = {"text": ("S", b"caf\xc3\xa9"), "octets": ("x", b"\xff"), "list": ("A", [("I", 1), ("t", True)])}
    properties = Properties(content_type="text/plain", priority=3, headers={**headers, "price": ("D", (2, 1999))})
    put_row(plain, encode_properties(properties))
    message = reserved(penstock_url)
    assert (message.exchange, message.routing_key, message.payload) == ("amq.topic", "a.b", b"body")
    price = message.properties["headers"].pop("price")
    assert str(price) == "19.99"
    assert message.properties == {
        "content_type": "text/plain",
        "priority": 3,
        "headers": {"text": "café", "octets": b"\xff", "list": [1, True]},
    }


@pytest.mark.parametrize("octets", [None, b"", b"\xff\xff\xff", b"\x80\x00\x05ab"])
def test_octets_that_are_no_properties_keep_nobody_from_the_message(
    penstock_url: str, plain: psycopg.Connection[Any], octets: bytes | None
) -> None:
    put_row(plain, octets)
    assert reserved(penstock_url).properties == {}


def test_the_history_has_the_newest_first_with_their_notes(database: Place) -> None:
    session = database.session()
    producer, consumer = session.producer_for("q"), session.consumer_for("q")
    producer.put_many(["a", "b", "c"])
    for _ in range(3):
        message = consumer.reserve(wait=PATIENCE_S)
        consumer.finalize(message, f"did {message.text}\0")
    kept = session.history("q", 2)
    assert [(message.text, message.finalized_note) for message in kept] == [("c", "did c\\0"), ("b", "did b\\0")]
    assert all(message.state == "finalized" and message.finalized_at >= message.reserved_at for message in kept)
    assert "penstock consumer" in kept[0].reserved_by


def test_a_message_that_expired_is_in_the_history_as_expired(database: Place, plain: psycopg.Connection[Any]) -> None:
    session = database.session()
    producer, consumer = session.producer_for("q"), session.consumer_for("q")
    producer.put_many(["old", "older"], ttl=0.001)
    plain.execute("SELECT pg_sleep(0.01)")
    assert consumer.reserve() is None
    assert [message.finalized_note for message in session.history("q")] == ["expired", "expired"]
