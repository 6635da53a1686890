"""Many deliveries that are settled together: some in each turn, and nobody sees the middle of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from durable_bench import DurableBench
from pamqp import commands
from wire_bench import Bench, Client

from penstock import limits
from penstock.backing.variable.variable import VariableBackingQueue
from penstock.clock import Clock
from penstock.queues.queue import Queue
from penstock.server.settling.settlements import Settlements

# Deliveries come in runs of 256.
COUNT = 5 * limits.PULL_MESSAGES_MAX
assert COUNT > limits.SETTLE_AT_ONCE + limits.PULL_MESSAGES_MAX


class RushingClock(Clock):
    """A second passes between two looks: every slice is late, and so as small as it can be."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.step_s = 1.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        self._now_s += self.step_s
        return self._now_s


def texts(count: int = COUNT) -> list[bytes]:
    return [b"%05d" % number for number in range(count)]


def rushed(bench: Bench) -> Bench:
    bench.server.settlements = Settlements(bench.loop, RushingClock())
    return bench


def declared(client: Client, name: str = "q", **arguments: Any) -> None:
    assert isinstance(client.call(commands.Queue.Declare(0, name, **arguments))[0], commands.Queue.DeclareOk)


def with_unacked(bench: Bench, **arguments: Any) -> Client:
    """A client that has got all messages of the queue and has settled none."""
    client = bench.client()
    declared(client, **arguments)
    client.publish("", "q", *texts())
    client.send(commands.Basic.Consume(0, "q", "t"))
    assert len(bodies(client.read())) == COUNT
    return client


def bodies(frames: list[Any]) -> list[bytes]:
    return [frame.value for frame in frames if hasattr(frame, "value")]


def deliveries(frames: list[Any]) -> list[commands.Basic.Deliver]:
    return [frame for frame in frames if isinstance(frame, commands.Basic.Deliver)]


def lose(client: Client) -> None:
    client.connection.connection_lost(None)


def queue_of(bench: Bench, name: str = "q") -> Queue:
    return bench.vhost.queues[name]


NACK_ALL = commands.Basic.Nack(0, True, True)
REJECT_ALL = commands.Basic.Nack(0, True, False)
ACK_ALL = commands.Basic.Ack(0, True)

# What settles all deliveries, and how many are ready in the end.
ACTS = [
    pytest.param(lambda client: client.send(NACK_ALL), COUNT, id="nack"),
    pytest.param(lambda client: client.send(commands.Basic.Recover(True)), COUNT, id="recover"),
    pytest.param(lambda client: client.send(commands.Channel.Close(200, "", 0, 0)), COUNT, id="channel-close"),
    pytest.param(lambda client: client.send(commands.Basic.Ack(99_999, False)), COUNT, id="channel-error"),
    pytest.param(lose, COUNT, id="lost"),
    pytest.param(lambda client: client.send(REJECT_ALL), 0, id="reject"),
    pytest.param(lambda client: client.send(ACK_ALL), 0, id="ack"),
]


@pytest.mark.parametrize(("act", "ready"), ACTS)
def test_one_turn_settles_no_more_than_it_has_time_for(act: Any, ready: int) -> None:
    bench = rushed(Bench())
    client = with_unacked(bench)
    client.send(commands.Basic.Cancel("t"))
    queue = queue_of(bench)
    act(client)
    left = [queue.backing.depth() - len(queue.backing)]
    while queue.settling:
        bench.loop.turn()
        left.append(queue.backing.depth() - len(queue.backing))
    assert left[0] >= COUNT - limits.PULL_MESSAGES_MAX
    assert max(before - after for before, after in pairwise(left)) <= limits.PULL_MESSAGES_MAX
    assert left[-1] == 0
    assert len(queue) == ready


def test_a_clock_with_time_left_does_not_make_a_slice_larger_than_its_limit() -> None:
    bench = Bench()
    count = limits.SETTLE_MESSAGES_MAX + 3 * limits.PULL_MESSAGES_MAX
    client = bench.client()
    declared(client)
    client.publish("", "q", *texts(count))
    client.send(commands.Basic.Consume(0, "q", "t"))
    assert len(bodies(client.read())) == count
    lose(client)
    assert limits.PULL_MESSAGES_MAX <= len(queue_of(bench).backing) <= limits.SETTLE_MESSAGES_MAX
    bench.loop.run()
    assert len(queue_of(bench)) == count


def scattered(bench: Bench, count: int, *, in_tx: bool) -> Client:
    """A client with so many deliveries, none of which follows the one before it."""
    client = bench.client()
    declared(client)
    client.publish("", "q", *texts(2 * count))
    client.send(commands.Basic.Consume(0, "q", "t"))
    client.read()
    client.call(commands.Basic.Cancel("t"))
    client.send(*[commands.Basic.Ack(tag) for tag in range(1, 2 * count, 2)])
    client.read()
    if in_tx:
        client.call(commands.Tx.Select())
    return client


def calls_of(act: Callable[[], Any]) -> int:
    """Count the calls of functions, of Python's own too."""
    count = 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


# What a client does with all its deliveries: what comes before, the act, and whether the messages are there afterwards.
SCATTERED_ACTS = [
    pytest.param([], commands.Basic.Recover(True), False, True, id="recover"),
    pytest.param([], NACK_ALL, False, True, id="nack"),
    pytest.param([], ACK_ALL, False, False, id="ack"),
    pytest.param([], ACK_ALL, True, True, id="ack-in-tx"),
    pytest.param([ACK_ALL], commands.Tx.Commit(), True, False, id="commit"),
    pytest.param([ACK_ALL], commands.Tx.Rollback(), True, True, id="rollback"),
    pytest.param([ACK_ALL], commands.Channel.Close(200, "", 0, 0), True, True, id="close-in-tx"),
]


def calls_of_first_turn(
    count: int, before: list[Any], act: Callable[[Client], None], *, in_tx: bool
) -> tuple[int, int]:
    """Return how many calls the act makes at once, and how many messages are in the queue in the end."""
    bench, clock = Bench(), RushingClock()
    bench.server.settlements = Settlements(bench.loop, clock)
    client = scattered(bench, count, in_tx=in_tx)
    client.send(*before)
    client.read()
    calls = calls_of(lambda: act(client))
    clock.step_s = 0.0
    bench.loop.run()
    if act is not lose:
        lose(client)
        bench.loop.run()
    assert bench.server.internal_errors == 0
    assert len(queue_of(bench)) == queue_of(bench).backing.depth()
    return calls, len(queue_of(bench))


@pytest.mark.parametrize(("before", "act", "in_tx", "keeps"), SCATTERED_ACTS)
def test_a_turn_that_settles_scattered_deliveries_does_as_much_for_few_as_for_many(
    before: list[Any], act: Any, in_tx: bool, keeps: bool
) -> None:
    few, _ = calls_of_first_turn(1_000, before, lambda client: client.send(act), in_tx=in_tx)
    many, left = calls_of_first_turn(4_000, before, lambda client: client.send(act), in_tx=in_tx)
    assert many < 1.5 * few
    assert left == (4_000 if keeps else 0)


def test_a_transaction_of_many_single_acks_is_undone_in_slices_when_its_client_goes() -> None:
    few, _ = calls_of_first_turn(1_000, [commands.Basic.Ack(tag) for tag in range(2, 2_001, 2)], lose, in_tx=True)
    acks = [commands.Basic.Ack(tag) for tag in range(2, 8_001, 2)]
    many, left = calls_of_first_turn(4_000, acks, lose, in_tx=True)
    assert many < 1.5 * few
    assert left == 4_000


@pytest.mark.parametrize("act", [lose, lambda client: client.send(NACK_ALL)], ids=["lost", "nack"])
def test_who_consumes_meanwhile_gets_what_came_back_first_and_in_order(act: Any) -> None:
    bench = rushed(Bench())
    client = with_unacked(bench)
    other = bench.client()
    client.call(commands.Basic.Cancel("t"))
    act(client)
    assert queue_of(bench).returning
    other.publish("", "q", b"new")
    other.send(commands.Basic.Consume(0, "q", "o"))
    bench.loop.turn()
    assert queue_of(bench).returning
    frames = other.read()
    assert bodies(frames) == [*texts(), b"new"]
    assert [delivery.redelivered for delivery in deliveries(frames)] == [True] * COUNT + [False]


# What another client asks meanwhile, and what it is answered.
QUESTIONS = [
    pytest.param(commands.Queue.Declare(0, "q", passive=True), commands.Queue.DeclareOk, COUNT, id="declare"),
    pytest.param(commands.Queue.Purge(0, "q"), commands.Queue.PurgeOk, COUNT, id="purge"),
    pytest.param(commands.Queue.Delete(0, "q"), commands.Queue.DeleteOk, COUNT, id="delete"),
    pytest.param(commands.Basic.Get(0, "q", True), commands.Basic.GetOk, COUNT - 1, id="get"),
]


@pytest.mark.parametrize(("question", "kind", "count"), QUESTIONS)
def test_who_asks_meanwhile_is_answered_when_all_has_come_back(question: Any, kind: Any, count: int) -> None:
    bench = rushed(Bench())
    client = with_unacked(bench)
    other = bench.client()
    lose(client)
    other.send(question, commands.Queue.Declare(0, "q", passive=False))
    bench.loop.turn()
    assert queue_of(bench).returning
    assert not other.transport.written
    frames = other.read()
    assert isinstance(frames[0], kind)
    assert frames[0].message_count == count
    if kind is commands.Basic.GetOk:
        assert bodies(frames) == [b"00000"]
        assert frames[0].redelivered
    # What it sent behind the question comes behind the answer.
    assert isinstance(frames[-1], commands.Queue.DeclareOk)


def test_what_a_client_sends_behind_a_settlement_happens_after_it() -> None:
    bench = rushed(Bench())
    client = with_unacked(bench)
    client.call(commands.Basic.Cancel("t"))
    client.send(NACK_ALL, commands.Basic.Get(0, "q", True))
    assert bodies(client.read()) == [b"00000"]


def test_close_ok_comes_when_all_is_ready_again() -> None:
    bench = rushed(Bench())
    client = with_unacked(bench)
    client.send(commands.Channel.Close(200, "", 0, 0), commands.Channel.Open())
    bench.loop.turn()
    assert not client.transport.written
    while not client.transport.written:
        assert queue_of(bench).returning or len(queue_of(bench)) == COUNT
        bench.loop.turn()
    assert len(queue_of(bench)) == COUNT
    assert [type(frame) for frame in client.read()] == [commands.Channel.CloseOk, commands.Channel.OpenOk]


def test_a_settlement_of_a_lost_client_goes_on_as_it_was_asked_for() -> None:
    bench = rushed(Bench())
    client = with_unacked(bench)
    client.send(ACK_ALL)
    bench.loop.turn()
    lose(client)
    bench.loop.run()
    assert (len(queue_of(bench)), queue_of(bench).backing.depth()) == (0, 0)


def test_credit_comes_back_with_the_slices() -> None:
    bench = rushed(Bench())
    client = bench.client()
    declared(client)
    client.publish("", "q", *texts(2 * COUNT))
    client.call(commands.Basic.Qos(0, COUNT, False))
    client.send(commands.Basic.Consume(0, "q", "t"))
    assert len(bodies(client.read())) == COUNT
    client.send(commands.Basic.Ack(COUNT, True))
    assert bodies(client.read()) == texts(2 * COUNT)[COUNT:]


def dead_lettering(bench: Bench, **arguments: Any) -> Client:
    declared(bench.client(), "dead")
    wishes = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    return with_unacked(bench, arguments=wishes, **arguments)


def test_a_queue_is_deleted_behind_the_dead_letters_that_were_rejected_before() -> None:
    bench = rushed(Bench())
    client = dead_lettering(bench)
    other = bench.client()
    client.send(REJECT_ALL)
    assert other.call(commands.Queue.Delete(0, "q"))[0].message_count == 0
    assert len(queue_of(bench, "dead")) == COUNT


def test_an_exclusive_queue_that_goes_with_its_connection_leaves_its_dead_letters() -> None:
    bench = rushed(Bench())
    client = dead_lettering(bench, exclusive=True)
    client.send(REJECT_ALL)
    lose(client)
    assert "q" not in bench.vhost.queues
    bench.loop.run()
    assert len(queue_of(bench, "dead")) == COUNT


def test_a_queue_that_is_deleted_in_the_middle_of_a_return_is_gone() -> None:
    bench = rushed(Bench())
    client = with_unacked(bench)
    queue = queue_of(bench)
    lose(client)
    bench.vhost.delete_queue(queue, False, False)
    bench.loop.run()
    assert queue.deleted
    assert not queue.settling
    assert bench.server.internal_errors == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_broker_that_ends_in_the_middle_has_all_of_it_at_the_next_start(tmp_path: Path, is_clean: bool) -> None:
    bench = DurableBench(tmp_path)
    rushed(bench)
    client = bench.client()
    bench.declare(client)
    bench.syncer.is_open = True
    client.call(commands.Confirm.Select())
    client.publish("", "q", *texts(), delivery_mode=2)
    assert client.read()[-1].delivery_tag == COUNT
    client.send(commands.Basic.Consume(0, "q", "t"))
    assert len(bodies(client.read())) == COUNT
    lose(client)
    bench.loop.turn()
    assert queue_of(bench).returning
    if is_clean:
        bench.server.settlements.finish()
        bench.stop()
    else:
        bench.server.abandon()
    again = DurableBench(tmp_path)
    again.syncer.is_open = True
    other = again.client()
    other.send(commands.Basic.Consume(0, "q", "o"))
    frames = other.read()
    assert bodies(frames) == texts()
    assert all(delivery.redelivered for delivery in deliveries(frames))
    again.stop()


def test_dead_letters_that_have_left_memory_are_read_and_moved_in_runs(tmp_path: Path) -> None:
    bench = DurableBench(tmp_path)
    bench.syncer.is_open = True
    client = bench.client()
    declared(client, "dead", durable=True)
    declared(client, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.publish("", "q", *texts(), delivery_mode=2)
    client.send(commands.Basic.Consume(0, "q", "t"))
    assert len(bodies(client.read())) == COUNT
    backing = queue_of(bench).backing
    assert isinstance(backing, VariableBackingQueue)
    bench.server.broker.node.journal.commit(urgent=True)  # type: ignore[union-attr]
    backing.pending.evict(COUNT)
    assert backing.pending.ram_count() == 0
    client.send(REJECT_ALL)
    bench.loop.run()
    envelopes = set()
    dead = queue_of(bench, "dead").backing
    found = []
    while (run := dead.fetch(COUNT, 1 << 20, True)) is not None:
        found += [entry[1] for entry in run.entries]
        envelopes |= {id(entry[0]) for entry in run.entries}
    assert found == [text + b"\xce" for text in texts()]
    assert len(envelopes) < 2 * COUNT // limits.REJECT_AT_ONCE
    bench.stop()


# --- transactions -----------------------------------------------------------------------------------------


def mixed(count: int) -> list[bytes]:
    """Bodies of two sizes in turn, so that no run is longer than a message."""
    return [b"%05d" % number + b"!" * (number % 2) for number in range(count)]


def transactional(bench: Bench, *, durable: bool = False) -> Client:
    client = bench.client()
    bench.vhost.declare_queue("q", durable, False, None, {})
    bench.vhost.declare_queue("p", durable, False, None, {})
    bench.loop.run()
    assert isinstance(client.call(commands.Tx.Select())[0], commands.Tx.SelectOk)
    for start in range(0, 40, 10):
        client.publish("", "q", *mixed(40)[start : start + 10], delivery_mode=2)
        client.publish("", "p", *mixed(40)[start : start + 10], delivery_mode=2)
    return client


def test_a_commit_of_many_takes_several_turns_and_nobody_sees_half_of_it() -> None:
    bench = rushed(Bench())
    client = transactional(bench)
    other = bench.client()
    other.send(commands.Basic.Consume(0, "q", "t"))
    other.read()
    asker = bench.client()
    client.send(commands.Tx.Commit(), commands.Queue.Declare(0, "p", passive=True))
    assert queue_of(bench).settling
    asker.send(commands.Queue.Declare(0, "p", passive=True))
    seen = []
    while queue_of(bench).settling:
        seen.append(len(queue_of(bench).backing))
        assert not asker.transport.written
        bench.loop.turn()
    assert len(set(seen)) > 2
    assert bodies(other.read()) == mixed(40)
    assert asker.read()[0].message_count == 40
    answers = client.read()
    assert isinstance(answers[0], commands.Tx.CommitOk)
    assert answers[1].message_count == 40


def test_a_commit_whose_client_goes_away_is_done_all_the_same() -> None:
    bench = rushed(Bench())
    client = transactional(bench)
    client.send(commands.Tx.Commit())
    lose(client)
    bench.loop.run()
    assert (len(queue_of(bench)), len(queue_of(bench, "p"))) == (40, 40)
    assert bench.server.internal_errors == 0


def test_a_queue_that_is_deleted_before_the_commit_drops_out_of_its_mixed_runs() -> None:
    bench = rushed(Bench())
    client = transactional(bench)
    bench.client().call(commands.Queue.Delete(0, "p"))
    assert isinstance(client.call(commands.Tx.Commit())[0], commands.Tx.CommitOk)
    assert len(queue_of(bench)) == 40


@pytest.mark.parametrize("turns", [0, 1, 3, None])
def test_a_crash_leaves_all_of_a_commit_or_nothing(tmp_path: Path, turns: int | None) -> None:
    bench = DurableBench(tmp_path)
    rushed(bench)
    bench.syncer.is_open = True
    client = transactional(bench, durable=True)
    bench.server.broker.node.options.journal.batch_bytes_max = 1  # type: ignore[union-attr]
    client.send(commands.Tx.Commit())
    if turns is None:
        assert isinstance(client.read()[0], commands.Tx.CommitOk)
    for _ in range(turns or 0):
        # Somebody else waits for the disk meanwhile.
        bench.server.broker.node.journal.when_durable(lambda durable: None)  # type: ignore[union-attr]
        bench.loop.turn()
    assert bool(queue_of(bench).settling) == (turns is not None)
    bench.server.abandon()
    again = DurableBench(tmp_path)
    count = 0 if turns is not None else 40
    assert (len(queue_of(again)), len(queue_of(again, "p"))) == (count, count)
    again.stop()


# How all deliveries are settled in a transaction: how many are ready then, and how many are dead letters.
IN_TX = [
    pytest.param(ACK_ALL, 0, 0, id="ack"),
    pytest.param(NACK_ALL, COUNT, 0, id="nack"),
    pytest.param(REJECT_ALL, 0, COUNT, id="reject"),
]


def settled_in_tx(bench: Bench, settles: Any, *, durable: bool = False) -> Client:
    """A client whose transaction has settled all deliveries, and waits for its end."""
    bench.vhost.declare_queue("dead", durable, False, None, {})
    wishes: dict[str, Any] = {"x-dead-letter-exchange": ("S", b""), "x-dead-letter-routing-key": ("S", b"dead")}
    bench.vhost.declare_queue("q", durable, False, None, wishes)
    bench.client().publish("", "q", *texts(), delivery_mode=2)
    bench.loop.run()
    client = bench.client()
    assert isinstance(client.call(commands.Tx.Select())[0], commands.Tx.SelectOk)
    client.send(commands.Basic.Consume(0, "q", "t"))
    assert len(bodies(client.read())) == COUNT
    client.call(commands.Basic.Cancel("t"))
    client.send(settles)
    assert queue_of(bench).backing.depth() == COUNT
    return client


def pending(bench: Bench) -> int:
    backing = queue_of(bench).backing
    return backing.depth() - len(backing)


@pytest.mark.parametrize(("settles", "ready", "dead"), IN_TX)
def test_what_a_transaction_has_settled_is_done_in_slices(settles: Any, ready: int, dead: int) -> None:
    bench = rushed(Bench())
    client = settled_in_tx(bench, settles)
    asker = bench.client()
    client.send(commands.Tx.Commit(), commands.Queue.Declare(0, "q", passive=True))
    asker.send(commands.Queue.Declare(0, "q", passive=True))
    left = [COUNT, pending(bench)]
    while queue_of(bench).settling:
        assert not asker.transport.written
        bench.loop.turn()
        left.append(pending(bench))
    assert max(before - after for before, after in pairwise(left)) <= limits.PULL_MESSAGES_MAX
    assert (left[-1], len(queue_of(bench)), len(queue_of(bench, "dead"))) == (0, ready, dead)
    assert asker.read()[0].message_count == ready
    answers = client.read()
    assert isinstance(answers[0], commands.Tx.CommitOk)
    assert answers[1].message_count == ready


@pytest.mark.parametrize(("settles", "ready", "dead"), IN_TX)
@pytest.mark.parametrize("turns", [0, 2, None])
def test_a_crash_leaves_all_of_the_settlements_of_a_commit_or_none(
    tmp_path: Path, settles: Any, ready: int, dead: int, turns: int | None
) -> None:
    bench = DurableBench(tmp_path)
    rushed(bench)
    bench.syncer.is_open = True
    client = settled_in_tx(bench, settles, durable=True)
    bench.server.broker.node.options.journal.batch_bytes_max = 1  # type: ignore[union-attr]
    client.send(commands.Tx.Commit())
    if turns is None:
        assert isinstance(client.read()[0], commands.Tx.CommitOk)
    for _ in range(turns or 0):
        bench.server.broker.node.journal.when_durable(lambda durable: None)  # type: ignore[union-attr]
        bench.loop.turn()
    assert bool(queue_of(bench).settling) == (turns is not None)
    bench.server.abandon()
    again = DurableBench(tmp_path)
    expected = (COUNT, 0) if turns is not None else (ready, dead)
    assert (len(queue_of(again)), len(queue_of(again, "dead"))) == expected
    again.stop()


def settled_singly(bench: Bench) -> Client:
    """A transaction with as many settlements as there are deliveries, and some publishes."""
    client = settled_in_tx(bench, commands.Basic.Ack(1))
    for tag in range(2, COUNT + 1):
        client.send(commands.Basic.Ack(tag) if tag % 2 else commands.Basic.Nack(tag, False, True))
    client.publish("", "q", b"forgotten")
    client.publish("", "dead", b"forgotten")
    return client


def test_a_rollback_takes_several_turns_and_is_answered_behind_the_last() -> None:
    bench = rushed(Bench())
    client = settled_singly(bench)
    client.send(commands.Tx.Rollback(), commands.Basic.Ack(0, True), commands.Tx.Commit())
    unsettled = [len(client.connection.channels[1].unacked)]
    while unsettled[-1] < COUNT:
        assert not client.transport.written
        bench.loop.turn()
        unsettled.append(len(client.connection.channels[1].unacked))
    assert max(after - before for before, after in pairwise(unsettled)) == 1
    # What comes behind it in the same write finds all of it undone.
    assert [type(frame) for frame in client.read()] == [commands.Tx.RollbackOk, commands.Tx.CommitOk]
    assert (queue_of(bench).backing.depth(), queue_of(bench, "dead").backing.depth()) == (0, 0)


@pytest.mark.parametrize("turns", [0, 3])
@pytest.mark.parametrize("rolls_back", [True, False])
def test_all_that_a_transaction_had_settled_goes_back_with_its_client(turns: int, rolls_back: bool) -> None:
    bench = rushed(Bench())
    client = settled_singly(bench)
    if rolls_back:
        client.send(commands.Tx.Rollback())
    for _ in range(turns):
        bench.loop.turn()
    lose(client)
    bench.loop.run()
    other = bench.client()
    other.send(commands.Basic.Consume(0, "q", "o"))
    frames = other.read()
    assert bodies(frames) == texts()
    assert all(delivery.redelivered for delivery in deliveries(frames))
    assert len(queue_of(bench, "dead")) == 0
    assert bench.server.internal_errors == 0


def test_a_call_that_fails_when_all_is_settled_keeps_the_others_from_nothing() -> None:
    bench = rushed(Bench())
    client = with_unacked(bench)
    client.send(commands.Basic.Cancel("t"))
    client.send(NACK_ALL)
    queue = queue_of(bench)
    assert queue.settling
    called: list[str] = []

    def fail() -> None:
        called.append("fails")
        raise ValueError("a bug")

    client.connection.when_settled(fail)
    client.connection.when_settled(lambda: called.append("settled"))
    queue.settling[0].when_over(fail)
    queue.settling[0].when_over(lambda: called.append("over"))
    with pytest.raises(ValueError, match="a bug"):
        bench.loop.run()
    assert called == ["fails", "settled", "fails", "over"]
    # Its connection is parsed again.
    assert isinstance(
        client.call(commands.Queue.Declare(0, "other"))[0], (commands.Basic.CancelOk, commands.Queue.DeclareOk)
    )
