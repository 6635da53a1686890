"""Sessions over PostgreSQL whose statements are carried out and not answered, or neither: one verb after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client.errors import ConnectionLost, NotReserved
from tests.pg_proxy import PgProxy
from tests.postgres.plain_sql import PlainSql

WAIT_S = 60.0


@pytest.fixture
def proxy(penstock_url: str) -> Iterator[PgProxy]:
    # Names of sockets are short.
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        made = PgProxy(penstock_url, Path(folder, "proxy"))
        yield made
        made.close()


@pytest.fixture
def session(proxy: PgProxy) -> Iterator[penstock.Session]:
    with penstock.Session(proxy.url) as opened:
        yield opened


@pytest.fixture
def sql(penstock_url: str) -> Iterator[PlainSql]:
    with PlainSql(penstock_url) as opened:
        yield opened


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_put_that_was_not_answered_is_an_error_and_nothing_is_put_twice(
    session: penstock.Session, proxy: PgProxy, sql: PlainSql, is_carried_out: bool
) -> None:
    producer = session.producer_for("q")
    proxy.cut_at(b".put(", is_carried_out)
    with pytest.raises(ConnectionLost):
        producer.put("unknown")
    producer.put("known")
    found = sql.column("SELECT convert_from(payload, 'UTF8') FROM penstock.browse('q', 0, 10, 1000)")
    assert found == (["unknown", "known"] if is_carried_out else ["known"])


@pytest.mark.parametrize("lease", [None, 900.0])
@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_message_that_was_reserved_by_an_answer_that_got_lost_is_not_withheld(
    session: penstock.Session, proxy: PgProxy, lease: float | None, is_carried_out: bool
) -> None:
    session.producer_for("q").put("a")
    consumer = session.consumer_for("q", lease=lease)
    proxy.cut_at(b".reserve(", is_carried_out)
    with pytest.raises(ConnectionLost):
        consumer.reserve(wait=WAIT_S)
    message = consumer.reserve(wait=WAIT_S)
    assert message is not None
    # Nobody had looked at it.
    assert (message.payload, message.deliveries) == (b"a", 1)
    consumer.finalize(message)


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_what_the_caller_has_stays_reserved_when_another_answer_gets_lost(
    session: penstock.Session, proxy: PgProxy, is_carried_out: bool
) -> None:
    session.producer_for("q").put_many(["a", "b", "c"])
    consumer = session.consumer_for("q", lease=None)
    held = consumer.reserve_many(2)
    proxy.cut_at(b".reserve(", is_carried_out)
    with pytest.raises(ConnectionLost):
        consumer.reserve(wait=WAIT_S)
    last = consumer.reserve(wait=WAIT_S)
    assert last is not None
    assert [message.payload for message in (*held, last)] == [b"a", b"b", b"c"]
    assert consumer.finalize_many([*held, last]) == [*held, last]


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_finalizing_and_reserving_is_done_as_a_whole_or_not_at_all(
    session: penstock.Session, proxy: PgProxy, is_carried_out: bool
) -> None:
    session.producer_for("q").put_many(["a", "b"])
    consumer = session.consumer_for("q", lease=None)
    first = consumer.reserve(wait=WAIT_S)
    assert first is not None
    proxy.cut_at(b".finalize_many(", is_carried_out)
    with pytest.raises(ConnectionLost):
        consumer.finalize_and_reserve(first, "done")
    if is_carried_out:
        with pytest.raises(NotReserved):
            consumer.finalize(first)
    else:
        consumer.finalize(first)
    second = consumer.reserve(wait=WAIT_S)
    assert second is not None
    assert second.payload == b"b"
    consumer.finalize(second)
    assert [message.payload for message in session.history("q")] == [b"b", b"a"]


def test_a_finalize_that_was_carried_out_and_not_answered_is_in_the_history_once(
    session: penstock.Session, proxy: PgProxy, sql: PlainSql
) -> None:
    session.producer_for("q").put("a")
    consumer = session.consumer_for("q")
    message = consumer.reserve(wait=WAIT_S)
    assert message is not None
    proxy.cut_at(b".finalize(", is_carried_out=True)
    with pytest.raises(ConnectionLost):
        consumer.finalize(message, "done")
    with pytest.raises(NotReserved):
        consumer.finalize(message, "done")
    assert sql.column("SELECT finalized_note FROM penstock.messages_history") == ["done"]
    assert sql.one("SELECT count(*) FROM penstock.messages") == 0
