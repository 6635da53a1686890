"""What a hostile look at sessions over PostgreSQL has found."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from penstock.client.aio.postgres import consumer as aio_consumer
from penstock.client.errors import ConnectionLost
from penstock.client.sync.postgres import consumer as sync_consumer
from tests.client.any_driver import PATIENCE_S, Place
from tests.postgres_server import wait_until

Plain = psycopg.Connection[Any]


def test_a_consumer_goes_on_when_its_queue_was_dropped_and_made_again_by_somebody(
    database: Place, plain: Plain
) -> None:
    consumer = database.session().consumer_for("q")
    assert consumer.reserve() is None
    plain.execute("SELECT penstock.drop_queue('q')")
    plain.execute("SELECT penstock.put('q', 'new')")
    message = consumer.reserve(wait=PATIENCE_S)
    assert message.payload == b"new"
    consumer.finalize(message)
    assert database.session().stats("q").consumer_count == 1


def test_many_messages_that_are_too_old_go_in_batches(
    database: Place, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.execute("SELECT penstock.put_many('q', array_fill('x'::bytea, ARRAY[2500]), ttl => interval '0')")
    plain.execute("SELECT penstock.put('q', 'young')")
    session = database.session()
    consumer = session.consumer_for("q")
    looks: list[int] = []
    for module, name in ((aio_consumer, "AsyncPgConsumer"), (sync_consumer, "PgConsumer")):
        kind: Any = getattr(module, name)

        def reserve(self: Any, count: int, floor: int, before: Any = kind._reserve) -> Any:
            looks.append(count)
            return before(self, count, floor)

        monkeypatch.setattr(kind, "_reserve", reserve)
    assert consumer.reserve().payload == b"young"
    assert len(looks) < 100
    assert session.stats("q").finalized_count == 2500
    assert {message.finalized_note for message in session.history("q", 10)} == {"expired"}


def test_what_was_too_old_when_the_connection_broke_goes_back(database: Place, plain: Plain) -> None:
    plain.execute("SELECT penstock.put('q', 'old', ttl => interval '0')")
    session = database.session()
    consumer = session.consumer_for("q", lease=None)
    # Reserving works, finalizing does not: the server goes away in between.
    plain.execute(
        "CREATE FUNCTION public.die() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
    )
    plain.execute("CREATE TRIGGER die BEFORE DELETE ON penstock.messages EXECUTE FUNCTION public.die()")
    with pytest.raises(ConnectionLost):
        consumer.reserve()
    plain.execute("DROP TRIGGER die ON penstock.messages")
    assert consumer.reserve() is None
    assert session.stats("q").reserved_count == 0


def test_functions_in_public_are_not_called_by_a_sessions_statements(database: Place, plain: Plain) -> None:
    # It would fit better than PostgreSQL's own, which is for arrays of any type.
    plain.execute(
        "CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'somebody else''s function was called'; END $$"
    )
    session = database.session()
    consumer = session.consumer_for("q")
    assert consumer.reserve(wait=0.01) is None
    session.producer_for("q").put("x")
    session.wait_any([consumer], wait=PATIENCE_S)
    assert consumer.reserve().payload == b"x"


def test_a_consumer_that_is_never_idle_returns_what_the_dead_had_reserved(
    database: Place, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (aio_consumer, sync_consumer):
        monkeypatch.setattr(module, "SWEEP_S", (0.0, 0.0))
    plain.execute("SELECT penstock.put_many('q', array_fill('x'::bytea, ARRAY[20]))")
    consumer = database.session().consumer_for("q")
    message = consumer.reserve()
    with psycopg.connect(database.url, autocommit=True) as dying:
        dying.execute("SELECT penstock.reserve('q', 2, penstock.attach('q', 'consumer', '0'))")
        pid = dying.info.backend_pid
    wait_until(lambda: plain.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None)
    for _ in range(10):
        message = consumer.finalize_and_reserve(message)
    owners = "SELECT count(DISTINCT owner) FROM penstock.messages WHERE state = 1"
    assert plain.execute(owners.encode()).fetchone() == (1,)
