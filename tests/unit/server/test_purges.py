"""A purge or a deletion of very much: some in each turn, others go on in between, and nobody sees the middle of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from durable_bench import DurableBench
from pamqp import commands
from test_settlements import bodies, calls_of, declared, lose, queue_of, rushed, texts
from wire_bench import Bench, Client

from penstock import limits
from penstock.backing.variable.paging import PagingOptions
from penstock.backing.variable.variable import VariableBackingQueue
from penstock.backing.zones.zones import SCATTERED_READ
from penstock.store.node.options import StoreOptions

AT_ONCE = PagingOptions().at_once
# Every second message is unacked: so many runs are ready, of one message each.
READY = AT_ONCE + 200
# With its properties it belongs into the shared store.
LARGE = b"x" * 4_000
PAD = {"pad": "x" * 200}


@pytest.fixture
def bench(tmp_path: Path) -> DurableBench:
    bench = DurableBench(tmp_path)
    bench.syncer.is_open = True
    rushed(bench)
    return bench


def riddled(bench: Bench, ready: int = READY, **arguments: Any) -> Client:
    """A client that has every second message of a queue; the others have come back."""
    client = bench.client()
    declared(client, durable=True, **arguments)
    client.publish("", "q", *texts(2 * ready), delivery_mode=2)
    client.send(commands.Basic.Consume(0, "q", "t"))
    assert len(bodies(client.read())) == 2 * ready
    client.call(commands.Basic.Qos(0, 1, True))
    client.send(*[commands.Basic.Nack(tag, False, True) for tag in range(1, 2 * ready + 1, 2)])
    client.read()
    assert (len(queue_of(bench)), queue_of(bench).backing.depth()) == (ready, 2 * ready)
    return client


def round_trip(bench: Bench, client: Client) -> bool:
    """Whether a question about another queue is answered before the purge is over."""
    client.send(commands.Queue.Declare(0, "other", passive=False))
    while not client.transport.written:
        assert queue_of(bench).settling
        bench.loop.turn()
    client.transport.written.clear()
    return bool(queue_of(bench).settling)


def test_others_are_answered_while_a_queue_is_purged(bench: DurableBench) -> None:
    client = riddled(bench)
    other = bench.client()
    queue = queue_of(bench)
    client.send(commands.Queue.Purge(0, "q"), commands.Queue.Declare(0, "q", passive=True))
    left = [len(queue)]
    trips = 0
    while queue.settling:
        trips += round_trip(bench, other)
        left.append(len(queue))
    assert trips > 2
    assert max(before - after for before, after in pairwise(left)) <= 10 * limits.PURGE_AT_ONCE
    answers = client.read()
    assert [type(answer) for answer in answers] == [commands.Queue.PurgeOk, commands.Queue.DeclareOk]
    assert [answer.message_count for answer in answers] == [READY, 0]
    assert queue.backing.depth() == READY


def test_a_turn_purges_no_more_than_it_has_time_for(bench: DurableBench) -> None:
    client = riddled(bench)
    queue = queue_of(bench)
    left = [len(queue)]
    client.send(commands.Queue.Purge(0, "q"))
    left.append(len(queue))
    while queue.settling:
        bench.loop.turn()
        left.append(len(queue))
    assert max(before - after for before, after in pairwise(left)) <= limits.PURGE_AT_ONCE
    assert left[-1] == 0


def test_a_turn_of_a_purge_does_little_also_where_it_reads_the_positions_of_scattered_messages(
    bench: DurableBench,
) -> None:
    # What is in the first file of the index keeps its positions in memory.
    ready = StoreOptions().index_slots // 2 + 2_000
    client = riddled(bench, ready)
    queue = queue_of(bench)
    backing = queue.backing
    assert isinstance(backing, VariableBackingQueue)
    bench.server.broker.node.journal.commit(urgent=True)  # type: ignore[union-attr]
    backing.zones.push_alphas_to_betas(ready, ready)
    backing.zones.push_betas_to_deltas(ready, ready)
    assert backing.zones.delta_count > 1_000
    calls = [calls_of(lambda: client.send(commands.Queue.Purge(0, "q")))]
    while queue.settling:
        calls.append(calls_of(bench.loop.turn))
    assert client.read()[0].message_count == ready
    # About twenty for each message that is purged, and as many for each position that is read.
    assert max(calls) < 40 * (limits.PURGE_AT_ONCE + SCATTERED_READ)


def test_what_is_published_meanwhile_stays_and_what_comes_back_meanwhile_goes(bench: DurableBench) -> None:
    client = riddled(bench)
    other, third = bench.client(), bench.client()
    other.send(commands.Queue.Purge(0, "q"))
    queue = queue_of(bench)
    third.publish("", "q", b"new", b"newer", delivery_mode=2)
    client.send(commands.Basic.Nack(2, False, True))
    third.send(commands.Basic.Consume(0, "q", "c"))
    bench.loop.turn()
    assert queue.settling
    assert not bodies(client.read())
    assert other.read()[0].message_count == READY + 1
    assert bodies(third.read()) == [b"new", b"newer"]
    assert queue.backing.depth() == READY - 1 + 2


@pytest.mark.parametrize(
    ("question", "kind", "count"),
    [
        pytest.param(commands.Queue.Declare(0, "q", passive=True), commands.Queue.DeclareOk, 0, id="declare"),
        pytest.param(commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk, 0, id="purge"),
        pytest.param(commands.Queue.Delete(0, "q", if_empty=True), commands.Queue.DeleteOk, 0, id="delete"),
        pytest.param(commands.Basic.Get(0, "q", True), commands.Basic.GetEmpty, None, id="get"),
    ],
)
def test_who_asks_meanwhile_is_answered_behind_the_purge(
    bench: DurableBench, question: Any, kind: Any, count: int | None
) -> None:
    client = riddled(bench)
    other = bench.client()
    client.send(commands.Queue.Purge(0, "q"))
    other.send(question)
    bench.loop.turn()
    assert queue_of(bench).settling
    assert not other.transport.written
    answer = other.read()[0]
    assert isinstance(answer, kind)
    assert count is None or answer.message_count == count
    assert client.read()[0].message_count == READY


def test_a_purge_of_a_lost_client_goes_on(bench: DurableBench) -> None:
    riddled(bench)
    other = bench.client()
    other.send(commands.Queue.Purge(0, "q"))
    lose(other)
    bench.loop.run()
    assert not queue_of(bench).settling
    assert (len(queue_of(bench)), queue_of(bench).backing.depth()) == (0, READY)


@pytest.mark.parametrize("how", [{"exclusive": True}, {"auto_delete": True}], ids=["exclusive", "auto-delete"])
def test_a_queue_that_goes_with_its_client_takes_the_rest_of_the_purge_along(
    bench: DurableBench, how: dict[str, Any]
) -> None:
    client = riddled(bench, **how)
    queue = queue_of(bench)
    client.send(commands.Queue.Purge(0, "q"))
    bench.loop.turn()
    assert queue.settling
    lose(client)
    assert "q" not in bench.vhost.queues
    bench.loop.run()
    assert queue.deleted
    assert not queue.settling
    assert bench.server.internal_errors == 0


def test_the_purger_of_a_queue_that_is_deleted_meanwhile_gets_its_answer_once(bench: DurableBench) -> None:
    riddled(bench)
    other = bench.client()
    other.send(commands.Queue.Purge(0, "q"))
    bench.vhost.delete_queue(queue_of(bench), False, False)
    assert [answer.message_count for answer in other.read()] == [READY]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "crash"])
def test_a_broker_that_ends_in_the_middle_of_a_purge(bench: DurableBench, tmp_path: Path, is_clean: bool) -> None:
    client = riddled(bench)
    client.send(commands.Queue.Purge(0, "q"))
    bench.loop.turn()
    queue = queue_of(bench)
    left = len(queue)
    assert queue.settling
    assert 0 < left < READY
    if is_clean:
        bench.server.settlements.finish()
        bench.stop()
    else:
        bench.server.abandon()
    again = DurableBench(tmp_path)
    count = len(queue_of(again))
    if is_clean:
        # All of it is gone; what was unacked is ready again.
        assert count == READY
    else:
        # Nobody was told that it is gone: what was removed last may be there again.
        assert READY + left <= count <= 2 * READY
    again.stop()


def test_the_purger_of_a_queue_that_crashes_meanwhile_is_told_so(bench: DurableBench) -> None:
    riddled(bench)
    other = bench.client()
    other.send(commands.Queue.Purge(0, "q"))
    queue = queue_of(bench)
    left = len(queue)
    queue.crash()
    answer = other.read()[0]
    assert isinstance(answer, commands.Channel.Close)
    assert answer.reply_code == 404
    assert not queue.settling
    assert 0 < left < READY


def test_what_a_selector_has_shelved_is_purged_in_slices() -> None:
    bench = rushed(Bench())
    client, other = bench.client(), bench.client()
    declared(client)
    client.call(commands.Basic.Qos(0, 1, False))
    wish = {"x-selector": "no = 'yes'"}
    client.send(commands.Basic.Consume(0, "q", "t", arguments=wish))
    client.publish("", "q", *texts(2 * READY))
    client.read()
    queue = queue_of(bench)
    assert queue.selection is not None
    shelved = queue.selection.ready_count()
    assert shelved > limits.SETTLE_AT_ONCE
    client.send(commands.Queue.Purge(0, "q"))
    assert queue.settling
    other.publish("", "q", b"new")
    left = [len(queue)]
    while queue.settling:
        bench.loop.turn()
        left.append(len(queue))
    assert len(left) > 2
    assert client.read()[0].message_count == 2 * READY
    assert other.get() == (b"new", False)


# --- deleting ---------------------------------------------------------------------------------------------


def store_of(bench: Bench) -> Any:
    node = bench.server.broker.node
    assert node is not None
    (vhost_id,) = node.files.list_dir("vhosts")
    return node.message_store(vhost_id, True)


def with_large(bench: Bench, count: int) -> Client:
    client = bench.client()
    declared(client, durable=True)
    declared(client, "twin", durable=True)
    client.call(commands.Queue.Bind(0, "twin", "amq.fanout"))
    client.publish("", "q", *[LARGE] * count, delivery_mode=2, headers=PAD)
    client.call(commands.Queue.Bind(0, "q", "amq.fanout"))
    client.publish("amq.fanout", "", LARGE, delivery_mode=2, headers=PAD)
    client.send(commands.Basic.Qos(0, 10, False), commands.Basic.Consume(0, "q", "t"))
    client.read()
    assert store_of(bench).status()["bodies"] == count + 1
    return client


@pytest.mark.parametrize(
    "method", [commands.Queue.Delete(0, "q"), commands.Queue.Purge(0, "q")], ids=["delete", "purge"]
)
def test_large_bodies_are_given_up_in_slices_and_only_those_that_nobody_else_wants(
    bench: DurableBench, method: Any
) -> None:
    count = AT_ONCE + 300
    client = with_large(bench, count)
    client.call(commands.Basic.Cancel("t"))
    client.call(commands.Basic.Recover(True))
    store = store_of(bench)
    client.send(method)
    bodies_left = [count + 1, store.status()["bodies"]]
    if isinstance(method, commands.Queue.Delete):
        # The name is free at once.
        assert "q" not in bench.vhost.queues
        assert count + 1 - bodies_left[-1] <= AT_ONCE
    bench.loop.run()
    answers = client.read()
    assert answers[0].message_count == count + 1
    until_turns = 1_000
    while store.status()["bodies"] > 1 and until_turns:
        until_turns -= 1
        bench.server.scheduler.turn_soon()
        bench.loop.run()
    assert store.status()["bodies"] == 1
    store.check_invariants()
    assert client.get("twin") == (LARGE, False)
    bench.stop()


def test_a_crash_in_the_middle_of_a_deletion_leaves_neither_the_queue_nor_its_bodies(
    bench: DurableBench, tmp_path: Path
) -> None:
    count = AT_ONCE + 300
    client = with_large(bench, count)
    client.send(commands.Queue.Delete(0, "q"))
    node = bench.server.broker.node
    assert node is not None
    assert node.has_leftovers()
    # The row that says so is on disk, and not everything is given back.
    node.journal.commit(urgent=True)
    assert store_of(bench).status()["bodies"] > 1
    bench.server.abandon()
    again = DurableBench(tmp_path)
    assert "q" not in again.vhost.queues
    assert store_of(again).status()["bodies"] == 1
    assert again.client().get("twin") == (LARGE, True)
    again.stop()
