"""Transactions: nothing happens before the commit, everything at it, and nothing of it after a rollback."""

from __future__ import annotations

import pytest
from pamqp import commands
from wire_bench import Bench, Client

Basic, Tx = commands.Basic, commands.Tx


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> Client:
    """On a transactional channel, beside a queue q."""
    bench.queue("q")
    client = bench.client()
    assert isinstance(client.call(Tx.Select())[0], Tx.SelectOk)
    return client


def deliveries(client: Client) -> list[int]:
    """Consume from q with acknowledgement; the delivery tags of what comes."""
    return [frame.delivery_tag for frame in client.call(Basic.Consume(0, "q", "c")) if isinstance(frame, Basic.Deliver)]


def counts(bench: Bench) -> tuple[int, int]:
    """Messages in q that are ready, and those that are not yet acknowledged."""
    queue = bench.vhost.queues["q"]
    return len(queue), queue.backing.depth() - len(queue)


def test_publishes_arrive_at_the_commit_and_in_their_order(bench: Bench, client: Client) -> None:
    client.publish("", "q", b"a", b"b")
    client.publish("", "q", b"c")
    assert counts(bench) == (0, 0)
    assert isinstance(client.call(Tx.Commit())[0], Tx.CommitOk)
    assert [client.get() for _ in range(4)] == [(b"a", False), (b"b", False), (b"c", False), None]


def test_publishes_are_forgotten_at_a_rollback(bench: Bench, client: Client) -> None:
    client.publish("", "q", b"a")
    assert isinstance(client.call(Tx.Rollback())[0], Tx.RollbackOk)
    client.call(Tx.Commit())
    assert counts(bench) == (0, 0)


def test_acknowledgements_count_at_the_commit(bench: Bench, client: Client) -> None:
    bench.client().publish("", "q", b"a", b"b", b"c")
    assert deliveries(client) == [1, 2, 3]
    client.send(Basic.Ack(1), Basic.Nack(2, False, False), Basic.Reject(3, True))
    client.read()
    assert counts(bench) == (0, 3)
    answer = client.call(Tx.Commit())
    assert isinstance(answer[0], Tx.CommitOk)
    again = [frame for frame in answer if isinstance(frame, Basic.Deliver)]
    assert [(frame.delivery_tag, frame.redelivered) for frame in again] == [(4, True)]
    assert counts(bench) == (0, 1)


def test_acknowledgements_are_undone_by_a_rollback_and_can_be_made_again(bench: Bench, client: Client) -> None:
    bench.client().publish("", "q", b"a", b"b", b"c")
    assert deliveries(client) == [1, 2, 3]
    client.send(Basic.Ack(2), Basic.Ack(3, True))
    client.call(Tx.Rollback())
    assert counts(bench) == (0, 3)
    client.send(Basic.Ack(3, True))
    assert isinstance(client.call(Tx.Commit())[0], Tx.CommitOk)
    assert counts(bench) == (0, 0)


def test_acknowledgements_that_were_not_committed_are_undone_when_the_channel_closes(
    bench: Bench, client: Client
) -> None:
    bench.client().publish("", "q", b"a", b"b")
    assert deliveries(client) == [1, 2]
    client.send(Basic.Ack(1))
    client.publish("", "q", b"never")
    client.call(commands.Channel.Close(200, "", 0, 0))
    assert counts(bench) == (2, 0)
    other = bench.client()
    assert [other.get() for _ in range(3)] == [(b"a", True), (b"b", True), None]


def test_a_second_acknowledgement_of_a_tag_within_a_transaction_loses_nothing(bench: Bench, client: Client) -> None:
    bench.client().publish("", "q", b"a", b"b")
    assert deliveries(client) == [1, 2]
    client.send(Basic.Ack(1))
    [close] = client.call(Basic.Ack(1))
    assert close.reply_text == "PRECONDITION_FAILED - unknown delivery tag 1"
    assert counts(bench) == (2, 0)


def test_a_commit_reaches_the_queues_of_the_publish_though_their_exchange_is_gone(bench: Bench, client: Client) -> None:
    bench.client().publish("", "q", b"delivered")
    assert deliveries(client) == [1]
    bench.vhost.declare_exchange("x", "fanout", False, False, False, {})
    bench.vhost.bind_queue("x", bench.vhost.queues["q"], "", {})
    client.publish("x", "", b"a")
    client.send(Basic.Ack(1))
    bench.vhost.delete_exchange("x", False)
    client.send(Basic.Cancel("c"))
    assert isinstance(client.call(Tx.Commit())[-1], Tx.CommitOk)
    assert counts(bench) == (1, 0)


def test_a_queue_that_is_gone_at_the_commit_is_left_out(bench: Bench, client: Client) -> None:
    for name in ("r", "s"):
        bench.vhost.bind_queue("amq.fanout", bench.queue(name), "", {})
    client.publish("amq.fanout", "", b"a")
    bench.vhost.delete_queue(bench.vhost.queues["r"], False, False)
    bench.queue("r")
    assert isinstance(client.call(Tx.Commit())[0], Tx.CommitOk)
    assert (client.get("s"), client.get("r")) == ((b"a", False), None)


def test_an_unroutable_mandatory_message_comes_back_at_the_commit(client: Client) -> None:
    client.publish("", "nowhere", b"a", mandatory=True)
    assert client.read() == []
    answer = client.call(Tx.Commit())
    assert isinstance(answer[0], Basic.Return)
    assert isinstance(answer[-1], Tx.CommitOk)


@pytest.mark.parametrize("method", [Tx.Commit(), Tx.Rollback()])
def test_only_a_transactional_channel_commits_or_rolls_back(bench: Bench, method: Tx.Commit | Tx.Rollback) -> None:
    [close] = bench.client().call(method)
    assert close.reply_text == "PRECONDITION_FAILED - channel is not transactional"
