"""Answers that wait for the disk: what they wait for, what goes on meanwhile, and what happens when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from durable_bench import DurableBench
from pamqp import base, commands, frame
from wire_bench import Client

from penstock.server.connection.heartbeat import Heartbeat
from penstock.store.node.node_store import NodeStore

PERSISTENT: dict[str, Any] = {"delivery_mode": 2}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[DurableBench]:
    bench = DurableBench(tmp_path)
    yield bench
    bench.stop()
    assert bench.server.internal_errors == 0


@pytest.fixture
def client(bench: DurableBench) -> Client:
    return bench.client()


def names(frames: list[Any]) -> list[str]:
    return [each.name for each in frames]


SETUP: list[base.Frame] = [
    commands.Exchange.Declare(0, "x", durable=True),
    commands.Exchange.Declare(0, "y", durable=True),
    commands.Queue.Declare(0, "q", durable=True),
    commands.Queue.Bind(0, "q", "x", "key"),
    commands.Exchange.Bind(0, "y", "x", "key"),
]

LASTING: list[tuple[base.Frame, str]] = [
    (commands.Exchange.Declare(0, "new", durable=True), "Exchange.DeclareOk"),
    (commands.Exchange.Delete(0, "x"), "Exchange.DeleteOk"),
    (commands.Exchange.Bind(0, "x", "y", "key"), "Exchange.BindOk"),
    (commands.Exchange.Unbind(0, "y", "x", "key"), "Exchange.UnbindOk"),
    (commands.Queue.Declare(0, "new", durable=True), "Queue.DeclareOk"),
    (commands.Queue.Declare(0, "", durable=True), "Queue.DeclareOk"),
    (commands.Queue.Delete(0, "q"), "Queue.DeleteOk"),
    (commands.Queue.Bind(0, "q", "x", "other"), "Queue.BindOk"),
    (commands.Queue.Bind(0, "q", "amq.direct", "key"), "Queue.BindOk"),
    (commands.Queue.Unbind(0, "q", "x", "key"), "Queue.UnbindOk"),
]


def set_up(bench: DurableBench, client: Client) -> None:
    for method in SETUP:
        client.send(method)
        bench.sync()
        assert len(client.read()) == 1


@pytest.mark.parametrize(("method", "answer"), LASTING, ids=lambda each: getattr(each, "name", ""))
def test_the_answer_to_a_change_that_lasts_comes_after_its_sync(
    method: base.Frame, answer: str, bench: DurableBench, client: Client
) -> None:
    set_up(bench, client)
    # What comes behind it, in the same piece, waits too.
    client.send(method, commands.Basic.Qos(0, 1))
    assert client.read() == []
    assert client.transport.is_paused
    bench.sync()
    assert names(client.read()) == [answer, "Basic.QosOk"]
    assert not client.transport.is_paused


TRANSIENT: list[base.Frame] = [
    commands.Exchange.Declare(0, "t"),
    commands.Queue.Declare(0, "t"),
    commands.Queue.Declare(0, "e", durable=True, exclusive=True),
    commands.Queue.Declare(0, "q", passive=True),
    commands.Exchange.Declare(0, "x", passive=True),
]


@pytest.mark.parametrize("method", TRANSIENT, ids=lambda each: f"{each.name}-{each.durable}-{each.passive}")
def test_what_does_not_last_is_answered_at_once_while_others_wait(
    method: base.Frame, bench: DurableBench, client: Client
) -> None:
    set_up(bench, client)
    other = bench.client()
    client.send(commands.Queue.Declare(0, "waits", durable=True))
    assert client.read() == []
    assert len(other.call(method)) == 1
    assert client.read() == []
    bench.sync()
    assert names(client.read()) == ["Queue.DeclareOk"]


def test_who_declares_again_what_is_not_on_disk_yet_waits_too(bench: DurableBench, client: Client) -> None:
    other = bench.client()
    client.send(commands.Queue.Declare(0, "q", durable=True))
    assert client.read() == []
    other.send(commands.Queue.Declare(0, "q", durable=True))
    assert other.read() == []
    bench.sync()
    assert names(client.read()) == names(other.read()) == ["Queue.DeclareOk"]
    # And not when it is.
    assert names(other.call(commands.Queue.Declare(0, "q", durable=True))) == ["Queue.DeclareOk"]


def test_without_waiting_nothing_waits(bench: DurableBench, client: Client) -> None:
    client.send(commands.Queue.Declare(0, "q", durable=True, nowait=True), commands.Basic.Qos(0, 1))
    assert names(client.read()) == ["Basic.QosOk"]
    assert bench.syncer.held


def test_many_changes_of_many_clients_share_a_sync(bench: DurableBench) -> None:
    clients = [bench.client() for _ in range(20)]
    before = bench.syncer.request_count
    for number, client in enumerate(clients):
        client.send(commands.Queue.Declare(0, f"q{number}", durable=True))
    bench.sync()
    assert [names(client.read()) for client in clients] == [["Queue.DeclareOk"]] * 20
    assert bench.syncer.request_count == before + 1


def test_changes_that_one_client_sends_without_waiting_share_a_sync_and_are_answered_in_order(
    bench: DurableBench, client: Client
) -> None:
    set_up(bench, client)
    before = bench.syncer.request_count
    sent: list[base.Frame] = [
        commands.Queue.Declare(0, "one", durable=True),
        # What does not last keeps its place.
        commands.Queue.Declare(0, "transient"),
        commands.Exchange.Declare(0, "y", durable=True),
        commands.Queue.Bind(0, "one", "y", "key"),
        commands.Queue.Declare(0, "one", passive=True),
        commands.Exchange.Bind(0, "x", "y", "key"),
        commands.Exchange.Unbind(0, "x", "y", "key"),
        commands.Queue.Unbind(0, "one", "y", "key"),
        commands.Queue.Delete(0, "one"),
        commands.Exchange.Delete(0, "y"),
    ]
    client.send(*sent, commands.Basic.Qos(0, 1), commands.Queue.Declare(0, "behind", durable=True))
    assert client.read() == []
    bench.sync()
    assert names(client.read()) == [f"{each.name}Ok" for each in sent] + ["Basic.QosOk"]
    assert bench.syncer.request_count == before + 2
    bench.sync()
    assert names(client.read()) == ["Queue.DeclareOk"]


@pytest.mark.parametrize(
    ("bad", "close"),
    [
        (commands.Queue.Bind(0, "q", "no such exchange", "key"), "Channel.Close"),
        (commands.Exchange.Declare(0, "z", "no such type"), "Connection.Close"),
    ],
    ids=["of the channel", "of the connection"],
)
def test_an_error_waits_behind_the_answers_before_it(
    bad: base.Frame, close: str, bench: DurableBench, client: Client
) -> None:
    set_up(bench, client)
    client.send(
        commands.Queue.Declare(0, "one", durable=True),
        commands.Queue.Declare(0, "two", durable=True),
        bad,
        commands.Queue.Declare(0, "three", durable=True),
    )
    assert client.read() == []
    bench.sync()
    assert names(client.read()) == ["Queue.DeclareOk", "Queue.DeclareOk", close]
    assert "three" not in bench.vhost.queues


def test_a_malformed_frame_waits_behind_the_answers_before_it(bench: DurableBench, client: Client) -> None:
    good = frame.marshal(commands.Queue.Declare(0, "one", durable=True), 1)
    bad = frame.marshal(commands.Queue.Declare(0, "two", durable=True), 1)
    client.transport_data(good + bad[:-1] + b"!" + good)
    assert client.read() == []
    bench.sync()
    answers = client.read()
    assert names(answers) == ["Queue.DeclareOk", "Connection.Close"]
    assert answers[1].reply_code == 501
    assert "two" not in bench.vhost.queues


def test_a_client_that_waits_for_the_disk_is_not_taken_for_dead(bench: DurableBench, client: Client) -> None:
    client.connection.heartbeat.start(1.0)
    client.send(commands.Queue.Declare(0, "q", durable=True))
    bench.loop.pass_s(30.0)
    beats = client.read()
    assert len(beats) > 20
    assert set(names(beats)) == {"Heartbeat"}
    bench.sync()
    assert "Queue.DeclareOk" in names(client.read())
    assert isinstance(client.connection.heartbeat, Heartbeat)


def test_deliveries_go_on_while_an_answer_waits(bench: DurableBench, client: Client) -> None:
    other = bench.client()
    other.call(commands.Queue.Declare(0, "t"))
    client.call(commands.Basic.Consume(0, "t", no_ack=True))
    client.send(commands.Queue.Declare(0, "q", durable=True))
    other.publish("", "t", b"x")
    assert "Basic.Deliver" in names(client.read())
    bench.sync()
    assert names(client.read()) == ["Queue.DeclareOk"]


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(bench: DurableBench, client: Client) -> None:
    client.send(commands.Queue.Declare(0, "q", durable=True))
    client.transport.close()
    bench.loop.run()
    bench.sync()
    bench.loop.run()
    assert "q" in bench.vhost.queues


def test_a_connection_that_the_broker_closes_meanwhile_gets_no_answer_behind_its_close(
    bench: DurableBench, client: Client
) -> None:
    close = frame.marshal(commands.Connection.Close(200, "bye", 0, 0), 0)
    client.transport_data(frame.marshal(commands.Queue.Declare(0, "q", durable=True), 1) + close)
    client.connection.failed()
    bench.server.internal_errors = 0
    assert names(client.read()) == ["Connection.Close", "Connection.CloseOk"]
    bench.sync()
    assert client.read() == []


def test_when_the_disk_fails_the_connection_is_closed_and_the_server_says_so(
    bench: DurableBench, client: Client
) -> None:
    told: list[bool] = []
    bench.server.disk_failed = lambda: told.append(True)
    other = bench.client()
    client.send(commands.Queue.Declare(0, "q", durable=True), commands.Basic.Qos(0, 1))
    bench.fail()
    [close] = client.read()
    assert (close.name, close.reply_code) == ("Connection.Close", 541)
    assert close.reply_text == "INTERNAL_ERROR - the broker could not write to its disk"
    assert told == [True]
    assert bench.server.disk_error is not None
    # The next one hears it at once.
    [close] = other.call(commands.Queue.Declare(0, "r", durable=True))
    assert close.reply_code == 541


def test_a_full_output_and_a_busy_disk_stop_the_reader_until_both_are_over(bench: DurableBench, client: Client) -> None:
    client.send(commands.Queue.Declare(0, "q", durable=True), commands.Basic.Qos(0, 1))
    connection = client.connection
    connection.pause_writing()
    client.transport.unread_bytes = 1 << 30
    connection.send_raw(b"\x08\x00\x00\x00\x00\x00\x00\xce")
    bench.loop.run()
    connection.resume_writing()
    client.transport.unread_bytes = 0
    assert names(client.read()) == ["Heartbeat"]
    assert client.transport.is_paused
    bench.sync()
    assert names(client.read()) == ["Queue.DeclareOk", "Basic.QosOk"]


# --- confirms ---------------------------------------------------------------------------------------


def confirming(bench: DurableBench) -> Client:
    client = bench.client()
    bench.declare(client)
    client.call(commands.Confirm.Select())
    return client


def test_a_persistent_message_is_confirmed_after_its_sync(bench: DurableBench) -> None:
    client = confirming(bench)
    client.publish("", "q", b"a", b"b", b"c", **PERSISTENT)
    assert client.read() == []
    bench.sync()
    [ack] = client.read()
    assert (ack.name, ack.delivery_tag, ack.multiple) == ("Basic.Ack", 3, True)


def test_a_transient_message_is_confirmed_at_once_and_does_not_overtake_in_the_count(bench: DurableBench) -> None:
    client = confirming(bench)
    client.publish("", "q", b"a", **PERSISTENT)
    client.publish("", "q", b"b")
    [ack] = client.read()
    assert (ack.delivery_tag, ack.multiple) == (2, False)
    bench.sync()
    [ack] = client.read()
    assert (ack.delivery_tag, ack.multiple) == (1, False)


def test_what_is_published_during_a_sync_is_confirmed_after_the_next(bench: DurableBench) -> None:
    client = confirming(bench)
    client.publish("", "q", b"a", **PERSISTENT)
    assert client.read() == []
    client.publish("", "q", b"b", **PERSISTENT)
    bench.sync()
    assert [ack.delivery_tag for ack in client.read()] == [1]
    bench.sync()
    assert [ack.delivery_tag for ack in client.read()] == [2]


def test_when_the_disk_fails_publishers_get_a_nack(bench: DurableBench) -> None:
    client = confirming(bench)
    client.publish("", "q", b"a", **PERSISTENT)
    client.read()
    client.publish("", "q", b"b", **PERSISTENT)
    bench.fail()
    assert [(each.name, each.delivery_tag) for each in client.read()] == [("Basic.Nack", 1), ("Basic.Nack", 2)]
    client.publish("", "q", b"c", **PERSISTENT)
    assert [(each.name, each.delivery_tag) for each in client.read()] == [("Basic.Nack", 3)]


def test_a_queue_that_is_deleted_confirms_what_it_owes(bench: DurableBench) -> None:
    client = confirming(bench)
    other = bench.client()
    client.publish("", "q", b"a", **PERSISTENT)
    assert client.read() == []
    other.send(commands.Queue.Delete(0, "q"))
    assert names(client.read()) == ["Basic.Ack"]


# --- transactions -----------------------------------------------------------------------------------


@pytest.fixture
def tx(bench: DurableBench, client: Client) -> Client:
    bench.declare(client)
    bench.declare(client, "r")
    client.call(commands.Tx.Select())
    return client


def test_a_commit_of_persistent_messages_is_answered_after_one_sync_for_all(bench: DurableBench, tx: Client) -> None:
    tx.publish("", "q", b"a", b"b", **PERSISTENT)
    tx.publish("", "r", b"c", **PERSISTENT)
    bench.loop.run()
    before = bench.syncer.request_count
    tx.send(commands.Tx.Commit(), commands.Basic.Qos(0, 1))
    assert tx.read() == []
    bench.sync()
    assert names(tx.read()) == ["Tx.CommitOk", "Basic.QosOk"]
    assert bench.syncer.request_count == before + 1


def test_a_commit_of_nothing_that_lasts_is_answered_at_once(bench: DurableBench, tx: Client) -> None:
    tx.publish("", "q", b"transient")
    assert names(tx.call(commands.Tx.Commit())) == ["Tx.CommitOk"]
    assert names(tx.call(commands.Tx.Commit())) == ["Tx.CommitOk"]
    tx.publish("", "q", b"never", **PERSISTENT)
    assert names(tx.call(commands.Tx.Rollback())) == ["Tx.RollbackOk"]
    assert not bench.syncer.held


def test_a_commit_of_an_ack_of_a_persistent_message_waits(bench: DurableBench, tx: Client) -> None:
    other = bench.client()
    other.publish("", "q", b"a", **PERSISTENT)
    tx.send(commands.Basic.Get(0, "q"))
    assert names(tx.read())[0] == "Basic.GetOk"
    tx.send(commands.Basic.Ack(1), commands.Tx.Commit())
    assert tx.read() == []
    bench.syncer.is_open = True
    while bench.syncer.held:
        bench.sync()
    assert names(tx.read()) == ["Tx.CommitOk"]


def test_a_commit_that_the_disk_refuses_closes_the_connection(bench: DurableBench, tx: Client) -> None:
    tx.publish("", "q", b"a", **PERSISTENT)
    tx.send(commands.Tx.Commit())
    bench.fail()
    [close] = tx.read()
    assert close.reply_code == 541


LARGE = bytes(range(250)) * 16


def sliced(tmp_path: Path) -> DurableBench:
    """A broker that writes large bodies a little at a time: one slice in each turn."""
    bench = DurableBench(tmp_path)
    options = node_of(bench).options
    options.slice_s = 0.0
    options.embed_below = 1_000
    options.message_store.own_file_bytes = 2_000
    options.message_store.slice_bytes = 400
    return bench


def node_of(bench: DurableBench) -> NodeStore:
    node = bench.server.broker.node
    assert node is not None
    return node


def test_a_large_body_takes_several_turns_and_is_confirmed_behind_all_of_it(tmp_path: Path) -> None:
    bench = sliced(tmp_path)
    client, other = bench.client(), bench.client()
    bench.declare(client)
    client.call(commands.Confirm.Select())
    client.publish("", "q", LARGE, delivery_mode=2)
    for _ in range(3):
        # Somebody else is served between two slices.
        assert node_of(bench).is_behind()
        node_of(bench).journal.commit()
        assert not bench.syncer.held
        other.send(commands.Queue.Declare(0, "q", passive=True))
        bench.server.scheduler.turn_soon()
        bench.loop.turn()
        assert other.transport.written
        other.transport.written.clear()
    while node_of(bench).is_behind():
        bench.server.scheduler.turn_soon()
        bench.loop.turn()
    bench.sync()
    assert isinstance(client.read()[0], commands.Basic.Ack)
    bench.server.abandon()
    again = DurableBench(tmp_path)
    assert again.client().get() == (LARGE, True)
    again.stop()


@pytest.mark.parametrize("turns", [0, 2, 5])
def test_a_crash_between_two_slices_leaves_nothing_of_the_message(tmp_path: Path, turns: int) -> None:
    bench = sliced(tmp_path)
    client = bench.client()
    bench.declare(client)
    client.publish("", "q", LARGE, delivery_mode=2)
    for _ in range(turns):
        bench.server.scheduler.turn_soon()
        bench.loop.turn()
    assert node_of(bench).is_behind()
    bench.server.abandon()
    again = DurableBench(tmp_path)
    assert again.client().get() is None
    again.stop()
