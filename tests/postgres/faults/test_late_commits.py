"""Ids are given before the commit. What commits a moment late is found, and keeps its publisher's order."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock.pg import floor
from tests.interop.deadline import wait_until
from tests.server.pika_clients import consume
from tests.server.postgres_nodes import POSTGRES, Nodes, nodes_on

OTHERS = 1_000
PREFETCH = 50


@pytest.fixture
def nodes(penstock_url: str) -> Iterator[Nodes]:
    with nodes_on(penstock_url) as opened:
        yield opened


@pytest.mark.parametrize("ordering", ["strict", "fuzzy"])
def test_a_message_that_commits_late_comes_before_what_its_publisher_puts_next(
    nodes: Nodes, ordering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow this machine is, it is not later than that.
    monkeypatch.setattr(floor, "REACH_AGE_S", 3600.0)
    nodes.sql.execute("SELECT penstock.use_queue('q', %s)", (ordering,))
    channel = nodes.channel(nodes.start())
    channel.queue_declare("q", durable=True, arguments=POSTGRES)
    with psycopg.connect(nodes.url) as publisher:
        publisher.execute("SELECT penstock.put('q', 'first')")
        nodes.sql.execute(
            "SELECT count(*) FROM penstock.put_many('q', array_fill('other'::bytea, ARRAY[%s::int]))", (OTHERS,)
        )
        channel.basic_qos(prefetch_count=PREFETCH)
        inbox = consume(channel, "q")

        def serve() -> None:
            before = len(inbox.tags)
            channel.connection.process_data_events(0.05)
            if len(inbox.tags) > before:
                channel.basic_ack(inbox.tags[-1], multiple=True)

        # The consumer is far beyond the first message's place by then, and has no end in sight.
        wait_until(lambda: len(inbox.bodies) >= OTHERS // 2, "half of them came", serve)
        publisher.commit()
        publisher.execute("SELECT penstock.put('q', 'second')")
    wait_until(lambda: len(inbox.bodies) >= OTHERS + 2, "all came", serve)
    assert [body for body in inbox.bodies if body != b"other"] == [b"first", b"second"]
