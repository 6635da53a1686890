"""What breaks under a session over PostgreSQL: connections, processes, the server, the queue itself."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import penstock
from penstock.client.errors import ConnectionLost
from penstock.client.sync.postgres import consumer as pg_consumer
from penstock.pg.embedded import EmbeddedPostgres
from tests.client.any_driver import FACES, PATIENCE_S, Place, opened
from tests.client.calls import Call
from tests.interop.deadline import wait_until
from tests.postgres_server import new_server

Plain = psycopg.Connection[Any]

# Reserves a message, says so, and then waits for its end.
CHILD = """
import sys, penstock
session = penstock.Session(sys.argv[1])
message = session.consumer_for("q", lease=None).reserve(wait=None)
print(message.id, flush=True)
sys.stdin.read()
"""


def cut(plain: Plain, name: str) -> None:
    """End the connections of this name, and wait until they are gone."""
    ended = plain.execute(
        "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE application_name LIKE %s", (name,)
    ).fetchall()
    assert ended
    assert all(is_gone for (is_gone,) in ended)


def again(call: Callable[[], Any]) -> Any:
    """The connection is lost once, then it is there again."""
    with pytest.raises(ConnectionLost):
        call()
    return call()


# --- connections ------------------------------------------------------------------------------------------


def test_a_producer_whose_connection_was_cut_connects_again(database: Place, plain: Plain) -> None:
    session = database.session()
    producer = session.producer_for("q")
    producer.put("before")
    cut(plain, "penstock producer%")
    again(lambda: producer.put("after"))
    assert session.stats("q").ready_count == 2
    assert session.stats("q").producer_count == 1


def test_a_consumer_whose_connection_was_cut_keeps_what_nobody_has_taken_from_it(database: Place, plain: Plain) -> None:
    session = database.session()
    session.producer_for("q").put_many(["one", "two"])
    consumer = session.consumer_for("q")
    message = consumer.reserve(wait=PATIENCE_S)
    cut(plain, "penstock consumer%")
    again(lambda: consumer.finalize(message))
    assert consumer.reserve(wait=PATIENCE_S) is not None
    assert session.stats("q").consumer_count == 1


def test_a_consumer_that_was_cut_while_it_waited_says_so_and_can_wait_again(database: Place, plain: Plain) -> None:
    session = database.session()
    consumer = session.consumer_for("q")
    call = Call(lambda: consumer.reserve(wait=None))
    who = "SELECT count(*) FROM penstock.participants WHERE waiting"
    wait_until(lambda: plain.execute(who).fetchone() == (1,), "it waits")
    cut(plain, "penstock consumer%")
    with pytest.raises(ConnectionLost):
        call.result()
    call = Call(lambda: consumer.reserve(wait=PATIENCE_S))
    wait_until(lambda: plain.execute(who).fetchone() == (1,), "it waits again")
    session.producer_for("q").put("x")
    assert call.result().text == "x"


def test_what_the_ear_lost_it_hears_again(database: Place, plain: Plain) -> None:
    session = database.session()
    consumers = [session.consumer_for(name) for name in ("one", "two")]
    session.wait_any(consumers, 0.0)
    cut(plain, "penstock")
    with pytest.raises(ConnectionLost):
        session.wait_any(consumers, PATIENCE_S)
    call = Call(lambda: session.wait_any(consumers, None))
    plain.execute("SELECT penstock.put('two', 'x')")
    call.result()
    assert consumers[1].reserve() is not None


@pytest.fixture
def durable_postgres() -> Iterator[EmbeddedPostgres]:
    """A server of this test's own that keeps what was committed, also when it is stopped at once."""
    server = new_server({"synchronous_commit": "on"})
    yield server
    server.remove()


@pytest.mark.parametrize("face", FACES)
def test_a_session_outlives_its_server(durable_postgres: EmbeddedPostgres, face: str) -> None:
    with penstock.Session(durable_postgres.url, install=True) as session:
        session.use_queue("q")
    with opened(durable_postgres.url, face) as place:
        session = place.session()
        producer, consumer = session.producer_for("q"), session.consumer_for("q")
        producer.put("before")
        durable_postgres.stop("immediate")
        for call in (lambda: producer.put("lost"), consumer.reserve, session.queues):
            for _ in range(2):
                with pytest.raises(ConnectionLost):
                    call()
        durable_postgres.start()
        producer.put("after")
        texts = [consumer.reserve(wait=PATIENCE_S).text for _ in range(2)]
        assert sorted(texts) == ["after", "before"]
        assert consumer.reserve() is None


# --- processes --------------------------------------------------------------------------------------------


def test_what_a_killed_process_had_reserved_comes_back(penstock_url: str) -> None:
    with penstock.Session(penstock_url) as session:
        number = session.producer_for("q").put("x").id
        consumer = session.consumer_for("q")
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, penstock_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == number
            assert consumer.reserve() is None
            assert session.stats("q").consumer_count == 2
            child.send_signal(signal.SIGKILL)
            message = consumer.reserve(wait=60.0)
        assert message is not None
        assert (message.id, message.deliveries) == (number, 2)
        assert session.stats("q").consumer_count == 1


# --- the queue --------------------------------------------------------------------------------------------


def test_a_consumer_whose_queue_was_dropped_attaches_to_the_new_one(
    penstock_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg_consumer, "SWEEP_S", (0.0, 0.0))
    with penstock.Session(penstock_url) as session:
        consumer = session.consumer_for("q")
        assert session.drop_queue("q")
        session.producer_for("q").put("x")
        message = consumer.reserve(wait=PATIENCE_S)
        assert message is not None
        assert session.stats("q").consumer_count == 1
        consumer.finalize(message)
        assert session.stats("q").finalized_count == 1


def test_a_deadlock_with_somebody_else_is_tried_again(penstock_url: str, plain: Plain) -> None:
    with penstock.Session(penstock_url) as session:
        session.producer_for("q").put_many(["one", "two"])
        consumer = session.consumer_for("q")
        messages = consumer.reserve_many(2)
        lock = "SELECT 1 FROM penstock.messages WHERE id = %s FOR UPDATE"
        with contextlib.suppress(psycopg.errors.DeadlockDetected), plain.transaction(force_rollback=True):
            plain.execute(lock, (messages[1].id,))
            call = Call(lambda: consumer.finalize_many(messages))
            stuck = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            wait_until(lambda: plain.execute(stuck).fetchone() == (1,), "it waits for the second message")
            plain.execute(lock, (messages[0].id,))
        assert call.result() == messages
        assert session.stats("q").finalized_count == 2


def test_an_error_that_is_no_lost_connection_leaves_the_connection(penstock_url: str, plain: Plain) -> None:
    with penstock.Session(penstock_url) as session:
        producer = session.producer_for("q")
        plain.execute("ALTER TABLE penstock.messages ADD CONSTRAINT none CHECK (payload <> 'refused')")
        with pytest.raises(penstock.ClientError, match="none") as refused:
            producer.put("refused")
        assert not isinstance(refused.value, ConnectionLost)
        producer.put("accepted")
        assert session.stats("q").ready_count == 1
