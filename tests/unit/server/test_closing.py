"""The end of a connection: what is said last, and what is still read."""

from __future__ import annotations

import pytest
from pamqp import body, commands, frame, header
from wire_bench import Bench, Client

from penstock import limits
from penstock.errors import internal_error

Basic, Connection = commands.Basic, commands.Connection


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.queue("q")
    return bench


def client_that_does_not_read(bench: Bench) -> Client:
    client = bench.client()
    client.transport.unread_bytes = limits.OUTPUT_BYTES_MAX + 1
    client.connection.pause_writing()
    client.call(Basic.Get(0, "q"))
    assert client.connection.parsing_stopped
    assert client.transport.is_paused
    return client


def test_confirms_precede_close_ok_when_a_client_publishes_and_closes_at_once(bench: Bench) -> None:
    client = bench.client()
    client.call(commands.Confirm.Select())
    parts = [
        (Basic.Publish(0, "", "q"), 1),
        (header.ContentHeader(0, 1, Basic.Properties()), 1),
        (body.ContentBody(b"x"), 1),
        (Connection.Close(200, "bye", 0, 0), 0),
    ]
    client.transport_data(b"".join(frame.marshal(part, channel) for part, channel in parts))
    assert [type(answer) for answer in client.read()] == [Basic.Ack, Connection.CloseOk]


def test_close_ok_is_heard_from_a_client_that_did_not_read(bench: Bench) -> None:
    client = client_that_does_not_read(bench)
    client.connection.close_with(internal_error("over"), 0)
    client.read()
    assert not client.transport.is_paused
    client.send(Connection.CloseOk(), channel=0)
    assert client.transport.is_closing()


def test_a_closed_connection_that_does_not_read_is_not_kept_waiting_for_more(bench: Bench) -> None:
    client = client_that_does_not_read(bench)
    client.connection.close_with(internal_error("over"), 0)
    client.connection.send_raw(b"a heartbeat")
    bench.loop.run()
    assert not client.transport.is_paused
    assert not client.connection.parsing_stopped


def test_the_memory_alarm_leaves_a_closing_connection_alone(bench: Bench) -> None:
    client = bench.client()
    client.publish("", "q", b"x")
    client.connection.close_with(internal_error("over"), 0)
    client.read()
    bench.server.broker.memory_alarm.bytes_max = 0
    for timer in bench.loop.live_timers():
        if timer.call == bench.server._check_alarms:
            timer.call()
    assert bench.server.broker.memory_alarm.active
    assert client.read() == []
    assert not client.transport.is_paused


def test_a_client_that_does_not_hang_up_after_close_ok_is_cut_off(bench: Bench) -> None:
    client = bench.client()
    client.transport.hangs_up = False
    assert [type(answer) for answer in client.call(Connection.Close(200, "bye", 0, 0), channel=0)] == [
        Connection.CloseOk
    ]
    assert client.connection.is_finished
    client.transport_data(b"no frame at all")
    client.connection.send_raw(b"nothing is said after close-ok")
    bench.loop.run()
    assert not client.transport.written
    assert not client.transport.is_closing()
    timers = [timer for timer in bench.loop.live_timers() if timer.call == client.connection.drop]
    assert len(timers) == 1
    timers[0].call()
    bench.loop.run()
    assert client.connection not in bench.server.connections


def test_a_connection_that_is_over_is_read_whatever_kept_it_from_being_read(bench: Bench) -> None:
    client = bench.client()
    client.transport.hangs_up = False
    client.connection.stop_reading("alarm")
    client.call(Connection.Close(200, "bye", 0, 0), channel=0)
    assert not client.transport.is_paused
    client.connection.stop_reading("flow")
    assert not client.transport.is_paused
